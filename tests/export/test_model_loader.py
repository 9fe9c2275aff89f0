"""MODEL: every valid form, and invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from climb import Climb
from climb.errors import InputError
from climb.export import open_model
from climb.nets import load_encoder
from climb.state import save_tree

from .conftest import MEAN, noise


def pixels(n: int = 6, side: int = 16) -> torch.Tensor:
    return torch.from_numpy(noise(n, side=side)).permute(0, 3, 1, 2).contiguous()


def test_a_run_folder_and_its_file_are_one_model(run_folder: Path) -> None:
    folder, file = open_model(run_folder), open_model(run_folder / "model.safetensors")
    assert torch.equal(folder.features(pixels()), file.features(pixels()))
    result = folder.result()
    assert result is not None
    assert result["method"] == "climb"
    assert file.result() is None


def test_features_are_those_of_the_encoder_on_normalised_pixels(encoder_file: Callable[..., Path]) -> None:
    file = encoder_file()
    saved = load_encoder(file)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (saved.mean, saved.std))
    expected = saved.encoder((pixels() / 255 - mean) / std)
    exact = open_model(file, device="cpu", precision="float32")
    assert torch.allclose(exact.features(pixels()), expected, atol=1e-6)
    assert exact.saved.mean == MEAN


def test_a_saved_learner_gives_what_it_transforms_to(learned: tuple[Climb, Path]) -> None:
    model, file = learned
    opened = open_model(file, device="cpu", precision="float32")
    assert np.allclose(opened.features(pixels()).numpy(), model.transform(noise(6)), atol=1e-6)
    assert opened.kind == "model"


def test_precision_of_features(encoder_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file = encoder_file()
    exact, half = (open_model(file, device="cpu", precision=name) for name in ("float32", "bf16"))
    assert (exact.precision, half.precision) == ("float32", "bf16")
    features = half.features(pixels())
    assert features.dtype == torch.float32
    assert not torch.equal(features, exact.features(pixels()))
    torch.testing.assert_close(features, exact.features(pixels()), rtol=0.05, atol=0.05)
    for gain, expected in ((4.0, "bf16"), (1.0, "float32")):
        monkeypatch.setattr("climb.engine.numerics.bf16_gain", lambda gain=gain: gain)
        assert open_model(file, device="cpu").precision == expected


def test_the_engine_of_training_is_refused(encoder_file: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match="captured engine needs a CUDA device"):
        open_model(encoder_file(), device="cpu", engine="captured")


@pytest.mark.slow(seconds=30)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_a_compiled_encoder_has_the_same_features(
    encoder_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("climb.evaluation.features.CACHED_PIXELS", 8 * 16 * 16)
    images = pixels(20)  # two full batches, and a rest that is not compiled
    eager, quick = (
        open_model(encoder_file(), device="cpu", precision="float32", engine=kind) for kind in ("eager", "compiled")
    )
    torch.testing.assert_close(quick.features(images), eager.features(images), rtol=1e-4, atol=1e-5)


def test_pcmc_opens_from_a_saved_learner(tmp_path: Path) -> None:
    images = noise(20)
    model = Climb(
        method="pcmc", capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32"
    ).partial_fit(images)
    model.save(tmp_path / "pcmc.safetensors")
    found = open_model(tmp_path / "pcmc.safetensors", precision="float32").features(pixels(2))
    assert np.allclose(found.numpy(), model.transform(noise(6))[:2], atol=1e-5)


def test_pcmc_weights_alone_are_rejected(tmp_path: Path, encoder_file: Callable[..., Path]) -> None:
    state = {f"backbone.{name}": value for name, value in load_encoder(encoder_file()).encoder.state_dict().items()}
    tree = {"backbone": "micro", "image_size": 16, "mean": [0.5] * 3, "std": [0.2] * 3, "encoder": state}
    save_tree(tmp_path / "pcmc.safetensors", tree, kind="encoder")
    with pytest.raises(InputError, match="cannot be rebuilt from its weights alone"):
        open_model(tmp_path / "pcmc.safetensors")


def test_paths_that_are_not_models(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_model(tmp_path / "nothing")
    with pytest.raises(InputError, match="MODEL is a folder of climb run"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="a learner at its first checkpoint"):
        open_model(tmp_path)
    (tmp_path / "text.safetensors").write_text("no weights")
    with pytest.raises(InputError, match="not a safetensors file"):
        open_model(tmp_path / "text.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="its header says nothing"):
        open_model(tmp_path / "other.safetensors")
    save_tree(tmp_path / "checkpoint.safetensors", {"done": 3}, kind="checkpoint")
    with pytest.raises(InputError, match="its header says checkpoint"):
        open_model(tmp_path / "checkpoint.safetensors")
