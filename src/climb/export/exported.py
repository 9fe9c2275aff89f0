"""A folder with everything another program needs: weights, ONNX, configuration, how to load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from climb._version import __version__
from climb.engine.patching import PatchEncoder
from climb.errors import InputError, unknown
from climb.export.card import card
from climb.export.onnx_file import Pixels, need_onnx, write_onnx
from climb.export.opened import WEIGHTS, OpenModel
from climb.export.torch_alone import torch_source
from climb.export.weights_file import fingerprint, plain_weights, write_weights
from climb.files import write_json, write_text
from climb.runs.json_files import read_object

Format = Literal["safetensors", "onnx"]
FILES: dict[str, str] = {"safetensors": WEIGHTS, "onnx": "model.onnx"}
"""What each format is called in the folder."""

KIND = "climb export"
FORMAT_VERSION = 1
TRAINED = ("method", "preset", "dataset", "tasks", "seed", "evaluated", "config_hash")
"""What is told of a run that trained the encoder."""


def export(
    model: OpenModel,
    out: str | Path | None = None,
    *,
    formats: Sequence[str] = ("safetensors",),
    pixels: Pixels = "uint8",
) -> Path:
    """Write the encoder for other programs into the folder ``out``; the folder.

    Args:
        model: what to export.
        out: by default ``export`` in the model's folder, or a folder beside its file.
        formats: "safetensors" (weights and a Python file for torch alone), "onnx", or both.
        pixels: what the ONNX file takes: "uint8" in 0 to 255, or "float32" in 0 to 1.

    Raises:
        InputError: before any work, for a folder, a format or a network that cannot be used.
    """
    for given in formats:
        if given not in FILES:
            raise unknown("format", given, FILES)
    if not formats:
        raise InputError(f"no format was given. Allowed: {', '.join(get_args(Format))}")
    if isinstance(model.saved.encoder, PatchEncoder):
        raise InputError("pcmc's encoder cuts images into patches, which has no place in these files; embed works")
    if "onnx" in formats:
        need_onnx()
    folder = Path(out).expanduser() if out is not None else _default_folder(model)
    config = _config(model)
    _check(folder, config, formats)
    if "onnx" in formats:  # first: it is the one that may find something wrong
        config["onnx"] = {
            "pixels": pixels,
            "difference_to_torch": write_onnx(folder / FILES["onnx"], model.saved, pixels=pixels),
        }
    if "safetensors" in formats:
        write_weights(folder / FILES["safetensors"], model.saved)
        source = torch_source(model.saved.encoder)
        if source is not None:
            write_text(folder / "encoder.py", source)
    write_json(folder / "config.json", config)
    present = [name for name, file in FILES.items() if (folder / file).exists()]
    write_text(folder / "README.md", card(config, model.saved.encoder, present, model.result()))
    return folder


def _default_folder(model: OpenModel) -> Path:
    return model.path / "export" if model.path.is_dir() else model.path.with_name(f"{model.path.stem}-export")


def _config(model: OpenModel) -> dict[str, Any]:
    saved = model.saved
    feature_dim: int = saved.encoder.feature_dim  # type: ignore[assignment]
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "architecture": saved.backbone,
        "num_features": feature_dim,
        "parameters": sum(parameter.numel() for parameter in saved.encoder.parameters()),
        "image_size": saved.image_size,
        "channels": "RGB",
        "mean": list(saved.mean),
        "std": list(saved.std),
        "weights_sha256": fingerprint(saved),
        "tensors": len(plain_weights(saved)),
        "trained": _trained(model),
        "climb": __version__,
    }


def _trained(model: OpenModel) -> dict[str, Any]:
    """How the encoder was trained, as far as its folder says: a finished run more than a learner that goes on."""
    result = model.result()
    if result is None and model.path.is_dir():
        found = _read_config(model.path / "config.json")
        config = found.get("config", {})
        learner = config.get("learner", {})
        result = {**learner, "seed": config.get("seed"), "config_hash": found.get("config_hash")}
    return {name: result[name] for name in TRAINED if result and result.get(name) is not None}


def _check(folder: Path, config: dict[str, Any], formats: Sequence[str]) -> None:
    """Refuse a folder of something else, or one where files of two encoders would lie beside each other."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out must name a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    before = _read_config(folder / "config.json")
    if before.get("kind") != KIND:
        raise InputError(f"{folder} is not empty and holds no export; give another --out")
    left = [file for name, file in FILES.items() if name not in formats and (folder / file).exists()]
    if left and before.get("weights_sha256") != config["weights_sha256"]:
        raise InputError(
            f"{folder / left[0]} is of other weights; export all formats again (--format {' '.join(FILES)}), "
            "or give another --out"
        )
    if "onnx" in before:
        config["onnx"] = before["onnx"]


def _read_config(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except InputError:
        return {}
