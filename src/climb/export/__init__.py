"""Use a trained encoder: embed images, probe labels, search, export.

`open_model` opens a run, a learner or a saved model. `embed`, `probe`, `audit_model` and `search` use its encoder.
`export` writes it for programs without climb: safetensors with the parameter names of timm and torchvision, ONNX, and a
model card.
"""

from __future__ import annotations

from climb.export.audit import audit_model
from climb.export.duplicates import DuplicateGroup, Duplicates, duplicates, write_duplicates
from climb.export.embed import Picture, embed, images_of
from climb.export.exporter import export
from climb.export.feature_files import read_features, write_features
from climb.export.model_loader import FromPixels, OpenModel, StoredImages, open_model, stored_images
from climb.export.probe import probe
from climb.export.score import ImageScore, score, write_scores
from climb.export.search import SearchResult, search
from climb.export.select import SelectedImage, select, write_selection

__all__ = [
    "DuplicateGroup",
    "Duplicates",
    "FromPixels",
    "ImageScore",
    "OpenModel",
    "Picture",
    "SearchResult",
    "SelectedImage",
    "StoredImages",
    "audit_model",
    "duplicates",
    "embed",
    "export",
    "images_of",
    "open_model",
    "probe",
    "read_features",
    "score",
    "search",
    "select",
    "stored_images",
    "write_duplicates",
    "write_features",
    "write_scores",
    "write_selection",
]
