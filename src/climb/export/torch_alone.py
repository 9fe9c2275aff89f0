"""The encoder's network as a Python file that needs torch and safetensors, and no climb.

The file is put together from the source of the classes that were trained, so that it cannot come to differ from them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from types import ModuleType

from torch import nn

from climb.export.from_pixels import FromPixels
from climb.nets import MicroNet, ResNet, VisionTransformer

_REPLACED = {"InputError": "InputError = ValueError"}
"""What stands in for names that our networks take from climb."""

_HEAD = '''"""The encoder of this folder for torch alone: `load()` gives it. Written by climb."""

from __future__ import annotations

{imports}
'''

_OWN_IMPORTS = ("import json", "from pathlib import Path", "from safetensors.torch import load_file")

_LOAD = '''def load(folder: str | Path = Path(__file__).parent) -> FromPixels:
    """The encoder in eval mode: images (n, 3, S, S), uint8 or floats in 0 to 1, to features (n, f)."""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    encoder = {construction}
    encoder.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return FromPixels(encoder, mean=config["mean"], std=config["std"]).eval()
'''


def torch_source(encoder: nn.Module) -> str | None:
    """The file's text; None for a network that is not ours to write down."""
    construction = _construction(encoder)
    if construction is None:
        return None
    imports, blocks = set(_OWN_IMPORTS), []
    for part in (encoder, FromPixels):
        kind = part if isinstance(part, type) else type(part)
        needed, definitions = _definitions(
            sys.modules[kind.__module__], _names(ast.parse(construction)) | {kind.__name__}
        )
        imports |= needed
        blocks += definitions
    blocks.append(_LOAD.format(construction=construction).rstrip())
    head = _HEAD.format(imports="\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line))))
    return head + "\n\n" + "\n\n\n".join(blocks) + "\n"


def _construction(encoder: nn.Module) -> str | None:
    """The call that makes such a network."""
    if isinstance(encoder, ResNet):
        depths = tuple(len(stage) for stage in (encoder.layer1, encoder.layer2, encoder.layer3, encoder.layer4))
        small = isinstance(encoder.maxpool, nn.Identity)
        return f"ResNet({type(encoder.layer1[0]).__name__}, {depths}, small_stem={small})"
    if isinstance(encoder, MicroNet):
        return "MicroNet()"
    if isinstance(encoder, VisionTransformer):
        return f"VisionTransformer({encoder.image_size}, {encoder.patch_embed.proj.kernel_size[0]})"
    return None


def _definitions(module: ModuleType, wanted: set[str]) -> tuple[set[str], list[str]]:
    """The imports, and the source of the functions, classes and constants of a module, that some of its names need."""
    source = inspect.getsource(module)
    defined: dict[str, ast.stmt] = {}
    imported: dict[str, str] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom):
            imported.update({item.name: f"from {statement.module} import {item.name}" for item in statement.names})
        elif isinstance(statement, ast.Import):
            imported.update({item.name: f"import {item.name}" for item in statement.names})
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            defined.update({name: statement for target in statement.targets for name in _names(target)})
    reached: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _names(defined[name]) if name in defined else []
    ours = {name for name in reached if imported.get(name, "").startswith("from climb")}
    imports = {imported[name] for name in reached - ours if name in imported}
    # In the module's order, each once: several names may come from one statement.
    statements = {defined[name].lineno: defined[name] for name in reached if name in defined}
    return imports, [
        *(_REPLACED[name] for name in sorted(ours)),
        *(ast.get_source_segment(source, statement) or "" for _, statement in sorted(statements.items())),
    ]


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
