"""The audit of a saved model against its start, on files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from climb import Climb
from climb.errors import InputError
from climb.export import audit_model, open_model

Coloured = Callable[..., Path]
ATTRIBUTES = {"hue", "brightness", "sharpness", "rotation", "mirror"}


def test_a_model_that_learned_nothing_equals_its_start(coloured: Coloured, tmp_path: Path) -> None:
    model = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32")
    model._begin(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))  # builds the engine, and takes no step
    model.save(tmp_path / "fresh.safetensors")
    found = audit_model(
        open_model(tmp_path / "fresh.safetensors", device="cpu", precision="float32"), coloured({"": 50})
    )
    assert set(found["attributes"]) == ATTRIBUTES
    assert found["start"] == "micro, random weights of seed 0"
    for numbers in found["attributes"].values():
        assert numbers["gain_accuracy"] == numbers["gain_error"] == 0
        assert numbers["encoder_accuracy"] == numbers["start_accuracy"]


def test_a_model_without_hue_is_told_from_its_start(learned: tuple[Climb, Path], coloured: Coloured) -> None:
    """The first layer of the trained network is made blind to colour, by equal weights for all channels."""
    model, file = learned
    weight = next(model.encoder_.parameters())
    with torch.no_grad():
        weight.copy_(weight.mean(dim=1, keepdim=True).expand_as(weight))
    model.save(file)
    hue = audit_model(open_model(file, device="cpu", precision="float32"), coloured({"": 100}))["attributes"]["hue"]
    assert hue["gain_accuracy"] < -2 * hue["gain_error"] < 0


def test_a_large_source_is_sampled_and_a_small_one_refused(
    learned: tuple[Climb, Path], coloured: Coloured, encoder_file: Callable[..., Path]
) -> None:
    model, folder = open_model(learned[1], device="cpu", precision="float32"), coloured({"": 50})
    found = audit_model(model, folder, most=100)
    assert found["images"] == 100
    assert found == audit_model(model, folder, most=100) != audit_model(model, folder, most=100, seed=1)
    with pytest.raises(InputError, match="has 50 readable images; an audit needs at least 100"):
        audit_model(model, folder / "class0")
    with pytest.raises(InputError, match="most is 3; it must be at least 100"):
        audit_model(model, folder, most=3)
    with pytest.raises(InputError, match="does not say what it started from"):
        audit_model(open_model(encoder_file(), device="cpu"), folder)
