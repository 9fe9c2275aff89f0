"""The encoder as ONNX: any number of images at a time, normalisation inside, compared to torch before it is written."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from climb.errors import ClimbError, InputError, unknown
from climb.export.from_pixels import FromPixels
from climb.files import write_atomic
from climb.nets import SavedEncoder
from climb.seeds import torch_generator

Pixels = Literal["uint8", "float32"]
"""What the file takes: uint8 in 0 to 255, or float32 in 0 to 1."""

TOLERANCE = 1e-4
"""Largest difference to torch, relative to the largest feature where that is above 1."""

_CHECKED = (1, 2, 5)
"""Numbers of images that the comparison is made with."""


def need_onnx() -> None:
    """Refuse, before any work, where the libraries are missing."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise InputError(f'ONNX needs {error.name}. Type: pip install "climb-ssl[onnx]"') from error


def write_onnx(path: Path, saved: SavedEncoder, *, pixels: Pixels = "uint8") -> float:
    """Write the encoder with one input ``images`` (batch, 3, S, S) and one output ``features`` (batch, f).

    Returns:
        The largest difference between onnxruntime's features and torch's, on random images.

    Raises:
        ClimbError: onnxruntime's features differ from torch's; nothing is written.
    """
    if pixels not in get_args(Pixels):
        raise unknown("kind of pixels", pixels, get_args(Pixels))
    need_onnx()
    encoder = copy.deepcopy(saved.encoder)  # the caller's stays where it is
    network = FromPixels(encoder, mean=saved.mean, std=saved.std).cpu().eval()
    model = _converted(network, saved, pixels)
    difference = _difference(model, network, saved.image_size, pixels)
    if not difference <= TOLERANCE:
        raise ClimbError(
            f"onnxruntime's features differ from torch's by {difference:.1e}, more than {TOLERANCE:.0e}: "
            f"{path} was not written. Another version of onnxruntime may do better"
        )
    write_atomic(path, lambda temporary: temporary.write_bytes(model))
    return difference


def random_images(count: int, side: int, pixels: Pixels, *, seed: int = 0) -> torch.Tensor:
    """Random images (count, 3, side, side) as an exported file takes them."""
    shape, generator = (count, 3, side, side), torch_generator(seed, "onnx")
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    return images if pixels == "uint8" else images.float() / 255


def _converted(network: FromPixels, saved: SavedEncoder, pixels: Pixels) -> bytes:
    onnx = import_module("onnx")
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
        raise ClimbError("torch gave no ONNX program for this network")
    model: Any = program.model_proto
    onnx.helper.set_model_props(model, {"backbone": saved.backbone, "image_size": str(saved.image_size)})
    onnx.checker.check_model(model)
    body: bytes = model.SerializeToString()
    return body


def _difference(model: bytes, network: FromPixels, side: int, pixels: Pixels) -> float:
    runtime = import_module("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in _CHECKED:
        images = random_images(count, side, pixels, seed=count)
        with torch.no_grad():
            expected = network(images)
        (found,) = session.run(["features"], {"images": images.numpy()})
        apart = (torch.from_numpy(found) - expected).abs().max() / expected.abs().max().clamp(min=1)
        worst = max(worst, float(apart))
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of its own insides, and of the torchvision that is not needed."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)
