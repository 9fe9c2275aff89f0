"""An exported encoder in a process that has torch and safetensors, and no climb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from climb.export import export, open_model
from climb.export.torch_alone import torch_source
from climb.nets import save_encoder

from .conftest import trained_like

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
        [("micro", 16), ("resnet18", 32)],
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


def test_a_network_of_somebody_else_is_not_written_down() -> None:
    assert torch_source(torch.nn.Linear(3, 3)) is None
