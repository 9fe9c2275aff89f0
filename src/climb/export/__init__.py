"""Use a trained encoder elsewhere: embed images, probe labels, search, export.

`open_model` reads what training left behind; `embed`, `probe` and `search` put it to work; `export` writes it for
programs that have no climb: safetensors under the names timm and torchvision share, ONNX, a model card.
"""

from __future__ import annotations

from climb.export.embed import embed
from climb.export.exported import export
from climb.export.feature_files import read_features, write_features
from climb.export.from_pixels import FromPixels
from climb.export.image_files import Picture, images_of
from climb.export.opened import OpenModel, open_model
from climb.export.probe import probe
from climb.export.search import Found, search
from climb.export.stored import StoredImages, stored_images

__all__ = [
    "Found",
    "FromPixels",
    "OpenModel",
    "Picture",
    "StoredImages",
    "embed",
    "export",
    "images_of",
    "open_model",
    "probe",
    "read_features",
    "search",
    "stored_images",
    "write_features",
]
