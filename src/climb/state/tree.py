"""Nested state (dicts, lists, tensors, numbers, strings) as one safetensors file, versioned and never pickled.

Tensors go to the file's body. The rest, with a marker where each tensor was, goes to its header as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from climb.errors import ClimbError
from climb.files import write_atomic

FORMAT_VERSION = 1
_HEADER = "climb"
_TENSOR = "$tensor"


def save_tree(path: Path, tree: Any, *, kind: str) -> None:
    """Write a tree of state atomically; ``kind`` says what it is (a checkpoint, a model)."""
    tensors: dict[str, torch.Tensor] = {}
    skeleton = _strip(tree, "", tensors, set())
    header = {"format_version": FORMAT_VERSION, "kind": kind, "tree": skeleton}

    def fill(temporary: Path) -> None:
        try:
            # One entry only: safetensors writes several in random order, and equal states should give equal files.
            save_file(tensors, str(temporary), metadata={_HEADER: json.dumps(header)})
        except SafetensorError as error:  # a full disk, in that library's words
            raise OSError(str(error)) from error

    write_atomic(path, fill)


def load_tree(path: Path, *, kind: str, device: torch.device | str = "cpu", at: Sequence[str] = ()) -> Any:
    """The tree that `save_tree` wrote. A file of a newer format, or of another kind, is refused.

    Only the branch under the keys ``at`` is read: a checkpoint is large, its memory is not.
    """
    try:
        with safe_open(str(path), framework="pt", device=str(device)) as handle:
            header = _header(handle, path)
            if header.get("kind") != kind:
                raise ClimbError(f"{path} is not a climb {kind}: its header says {header.get('kind', 'nothing')}")
            version = header.get("format_version")
            if not isinstance(version, int) or "tree" not in header:
                raise ClimbError(f"{path} is damaged: its header is not whole")
            if version > FORMAT_VERSION:
                raise ClimbError(
                    f"{path} has format_version {version}; this climb reads up to {FORMAT_VERSION}: install a newer one"
                )
            return _restore(_branch(header["tree"], at, path), handle.get_tensor)
    except (SafetensorError, OSError) as error:  # not there, not readable, a folder
        raise ClimbError(f"cannot read {path}: {error}") from error


def tree_kind(path: Path) -> str | None:
    """What a file says it is (a checkpoint, a model, an encoder); None for a safetensors file of somebody else."""
    try:
        with safe_open(str(path), framework="pt") as handle:
            kind = _header(handle, path).get("kind")
    except (SafetensorError, OSError) as error:
        raise ClimbError(f"cannot read {path}: {error}") from error
    return None if kind is None else str(kind)


def _header(handle: Any, path: Path) -> dict[str, Any]:
    """What we wrote into the file's header; nothing where it is somebody else's."""
    try:
        found = json.loads((handle.metadata() or {}).get(_HEADER, "{}"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ClimbError(f"{path} is damaged: its header is no JSON object")
    return found


def _branch(tree: Any, at: Sequence[str], path: Path) -> Any:
    for key in at:
        if not isinstance(tree, dict) or key not in tree:
            raise ClimbError(f"{path} has nothing under {'.'.join(at)}")
        tree = tree[key]
    return tree


def _strip(node: Any, name: str, tensors: dict[str, torch.Tensor], seen: set[int]) -> Any:
    """The tree without its tensors, which go to ``tensors``; ``seen`` are the addresses of their memory."""
    if isinstance(node, torch.Tensor):
        while name in tensors:  # {"a.b": x, "a": {"b": y}}: both are called a.b
            name += "'"
        # The format knows no shared memory. Nothing else is copied: a state may hold gigabytes of images.
        tensor = node.detach().contiguous().cpu()
        place = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if place in seen else tensor
        seen.add(place)
        return {_TENSOR: name}
    if isinstance(node, dict):
        if _TENSOR in node:
            raise TypeError(f"state at '{name}' has the key '{_TENSOR}', which marks tensors; choose another")
        return {
            str(key): _strip(value, f"{name}.{key}" if name else str(key), tensors, seen) for key, value in node.items()
        }
    if isinstance(node, list | tuple):
        return [_strip(value, f"{name}.{index}", tensors, seen) for index, value in enumerate(node)]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"state at '{name}' is a {type(node).__name__}; only tensors and plain data can be saved")


def _restore(node: Any, tensor: Callable[[str], torch.Tensor]) -> Any:
    if isinstance(node, dict):
        if set(node) == {_TENSOR}:
            return tensor(node[_TENSOR])
        return {key: _restore(value, tensor) for key, value in node.items()}
    if isinstance(node, list):
        return [_restore(value, tensor) for value in node]
    return node
