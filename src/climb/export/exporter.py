"""Export an encoder to a folder for other programs: weights, ONNX, configuration, model card; upload to the hub."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from climb._version import __version__
from climb.arguments import checked
from climb.errors import ClimbError, InputError, unknown
from climb.export.model_card import card
from climb.export.model_loader import WEIGHTS, OpenModel
from climb.export.onnx_file import Pixels, need_onnx, write_onnx
from climb.export.weights import fingerprint, plain_weights, torch_source, write_weights
from climb.files import write_text
from climb.runs.run_file_checks import FORMAT_VERSION, read_object, write_object
from climb.sources.source import import_extra

FILES = {"safetensors": WEIGHTS, "onnx": "model.onnx"}
"""File name of each format."""

KIND = "climb export"
TRAINED = ("method", "preset", "dataset", "tasks", "seed", "evaluated", "config_hash")
"""Facts about the training run that the export contains."""


@checked()
def export(
    model: OpenModel,
    out: str | Path | None = None,
    *,
    formats: Sequence[str] = ("safetensors",),
    pixels: Pixels = "uint8",
) -> Path:
    """Write the encoder for other programs into the folder ``out``, and return the folder.

    Args:
        model: the model to export.
        out: by default ``export`` in the model's folder, or a folder beside its file.
        formats: "safetensors" (weights, and a Python file that needs only torch), "onnx", or both.
        pixels: input of the ONNX file: "uint8" in 0 to 255, or "float32" in 0 to 1.

    Raises:
        InputError: before any work, for an unusable folder, format or network.
    """
    for name in formats:
        if name not in FILES:
            raise unknown("format", name, FILES)
    if not formats:
        raise InputError(f"there is no format; give one or more of {', '.join(FILES)}")
    if reason := getattr(model.saved.encoder, "not_exported", None):
        raise InputError(f"{reason}; embed works")
    if "onnx" in formats:
        need_onnx()
    default = model.path / "export" if model.path.is_dir() else model.path.with_name(f"{model.path.stem}-export")
    folder = default if out is None else Path(out).expanduser()
    config = _config(model)
    _check(folder, config, formats)
    if "onnx" in formats:  # first, because it can fail
        difference = write_onnx(folder / FILES["onnx"], model.saved, pixels=pixels)
        config["onnx"] = {"pixels": pixels, "difference_to_torch": difference}
    if "safetensors" in formats:
        write_weights(folder / FILES["safetensors"], model.saved)
        if (source := torch_source(model.saved.encoder)) is not None:
            write_text(folder / "encoder.py", source)
    write_object(folder / "config.json", config)
    present = [name for name, file in FILES.items() if (folder / file).exists()]
    write_text(folder / "README.md", card(config, model.saved.encoder, present, model.result()))
    return folder


def _config(model: OpenModel) -> dict[str, Any]:
    saved = model.saved
    return {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "architecture": saved.backbone,
        "num_features": saved.encoder.feature_dim,
        "parameters": sum(parameter.numel() for parameter in saved.encoder.parameters()),
        "image_size": saved.image_size,
        "channels": "RGB",
        "pixel_range": model.pixel_range,
        "mean": saved.mean,
        "std": saved.std,
        "weights_sha256": fingerprint(saved),
        "tensors": len(plain_weights(saved)),
        "trained": _trained(model),
        "climb": __version__,
    }


def _trained(model: OpenModel) -> dict[str, Any]:
    """How the encoder was trained, from the result of a finished run or the configuration of a learner."""
    result = model.result()
    if result is None and model.path.is_dir():
        stored = _read_config(model.path / "config.json")
        config = stored.get("config", {})
        result = {**config.get("learner", {}), "seed": config.get("seed"), "config_hash": stored.get("config_hash")}
    return {name: result[name] for name in TRAINED if result and result.get(name) is not None}


def _check(folder: Path, config: dict[str, Any], formats: Sequence[str]) -> None:
    """Reject a folder with other content, or one that would then contain files of two encoders."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out must be a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    before = _read_config(folder / "config.json")
    if before.get("kind") != KIND:
        raise InputError(f"{folder} is not empty and not an export; give another --out")
    remaining = [file for name, file in FILES.items() if name not in formats and (folder / file).exists()]
    if remaining and before.get("weights_sha256") != config["weights_sha256"]:
        again = f"export all formats again (--format {' '.join(FILES)}), or give another --out"
        raise InputError(f"{folder / remaining[0]} has other weights; {again}")
    if "onnx" in before:
        config["onnx"] = before["onnx"]


def _read_config(path: Path) -> dict[str, Any]:
    with suppress(InputError):
        return read_object(path)
    return {}


def need_hub(repository: str) -> None:
    """Check the name of a repository and the library of the hub, before any work."""
    owner, _, name = repository.partition("/")
    if not owner or not name or "/" in name:
        raise InputError(f"--push needs a repository OWNER/NAME, not '{repository}'")
    import_extra("huggingface_hub", "uploads (--push)", "hub")


def push(folder: Path, repository: str) -> str:
    """Upload an export to the repository OWNER/NAME of the Hugging Face hub, and return its address.

    A repository that does not exist is created as a private one. Its owner decides whether to publish it.
    """
    need_hub(repository)
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message="An encoder exported by climb")
    # The library has many exceptions (network, token, permissions), and changes them.
    except Exception as error:
        reason = f"nothing was uploaded to {repository}: {' '.join(str(error).split())}"
        raise ClimbError(f"{reason}. Log in with: hf auth login. The export is in {folder}") from error
    return f"{api.endpoint}/{repository}"
