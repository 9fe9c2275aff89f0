"""Networks of transformers: random and pretrained weights, pooling, sizes, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from climb import Climb
from climb.errors import InputError
from climb.nets import SavedEncoder, build_network, load_encoder, save_encoder, start_weights

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def test_absent_transformers_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"'hf:…' need transformers.*pip install 'climb-ssl\[hf\]'"):
        build_network("hf:facebook/dinov2-small", 28, generator=generator())


@pytest.fixture
def transformers() -> Any:
    return pytest.importorskip("transformers", reason="needs pip install 'climb-ssl[hf]'")


@pytest.fixture
def dino(transformers: Any, tmp_path: Path) -> str:
    """The backbone of a folder with a tiny DINOv2 that has register tokens."""
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    rates = {"hidden_dropout_prob": 0.4, "attention_probs_dropout_prob": 0.4, "drop_path_rate": 0.4}
    config = transformers.Dinov2WithRegistersConfig(**sizes, **rates, image_size=42, patch_size=14)
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "dino")
    size = {"do_center_crop": True, "crop_size": {"height": 28, "width": 28}, "size": {"shortest_edge": 32}}
    values = {"image_processor_type": "BitImageProcessor", "image_mean": MEAN, "image_std": STD, **size}
    (tmp_path / "dino" / "preprocessor_config.json").write_text(json.dumps(values))
    return f"hf:{tmp_path / 'dino'}"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(n: int, side: int = 28) -> torch.Tensor:
    return torch.randn(n, 3, side, side, generator=generator(5))


def test_random_weights_come_from_the_generator(dino: str) -> None:
    before = torch.get_rng_state()
    one, again, other = (build_network(dino, 28, generator=generator(seed)).encoder.train() for seed in (0, 0, 1))
    assert torch.equal(one(pictures(2)), again(pictures(2)))  # nothing is dropped
    assert not torch.equal(one(pictures(2)), other(pictures(2)))
    assert torch.equal(torch.get_rng_state(), before)


def test_pretrained_weights_are_those_of_the_folder(dino: str, transformers: Any) -> None:
    start = start_weights(dino, "pretrained", 28)
    assert (start.mean, start.std) == (MEAN, STD)
    encoder = build_network(dino, 28, generator=generator(), weights=start.state).encoder.eval()
    model = transformers.AutoModel.from_pretrained(dino.removeprefix("hf:")).eval()
    with torch.no_grad():
        hidden = model(pictures(2)).last_hidden_state
        assert torch.allclose(encoder(pictures(2)), hidden[:, 0], atol=1e-6)
        mean = build_network(f"{dino}#mean", 28, generator=generator(), weights=start.state).encoder.eval()
        assert hidden.shape[1] == 1 + 4 + 4  # class token, registers, patches
        assert torch.allclose(mean(pictures(2)), hidden[:, 5:].mean(dim=1), atol=1e-6)


def test_positions_are_interpolated_to_other_sizes(dino: str) -> None:
    start = start_weights(dino, "pretrained", 56)
    encoder = build_network(dino, 56, generator=generator(), weights=start.state).encoder
    assert encoder(pictures(2, 56)).shape == (2, 16)


def test_networks_without_tokens_give_their_pooled_output(transformers: Any, tmp_path: Path) -> None:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 8, 8, 12], depths=[1, 1, 1, 1])
    model = transformers.AutoModel.from_config(config).eval()
    model.save_pretrained(tmp_path / "conv")
    name = f"hf:{tmp_path / 'conv'}"
    start = start_weights(name, "pretrained", 64)
    encoder = build_network(name, 64, generator=generator(), weights=start.state).encoder.eval()
    with torch.no_grad():
        assert torch.allclose(encoder(pictures(2, 64)), model(pictures(2, 64)).pooler_output, atol=1e-6)
    with pytest.raises(InputError, match=r"has no class token; type hf:.*#mean"):
        build_network(f"{name}#class", 64, generator=generator())


def test_it_learns_and_continues_from_a_file(dino: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28, 3), dtype=np.uint8)
    settings: dict[str, Any] = {"capacity": 60, "replay_batch": 8, "device": "cpu", "precision": "float32"}
    model = Climb(backbone=dino, weights="pretrained", engine="eager", **settings).partial_fit(images[:40])
    assert model.mean_ == MEAN
    model.save(tmp_path / "model")
    continued = Climb.load(tmp_path / "model", device="cpu").partial_fit(images[40:])
    assert np.array_equal(model.partial_fit(images[40:]).transform(images), continued.transform(images))


def test_a_saved_encoder_needs_no_folder(dino: str, tmp_path: Path) -> None:
    start = start_weights(dino, "pretrained", 28)
    encoder = build_network(dino, 28, generator=generator(), weights=start.state).encoder.eval()
    saved = SavedEncoder(encoder=encoder, backbone=dino, image_size=28, mean=MEAN, std=STD)
    save_encoder(tmp_path / "model.safetensors", saved)
    Path(dino.removeprefix("hf:")).rename(tmp_path / "elsewhere")
    assert torch.equal(load_encoder(tmp_path / "model.safetensors").encoder(pictures(2)), encoder(pictures(2)))


def test_bad_names_are_refused_in_one_line(dino: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str, image_size: int = 28) -> str:
        with pytest.raises(InputError) as raised:
            start_weights(name, "pretrained", image_size)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "unknown pooling 'means'; did you mean 'mean'? Allowed: class, mean" in refused(f"{dino}#means")
    assert "is no folder; give one with a config.json, or OWNER/NAME of the hub" in refused("hf:./nowhere")
    assert "is no folder" in refused("hf:nowhere")
    (tmp_path / "empty").mkdir()
    assert f"cannot get 'hf:{tmp_path / 'empty'}': " in refused(f"hf:{tmp_path / 'empty'}")
    assert "(Dinov2WithRegistersModel) cannot encode images of 8 pixels" in refused(dino, 8)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    offline = refused("hf:nobody/nothing")
    assert "cannot get 'hf:nobody/nothing': " in offline
    assert offline.endswith("Without a connection to the hub, give a folder: hf:FOLDER")
