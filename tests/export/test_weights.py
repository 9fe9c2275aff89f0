"""Weights under the names that other libraries know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from climb.export import export, open_model
from climb.export.weights import fingerprint, torch_source, write_weights
from climb.nets import load_encoder, save_encoder

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


ELSEWHERE = """
import importlib.abc, importlib.util, sys

class Forbidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("climb", "timm", "torchvision", "PIL", "tyro", "rich", "scipy", "onnx"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Forbidden())
try:
    import climb
except ImportError:
    pass
else:
    raise SystemExit("climb could be imported: the test proves nothing")

import torch
from safetensors.torch import load_file, save_file

for folder in sys.argv[1:]:
    spec = importlib.util.spec_from_file_location("encoder", f"{folder}/encoder.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    images = load_file(f"{folder}/../images.safetensors")["images"]
    with torch.no_grad():
        encoder = module.load()
        found = {"uint8": encoder(images), "float": encoder(images.float() / 255)}
    save_file(found, f"{folder}/features.safetensors")
"""


@pytest.mark.parametrize(
    "networks",
    [
        [("micro", 16), ("resnet18", 32), ("efficientnet-lite0", 32)],
        pytest.param([("resnet34", 32), ("resnet50", 72), ("vit-tiny", 32)], marks=pytest.mark.slow),
    ],
    ids=["small", "large"],
)
def test_the_same_features_without_climb(tmp_path: Path, networks: list[tuple[str, int]]) -> None:
    folders = []
    expected = {}
    for backbone, side in networks:
        place = tmp_path / backbone
        save_encoder(place / "model.safetensors", trained_like(backbone, side))
        model = open_model(place / "model.safetensors", device="cpu")
        folder = export(model, place / "export")
        images = torch.randint(0, 256, (4, 3, side, side), dtype=torch.uint8)
        save_file({"images": images}, place / "images.safetensors")
        expected[folder] = model.features(images)
        folders.append(str(folder))
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *folders], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    for folder, features in expected.items():
        found = load_file(folder / "features.safetensors")
        for kind in ("uint8", "float"):
            assert (found[kind] - features).abs().max() <= 1e-5 * max(1.0, float(features.abs().max()))


@pytest.mark.parametrize("backbone", ["micro", "resnet18", "vit-tiny"])
def test_the_written_file_passes_the_linter(tmp_path: Path, backbone: str) -> None:
    source = torch_source(trained_like(backbone, 32).encoder)
    assert source is not None
    (tmp_path / "encoder.py").write_text(source)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E9,F", str(tmp_path / "encoder.py")]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_network_of_another_library_has_no_source() -> None:
    assert torch_source(torch.nn.Linear(3, 3)) is None
