"""Weights under the names that other libraries know."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from climb.export.weights_file import fingerprint, write_weights
from climb.nets import load_encoder

from .conftest import trained_like


def torchvision_names() -> set[str]:
    """The state of torchvision's resnet18 without fc, written down from its definition."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = {"conv1.weight"} | {f"bn1.{part}" for part in norm}
    for layer in range(1, 5):
        for block in range(2):
            for number in (1, 2):
                names.add(f"layer{layer}.{block}.conv{number}.weight")
                names |= {f"layer{layer}.{block}.bn{number}.{part}" for part in norm}
        if layer > 1:
            names.add(f"layer{layer}.0.downsample.0.weight")
            names |= {f"layer{layer}.0.downsample.1.{part}" for part in norm}
    return names


@pytest.mark.parametrize(("side", "stem"), [(32, (64, 3, 3, 3)), (96, (64, 3, 7, 7))])
def test_a_resnet18_has_torchvisions_names_and_no_others(tmp_path: Path, side: int, stem: tuple[int, ...]) -> None:
    write_weights(tmp_path / "model.safetensors", trained_like("resnet18", side))
    weights = load_file(tmp_path / "model.safetensors")
    assert set(weights) == torchvision_names()
    assert tuple(weights["conv1.weight"].shape) == stem
    assert tuple(weights["layer4.1.conv2.weight"].shape) == (512, 512, 3, 3)


@pytest.mark.parametrize("backbone", ["micro", "resnet18", "vit-tiny"])
def test_climb_reads_the_same_file(tmp_path: Path, backbone: str) -> None:
    saved = trained_like(backbone, 32)
    shared = tmp_path / "shared.txt"
    shared.write_text("readable by whom any file is")
    write_weights(tmp_path / "model.safetensors", saved)
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o777 == shared.stat().st_mode & 0o777
    again = load_encoder(tmp_path / "model.safetensors")
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.encoder(images), saved.encoder(images))
    assert (again.backbone, again.image_size, again.mean, again.std) == (backbone, 32, saved.mean, saved.std)
    assert set(load_file(tmp_path / "model.safetensors")) == set(saved.encoder.state_dict())


def test_the_fingerprint_is_the_weights(tmp_path: Path) -> None:
    one, same = trained_like("micro", 16), trained_like("micro", 16)
    assert fingerprint(one) == fingerprint(same)
    with torch.no_grad():
        next(same.encoder.parameters())[0, 0, 0, 0] += 1e-3
    assert fingerprint(one) != fingerprint(same)
