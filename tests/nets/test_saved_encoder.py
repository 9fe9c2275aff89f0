from __future__ import annotations

from pathlib import Path

import pytest
import torch

from climb.errors import ClimbError
from climb.nets import SavedEncoder, build_network, load_encoder, save_encoder
from climb.state import save_tree


def test_an_encoder_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    network = build_network("micro", 16, generator=torch.Generator().manual_seed(3))
    network(torch.randn(8, 3, 16, 16))  # running statistics are part of it
    saved = SavedEncoder(
        encoder=network.encoder, backbone="micro", image_size=16, mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.3)
    )
    save_encoder(tmp_path / "model.safetensors", saved, evaluated="student")
    again = load_encoder(tmp_path / "model.safetensors")
    images = torch.randn(4, 3, 16, 16)
    assert torch.equal(again.encoder(images), network.encoder.eval()(images))
    assert (again.backbone, again.image_size, again.mean, again.std) == ("micro", 16, saved.mean, saved.std)


def test_another_file_is_rejected(tmp_path: Path) -> None:
    save_tree(tmp_path / "other", {}, kind="checkpoint")
    with pytest.raises(ClimbError, match="is not a climb encoder"):
        load_encoder(tmp_path / "other")
