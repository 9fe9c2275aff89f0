"""Networks that the caller passes as an object."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

from climb import Climb
from climb.errors import InputError

SETTINGS: dict[str, Any] = {"capacity": 60, "replay_batch": 8, "device": "cpu", "precision": "float32"}
SETTINGS |= {"engine": "eager"}


class Maps(nn.Module):
    """Gives feature maps, which climb averages."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.convolution(images)).relu()


def images(n: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)


def test_a_copy_of_the_module_learns_and_its_maps_are_averaged() -> None:
    module = Maps()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = Climb(backbone=module, **SETTINGS)
    features = model.partial_fit(images(10)).transform(images(4, 1))
    assert features.shape == (4, 6)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training
    assert model.engine_.config.backbone == "module:Maps"
    assert model.engine_.config.weights == "module"


def test_it_starts_from_the_weights_of_the_module() -> None:
    first, second = Maps().eval(), Maps().eval()
    starts = [Climb(backbone=module, lr=1e-9, weight_decay=0.0, **SETTINGS) for module in (first, second)]
    digests = {model.partial_fit(images(1)).engine_.config.weights_sha256 for model in starts}
    assert len(digests) == 2
    pixels = torch.from_numpy(images(4, 1)).permute(0, 3, 1, 2) / 255
    for module, model in zip((first, second), starts, strict=True):
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (model.mean_, model.std_))
        with torch.no_grad():
            weights = model.engine_.parts.network.encoder.model.convolution.weight
            assert torch.allclose(weights, module.convolution.weight, atol=1e-6)
            assert module((pixels - mean) / std).shape == (4, 6, 7, 7)


def test_parameters_and_clones_keep_the_module() -> None:
    module = Maps()
    model = Climb(backbone=module, **SETTINGS)
    assert model.get_params()["backbone"] is module
    assert "backbone=Maps" in repr(model)
    other = clone(model)
    assert torch.equal(other.backbone.convolution.weight, module.convolution.weight)
    assert np.array_equal(other.fit(images(20)).transform(images(4)), model.fit(images(20)).transform(images(4)))


def test_a_file_needs_the_module_again_and_a_pickle_holds_it(tmp_path: Path) -> None:
    model = Climb(backbone=Maps(), **SETTINGS).partial_fit(images(40))
    model.save(tmp_path / "model")
    loaded = Climb.load(tmp_path / "model", device="cpu", backbone=Maps())
    pickled = pickle.loads(pickle.dumps(model))
    expected = model.partial_fit(images(20, 1)).transform(images(4))
    assert np.array_equal(loaded.partial_fit(images(20, 1)).transform(images(4)), expected)
    assert np.array_equal(pickled.partial_fit(images(20, 1)).transform(images(4)), expected)
    with pytest.raises(InputError, match=r"'module:Maps' is a module of the caller; give it again: .*backbone=module"):
        Climb.load(tmp_path / "model", device="cpu")
    with pytest.raises(InputError, match="was saved with backbone 'module:Maps'; given is 'module:Flatten'"):
        Climb.load(tmp_path / "model", device="cpu", backbone=nn.Flatten())


def test_a_module_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    def refused(module: nn.Module, **settings: Any) -> str:
        with pytest.raises(InputError) as raised:
            Climb(backbone=module, **SETTINGS, **settings).partial_fit(images(4))
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "backbone Linear cannot encode an image: RuntimeError: " in refused(nn.Linear(3, 2))
    assert "it must take float images (n, 3, 16, 16)" in refused(nn.Linear(3, 2))
    rows = nn.Sequential(nn.Flatten(2))
    assert "backbone Sequential gives (1, 3, 256) for one image; it must give features (n, f)" in refused(rows)
    assert "load the weights" in refused(Maps(), weights=str(tmp_path))
