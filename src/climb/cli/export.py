"""`climb export`: the encoder for programs that have no climb."""

from __future__ import annotations

from typing import Annotated, Literal

import tyro


def export(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    /,
    *,
    format: tuple[Literal["safetensors", "onnx"], ...] = ("safetensors",),
    pixels: Literal["uint8", "float32"] = "uint8",
    out: str | None = None,
    push: str | None = None,
) -> None:
    """Write the encoder, its configuration and a model card into a folder.

    safetensors: weights under the names that timm and torchvision share, and a Python file that loads them with torch
    alone. onnx: any number of images at a time, normalisation inside, checked against torch before it is written.

    Args:
        model: a run's or a learner's folder, or a file of Climb.save.
        format: safetensors, onnx, or both.
        pixels: what the ONNX file takes: uint8 in 0 to 255, or float32 in 0 to 1.
        out: folder to write; by default export in the model's folder, or a folder beside its file.
        push: then upload it to this repository (OWNER/NAME) of the Hugging Face hub, made private if it is new.
    """
    from climb.export import export as exported
    from climb.export import open_model
    from climb.export.hub import need_hub
    from climb.export.hub import push as pushed

    if push is not None:
        need_hub(push)
    folder = exported(open_model(model, device="cpu"), out, formats=format, pixels=pixels)
    print(folder / "README.md")
    if push is not None:
        print(pushed(folder, push))
