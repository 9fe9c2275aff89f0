"""The encoder's weights under plain names, and a Python file that loads them without climb."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import torch
from safetensors.torch import save
from torch import nn

from climb.export.model_loader import FromPixels
from climb.files import write_atomic
from climb.nets import EfficientNetLite, HubModel, MicroNet, ResNet, SavedEncoder, TimmModel, VisionTransformer
from climb.nets.saved_encoder import facts
from climb.state import metadata


def plain_weights(saved: SavedEncoder) -> dict[str, torch.Tensor]:
    """The encoder's parameters and statistics on the CPU, with the names of timm and torchvision."""
    return {
        _plain(saved, name): value.detach().to("cpu", copy=True).contiguous()
        for name, value in saved.encoder.state_dict().items()
    }


def write_weights(path: Path, saved: SavedEncoder) -> None:
    """Write the weights. The file's header has the network for climb; other programs can ignore it."""
    encoder = {name: {"$tensor": _plain(saved, name)} for name in saved.encoder.state_dict()}
    tree = {**facts(saved), "encoder": encoder, "weights_sha256": fingerprint(saved)}
    weights = plain_weights(saved)
    # Serialised to bytes first: `save_file` creates files that only their owner can read.
    body = save(weights, metadata=metadata("encoder", tree, weights))
    write_atomic(path, lambda temporary: temporary.write_bytes(body))


def fingerprint(saved: SavedEncoder) -> str:
    """SHA-256 of the weights, independent of their file."""
    digest = hashlib.sha256()
    for name, value in sorted(plain_weights(saved).items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def _plain(saved: SavedEncoder, name: str) -> str:
    # Models of other libraries are one level down.
    return name.removeprefix("model.") if isinstance(saved.encoder, TimmModel | HubModel) else name


_REPLACED = {"InputError": "InputError = ValueError"}
"""Definitions in place of the names that our networks import from climb."""

_TITLE = '"""The encoder of this folder, without climb: `load()` returns it. Written by climb."""'
_OWN_IMPORTS = ("import json", "from pathlib import Path", "from safetensors.torch import load_file")

_LOAD = '''def load(folder: str | Path = Path(__file__).parent) -> FromPixels:
    """The encoder in eval mode. It maps images (n, 3, S, S), uint8 or floats in 0 to 1, to features (n, f)."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    encoder = {construction}
    encoder.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return FromPixels(encoder, mean=config["mean"], std=config["std"]).eval()
'''


def torch_source(encoder: nn.Module) -> str | None:
    """Python source that builds the encoder with torch and safetensors only; None if another library has it."""
    # Assembled from the source of the classes that were trained, so that the two cannot differ.
    construction = _construction(encoder)
    if construction is None:
        return None
    imports, blocks = set(_OWN_IMPORTS), []
    for kind in (type(encoder), FromPixels):
        names = _names(ast.parse(construction)) | {kind.__name__}
        needed, definitions = _definitions(sys.modules[kind.__module__], names)
        imports |= needed
        blocks += definitions
    ordered = sorted(imports, key=lambda line: (line.startswith("from"), line))
    head = "\n".join([_TITLE, "", "from __future__ import annotations", "", *ordered])
    return "\n\n\n".join([head, *blocks, _LOAD.format(construction=construction)])


def _construction(encoder: nn.Module) -> str | None:
    """The call that builds the network."""
    if isinstance(encoder, ResNet):
        depths = tuple(len(stage) for stage in (encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4))
        small = isinstance(encoder.maxpool, nn.Identity)
        return f"ResNet({type(encoder.layer1[0]).__name__}, {depths}, small_stem={small})"
    if isinstance(encoder, EfficientNetLite):
        return "EfficientNetLite()"
    if isinstance(encoder, MicroNet):
        return "MicroNet()"
    if isinstance(encoder, VisionTransformer):
        return f"VisionTransformer({encoder.image_size}, {encoder.patch})"
    return None


def _definitions(module: ModuleType, wanted: set[str]) -> tuple[set[str], list[str]]:
    """The imports and the source of all definitions of a module that the ``wanted`` names need."""
    source = inspect.getsource(module)
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, str] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom | ast.Import):
            origin = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
            imported |= {item.name: f"{origin}import {item.name}" for item in statement.names}
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            defined |= {name: statement for target in statement.targets for name in _names(target)}
    reached: set[str] = set()
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if name not in reached:
            reached.add(name)
            pending += _names(defined[name]) if name in defined else []
    ours = {name for name in reached if imported.get(name, "").startswith("from climb")}
    imports = {imported[name] for name in reached - ours if name in imported}
    # In the order of the module, each once: one statement may define several names.
    statements = {defined[name].lineno: defined[name] for name in reached if name in defined}
    return imports, [
        *(_REPLACED[name] for name in sorted(ours)),
        *(ast.get_source_segment(source, statement) or "" for _, statement in sorted(statements.items())),
    ]


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
