"""ONNX: equal to torch, for any number of images; not written where it is not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from climb.errors import ClimbError, InputError
from climb.export import FromPixels, export, open_model
from climb.export.onnx_file import TOLERANCE, write_onnx
from climb.nets import SavedEncoder

from .conftest import MEAN, STD, trained_like


@pytest.mark.parametrize(
    ("backbone", "side", "pixels"),
    [
        ("micro", 16, "uint8"),
        ("micro", 16, "float32"),
        ("resnet18", 32, "uint8"),
        pytest.param("resnet50", 96, "uint8", marks=pytest.mark.slow),
        pytest.param("vit-tiny", 32, "float32", marks=pytest.mark.slow),
    ],
)
def test_onnxruntime_agrees_with_torch(
    tmp_path: Path, backbone: str, side: int, pixels: Literal["uint8", "float32"]
) -> None:
    saved = trained_like(backbone, side)
    assert write_onnx(tmp_path / "model.onnx", saved, pixels=pixels) <= TOLERANCE
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (given,), (said,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, said.name) == ("images", ["batch", 3, side, side], "features")
    assert given.type == {"uint8": "tensor(uint8)", "float32": "tensor(float)"}[pixels]
    network = FromPixels(saved.encoder, mean=saved.mean, std=saved.std).eval()
    generator = torch.Generator().manual_seed(11)
    for count in (3, 8):
        images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
        images = images if pixels == "uint8" else images.float() / 255
        with torch.no_grad():
            expected = network(images).numpy()
        (found,) = session.run(None, {"images": images.numpy()})
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-4
        assert np.abs(found).max() > 0.01  # not equal because both are nothing
    properties = {entry.key: entry.value for entry in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert properties == {"backbone": backbone, "image_size": str(side)}


class TwoFaced(torch.nn.Module):
    """Gives one thing to the exporter and another to everybody else, as a faulty conversion would."""

    feature_dim = 3

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean(dim=(2, 3)) + (0.0 if torch.compiler.is_exporting() else 0.01)


def test_an_onnx_model_that_differs_from_torch_is_not_written(tmp_path: Path) -> None:
    saved = SavedEncoder(encoder=TwoFaced(), backbone="micro", image_size=16, mean=MEAN, std=STD)
    with pytest.raises(ClimbError, match="torch differ by"):
        write_onnx(tmp_path / "model.onnx", saved)
    assert not list(tmp_path.iterdir())


def test_unknown_pixels(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown kind of pixels 'int8'; did you mean 'uint8'"):
        write_onnx(tmp_path / "model.onnx", trained_like("micro", 16), pixels="int8")  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, encoder_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf'ONNX files \({missing}\) need the extra: pip install "climb-ssl\[onnx\]"'):
        export(open_model(encoder_file()), tmp_path / "export", formats=["onnx"])
    assert not (tmp_path / "export").exists()
