"""Files with weights: climb's own, other safetensors files, and torch's ``.pth`` files."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from safetensors.torch import load_file
from torch import Tensor

from climb.errors import ClimbError, InputError
from climb.nets.network import Channels
from climb.settings.presets import NETWORK
from climb.state import load_tree, tree_kind

ENCODER = "model.safetensors"
"""Name of the encoder's file in a folder of a run, a learner or an export."""
TORCH = (".pth", ".pt", ".bin", ".ckpt", ".tar")
"""Endings of files of `torch.save`."""
WRAPPERS = ("state_dict", "model_state_dict", "model", "network", "net", "encoder", "backbone")
"""Keys under which training scripts save the weights."""
ALLOWED = (
    "a folder of climb run, learn or export, a file of Climb.save, safetensors, or a .pth file with names of "
    "torchvision or timm"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightFile:
    """Content of a file with weights."""

    state: Mapping[str, Tensor]
    """Tensors by name."""
    backbone: str | None = None
    """The network, if the file names it. So it is with the next three."""
    image_size: int | None = None
    mean: Channels | None = None
    std: Channels | None = None


def weight_file(path: str | Path) -> Path:
    """The file of weights that ``path`` names: itself, or that in a folder of climb."""
    path = Path(path).expanduser()
    if not path.exists():
        near = get_close_matches(path.name, ("none", "pretrained"), n=1)
        hint = f"did you mean '{near[0]}'? T" if near else "t"
        raise InputError(f"weights '{path}' do not exist; {hint}ype none, pretrained, or a path: {ALLOWED}")
    if path.is_dir() and not (path / ENCODER).is_file():
        raise InputError(f"the folder {path} holds no weights ({ENCODER}); give {ALLOWED}")
    return path / ENCODER if path.is_dir() else path


def read_weights(path: str | Path) -> WeightFile:
    """Read a file of weights, or that in a folder of climb. Only tensors are read, never code.

    Raises:
        InputError: there is no file, or no weights in it.
    """
    file = weight_file(path)
    if file.suffix in TORCH:
        return WeightFile(state=_tensors(_torch_content(file), file))
    try:
        kind = tree_kind(file)
    except ClimbError as error:
        raise InputError(
            f"{file} holds no weights: it is neither a safetensors file nor one of torch.save; give {ALLOWED}"
        ) from error
    if kind == "encoder":
        tree = load_tree(file, kind=kind)
        return WeightFile(state=_tensors(tree["encoder"], file), **_facts(tree), **_statistics(tree))
    if kind == "model":
        return _saved_model(file)
    if kind is not None:
        raise InputError(f"{file} is a {kind} of climb, which holds no encoder alone; give {ALLOWED}")
    return WeightFile(state=_tensors(load_file(file), file))


def _saved_model(file: Path) -> WeightFile:
    """The encoder of a file of `Climb.save`: that of its teacher, if its preset evaluates the teacher."""
    config = load_tree(file, kind="model", at=("config",))
    if config is None:
        raise InputError(f"{file} holds no weights: that Climb had not learned anything")
    state = load_tree(file, kind="model", at=("engine", "network"))
    alignment = load_tree(file, kind="model", at=("engine", "alignment"))
    teacher = {
        name.removeprefix("_teacher."): value for name, value in alignment.items() if name.startswith("_teacher.")
    }
    if teacher and NETWORK.get(config["preset"]) == "teacher":
        state = teacher
    encoder = {name.removeprefix("encoder."): value for name, value in state.items() if name.startswith("encoder.")}
    statistics = {name: load_tree(file, kind="model", at=(name,)) for name in ("mean", "std")}
    return WeightFile(state=_tensors(encoder, file), **_facts(config), **_statistics(statistics))


def _facts(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {"backbone": str(tree["backbone"]), "image_size": int(tree["image_size"])}


def _statistics(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(map(float, tree[name])) for name in ("mean", "std")}


def _torch_content(file: Path) -> Any:
    unreadable = InputError(f"{file} holds no weights: torch cannot read it; give {ALLOWED}")
    with file.open("rb") as opened:
        if not opened.read(2).startswith((b"PK", b"\x80")):  # neither a zip file nor a pickle
            raise unreadable
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{file} holds more than tensors, and loading it could run code; save model.state_dict() alone"
        ) from error
    except (RuntimeError, EOFError, BadZipFile, ValueError, KeyError, TypeError) as error:
        raise unreadable from error


def _tensors(content: Any, file: Path) -> dict[str, Tensor]:
    """The tensors of a state dict, which training scripts often save inside another dictionary."""
    for _ in range(3):
        if not isinstance(content, Mapping):
            break
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        if any(value.is_floating_point() and value.ndim > 1 for value in tensors.values()):
            return tensors
        content = next((content[key] for key in WRAPPERS if isinstance(content.get(key), Mapping)), None)
    raise InputError(f"{file} holds no weights: no dictionary of tensors; save model.state_dict()")
