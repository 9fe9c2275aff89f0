"""Nested state (dicts, lists, tensors, numbers, strings) as one versioned safetensors file without pickle.

Tensors are in the body of the file. The rest is in its header as JSON, with a marker in place of each tensor. The
header has a checksum of each tensor and one of its own content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from climb.errors import ClimbError, DamagedFile, InputError
from climb.files import json_checksum, warn_unchecked, write_atomic

FORMAT_VERSION = 2
"""Files of version 1 have no checksums."""
LONGEST = 200  # characters of an error of torch
_HEADER = "climb"
_TENSOR = "$tensor"


def save_tree(path: Path, tree: Any, *, kind: str, keep: Path | None = None) -> None:
    """Write nested state atomically.

    Args:
        path: the file.
        tree: the state.
        kind: names its content, such as "checkpoint" or "model".
        keep: another name for the file that is replaced.
    """
    tensors: dict[str, torch.Tensor] = {}
    skeleton = _strip(tree, "", tensors, set())

    def fill(temporary: Path) -> None:
        try:
            save_file(tensors, str(temporary), metadata=metadata(kind, skeleton, tensors))
        except SafetensorError as error:  # for example a full disk
            raise OSError(str(error)) from error

    write_atomic(path, fill, keep=keep)


def metadata(kind: str, skeleton: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Our part of a file's header. ``skeleton`` has ``{"$tensor": name}`` in place of each tensor."""
    checksums = {name: _checksum(name, tensor) for name, tensor in tensors.items()}
    content = {"format_version": FORMAT_VERSION, "kind": kind, "tree": skeleton, "checksums": checksums}
    # A single entry: safetensors writes several in random order, and equal states should give equal files.
    return {_HEADER: json.dumps({**content, "checksum": json_checksum(content)})}


def load_tree(path: Path, *, kind: str, at: Sequence[str] = ()) -> Any:
    """Read a file of `save_tree`. Rejects a file that is damaged, of a newer format or of another kind.

    Only the branch under the keys ``at`` is read and checked, for example the memory of a large checkpoint.
    """
    with _opened(path) as (handle, header):
        checksum = header.pop("checksum", None)
        if checksum is not None and checksum != json_checksum(header):
            raise DamagedFile(f"{path} is damaged: its header does not match its checksum")
        if header.get("kind") != kind:
            raise DamagedFile(f"{path} is not a climb {kind}: its header says {header.get('kind', 'nothing')}")
        version, checksums = header.get("format_version"), header.get("checksums", {})
        if not isinstance(version, int) or "tree" not in header:
            raise DamagedFile(f"{path} is damaged: its header is incomplete")
        if version > FORMAT_VERSION:
            raise ClimbError(
                f"{path} has format_version {version}; this climb reads up to {FORMAT_VERSION}: install a newer one"
            )
        if version == 1:
            warn_unchecked(path)
        elif checksum is None:
            raise DamagedFile(f"{path} is damaged: its header has no checksums")

        def read(name: str) -> torch.Tensor:
            try:
                # A copy: the file is mapped into memory, where a later change of it would appear unchecked.
                tensor: torch.Tensor = handle.get_tensor(name).clone()
            except Exception as error:  # safetensors raises many kinds for a changed name or type
                raise DamagedFile(f"{path} is damaged: it has no tensor {name}") from error
            if version > 1 and checksums.get(name) != _checksum(name, tensor):
                raise DamagedFile(f"{path} is damaged: {name} does not match its checksum")
            return tensor

        return _restore(_branch(header["tree"], at, path), read)


def tree_kind(path: Path) -> str | None:
    """The kind of a file of `save_tree`, such as "model"; None for other safetensors files."""
    with _opened(path) as (_, header):
        kind = header.get("kind")
        return None if kind is None else str(kind)


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Name the file in errors about its content, for a context that restores objects from it.

    A file may be complete and still not fit: it was edited, or belongs to another model.

    >>> with restoring(Path("state.safetensors")):
    ...     {"network": 1}["memory"]
    Traceback (most recent call last):
    climb.errors.DamagedFile: state.safetensors does not fit: KeyError: 'memory'
    """
    try:
        yield
    except InputError as error:
        raise InputError(str(error) if str(path) in str(error) else f"{path} does not fit: {error}") from error
    except (ClimbError, torch.OutOfMemoryError):
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise DamagedFile(f"{path} does not fit: {text if len(text) <= LONGEST else text[:LONGEST] + '...'}") from error


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """An open file, and our part of its header; empty for other safetensors files."""
    try:
        with safe_open(str(path), framework="pt") as handle:
            try:
                header = json.loads((handle.metadata() or {}).get(_HEADER, "{}"))
            except (ValueError, RecursionError):
                header = None
            if not isinstance(header, dict):
                raise DamagedFile(f"{path} is damaged: its header is not a JSON object")
            yield handle, header
    except SafetensorError as error:
        raise DamagedFile(f"cannot read {path}: {error}") from error
    except OSError as error:  # missing, not readable, a folder
        raise ClimbError(f"cannot read {path}: {error}") from error


def _branch(tree: Any, at: Sequence[str], path: Path) -> Any:
    for key in at:
        if not isinstance(tree, dict) or key not in tree:
            raise DamagedFile(f"{path} has no {'.'.join(at)}")
        tree = tree[key]
    return tree


def _checksum(name: str, tensor: torch.Tensor) -> str:
    """CRC-32 of a tensor's name, type, shape and bytes."""
    described = crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    return f"{crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, described):08x}"


def _strip(node: Any, name: str, tensors: dict[str, torch.Tensor], seen: set[int]) -> Any:
    """Move the tensors of a tree to ``tensors``. ``seen`` contains the addresses of their memory."""
    if isinstance(node, torch.Tensor):
        while name in tensors:  # {"a.b": x, "a": {"b": y}}: both are named a.b
            name += "'"
        # The format has no shared memory, so only duplicates are cloned: a state may have gigabytes of images.
        tensor = node.detach().contiguous().cpu()
        address = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if address in seen else tensor
        seen.add(address)
        return {_TENSOR: name}
    if isinstance(node, dict):
        if _TENSOR in node:
            raise TypeError(f"state at '{name}' has the reserved key '{_TENSOR}'; choose another")
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
