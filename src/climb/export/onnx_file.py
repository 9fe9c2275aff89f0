"""The encoder as an ONNX file with normalisation inside and any batch size, verified against torch."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from climb.errors import ClimbError, unknown
from climb.export.model_loader import FromPixels
from climb.files import write_atomic
from climb.nets import SavedEncoder
from climb.seeds import torch_generator
from climb.sources.source import import_extra

Pixels = Literal["uint8", "float32"]
"""Input of the file: uint8 in 0 to 255, or float32 in 0 to 1."""

TOLERANCE = 1e-4
"""Largest difference from torch, relative to the largest feature if that is above 1."""


def need_onnx() -> None:
    """Raise InputError if a library is missing."""
    for library in ("onnx", "onnxscript", "onnxruntime"):
        import_extra(library, f"ONNX files ({library})", "onnx")


def write_onnx(path: Path, saved: SavedEncoder, *, pixels: Pixels = "uint8") -> float:
    """Write the encoder with one input ``images`` (batch, 3, S, S) and one output ``features`` (batch, f).

    Returns:
        The largest difference between the features of onnxruntime and torch, on random images.

    Raises:
        ClimbError: the features differ too much; nothing is written.
    """
    if pixels not in get_args(Pixels):
        raise unknown("kind of pixels", pixels, get_args(Pixels))
    encoder = copy.deepcopy(saved.encoder)  # the caller's encoder stays on its device
    network = FromPixels(encoder, mean=saved.mean, std=saved.std).cpu().eval()
    model = _converted(network, saved, pixels)
    difference = _difference(model, network, saved.image_size, pixels)
    if not difference <= TOLERANCE:
        excess = f"features of onnxruntime and torch differ by {difference:.1e}, more than {TOLERANCE:.0e}"
        raise ClimbError(f"{excess}: {path} is not written. Another version of onnxruntime may agree better")
    write_atomic(path, lambda temporary: temporary.write_bytes(model))
    return difference


def random_images(count: int, side: int, pixels: Pixels, *, seed: int = 0) -> torch.Tensor:
    """Random images (count, 3, side, side) as input of an exported file."""
    shape, generator = (count, 3, side, side), torch_generator(seed, "onnx")
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return images if pixels == "uint8" else images.float() / 255


def _converted(network: FromPixels, saved: SavedEncoder, pixels: Pixels) -> bytes:
    import onnx

    with _quiet():
        program = torch.onnx.export(
            network,
            (random_images(2, saved.image_size, pixels),),
            dynamo=True,
            dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
            input_names=["images"],
            output_names=["features"],
            verbose=False,
        )
    if program is None:
        raise ClimbError("torch.onnx.export returned no program for this network")
    model: Any = program.model_proto
    onnx.helper.set_model_props(model, {"backbone": saved.backbone, "image_size": str(saved.image_size)})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _difference(model: bytes, network: FromPixels, side: int, pixels: Pixels) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in (1, 2, 5):  # batch sizes
        images = random_images(count, side, pixels, seed=count)
        with torch.no_grad():
            expected = network(images)
        (features,) = session.run(["features"], {"images": images.numpy()})
        apart = (torch.from_numpy(features) - expected).abs().max() / expected.abs().max().clamp(min=1)
        worst = max(worst, float(apart))
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings of torch's exporter, for example about torchvision, which is not needed."""
    with ExitStack() as restored, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for log in map(logging.getLogger, ("torch.onnx", "onnxscript", "onnx_ir")):
            restored.callback(log.setLevel, log.level)
            log.setLevel(logging.ERROR)
        yield
