"""The folder of an export: what is in it, what its card says, which folders are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb import Climb
from climb.errors import InputError
from climb.export import export, open_model
from climb.export.card import card
from climb.export.image_files import decode_one

from .conftest import noise, trained_like


def blocks(text: str, heading: str) -> list[str]:
    """The Python code under a heading of a card."""
    return re.findall(r"```python\n(.*?)```", text.split(f"## {heading}\n")[1].split("\n## ")[0], re.DOTALL)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A file that is neither square nor of the right size."""
    Image.fromarray(noise(1, seed=5, side=40)[0][:, :28]).save(tmp_path / "image.png")
    return tmp_path / "image.png"


@pytest.mark.parametrize("pixels", ["uint8", "float32"])
def test_the_code_of_the_card_gives_the_features(
    run_folder: Path, tmp_path: Path, picture: Path, monkeypatch: pytest.MonkeyPatch, pixels: Any
) -> None:
    model = open_model(run_folder, device="cpu")
    folder = export(model, tmp_path / "export", formats=("safetensors", "onnx"), pixels=pixels)
    text = (folder / "README.md").read_text(encoding="utf-8")
    expected = model.features(decode_one(picture, 16).unsqueeze(0)).numpy()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "encoder", raising=False)
    names: dict[str, Any] = {}
    (code,) = blocks(text, "Images")
    exec(code.replace("image.jpg", str(picture)), names)
    for heading in ("With torch alone", "With onnxruntime", "With climb"):
        (code,) = blocks(text, heading)
        exec(code, names)
        assert np.abs(np.asarray(names["features"]) - expected).max() <= 1e-4


def clear_palette() -> Image.Image:
    image = Image.fromarray(noise(1, seed=5, side=40)[0]).quantize(16)
    image.info["transparency"] = bytes(range(0, 256, 16))
    return image


@pytest.mark.parametrize(
    "image",
    [
        pytest.param(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 28, 4), np.uint8)), id="RGBA"),
        pytest.param(
            Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 40, 4), np.uint8)).convert("LA"), id="LA"
        ),
        pytest.param(clear_palette(), id="P"),
        pytest.param(Image.fromarray(np.random.default_rng(0).integers(0, 2**16, (40, 28), np.uint16)), id="I;16"),
        pytest.param(Image.fromarray(np.random.default_rng(0).random((40, 28), np.float32)), id="F"),
        pytest.param(Image.fromarray(100 * np.random.default_rng(0).random((40, 28), np.float32)), id="F-255"),
        pytest.param(Image.fromarray(noise(1, side=40)[0]).convert("CMYK"), id="CMYK"),
    ],
)
def test_the_code_of_the_card_sees_images_of_every_mode_as_climb_does(
    run_folder: Path, tmp_path: Path, image: Image.Image
) -> None:
    folder = export(open_model(run_folder, device="cpu"), tmp_path / "export")
    suffix = "tif" if image.mode in ("F", "CMYK") else "png"
    image.save(tmp_path / f"image.{suffix}")
    names: dict[str, Any] = {}
    (code,) = blocks((folder / "README.md").read_text(encoding="utf-8"), "Images")
    exec(code.replace("image.jpg", str(tmp_path / f"image.{suffix}")), names)
    assert np.array_equal(names["images"][0], decode_one(tmp_path / f"image.{suffix}", 16).numpy())


def test_the_card_of_a_run_has_its_figures(run_folder: Path, tmp_path: Path) -> None:
    folder = export(open_model(run_folder), tmp_path / "export")
    text = (folder / "README.md").read_text(encoding="utf-8")
    result = json.loads((run_folder / "result.json").read_text())
    assert f"| linear probe, all tasks, at the end | {result['final_accuracy']:.2f} |" in text
    assert f"| {result['random_encoder_accuracy']:.2f} |" in text
    assert "Trained by `climb` (preset `default`, seed 0) on synthetic, a stream of 2 tasks." in text
    assert "onnxruntime" not in text
    config = json.loads((folder / "config.json").read_text())
    assert config["trained"]["config_hash"] == result["config_hash"]
    assert (config["architecture"], config["num_features"], config["image_size"]) == ("micro", 128, 16)
    assert sorted(file.name for file in folder.iterdir()) == [
        "README.md",
        "config.json",
        "encoder.py",
        "model.safetensors",
    ]


def test_an_export_is_a_model(learned: tuple[Climb, Path]) -> None:
    model, file = learned
    folder = export(open_model(file, device="cpu"))
    assert folder == file.with_name("learner-export")
    images = torch.from_numpy(noise(4)).permute(0, 3, 1, 2).contiguous()
    assert np.allclose(open_model(folder, device="cpu").features(images).numpy(), model.transform(noise(4)), atol=1e-6)
    assert "How good it is" not in (folder / "README.md").read_text()


def test_the_second_format_joins_the_first(run_folder: Path, tmp_path: Path) -> None:
    model = open_model(run_folder, device="cpu")
    folder = export(model, tmp_path / "export", formats=["onnx"])
    assert not (folder / "model.safetensors").exists()
    difference = json.loads((folder / "config.json").read_text())["onnx"]["difference_to_torch"]
    export(model, folder, formats=["safetensors"])
    text = (folder / "README.md").read_text()
    assert "With torch alone" in text
    assert "With onnxruntime" in text
    assert json.loads((folder / "config.json").read_text())["onnx"]["difference_to_torch"] == difference


def test_files_of_two_encoders_do_not_share_a_folder(
    run_folder: Path, tmp_path: Path, encoder_file: Callable[..., Path]
) -> None:
    folder = export(open_model(run_folder), tmp_path / "export", formats=["onnx"])
    other = open_model(encoder_file())
    with pytest.raises(InputError, match=r"model\.onnx is of other weights"):
        export(other, folder)
    assert not (folder / "model.safetensors").exists()


def test_folders_and_formats_that_are_refused(run_folder: Path, tmp_path: Path) -> None:
    model = open_model(run_folder)
    before = sorted(run_folder.iterdir())
    with pytest.raises(InputError, match="not empty and holds no export"):
        export(model, run_folder)
    assert sorted(run_folder.iterdir()) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; --out must name a folder"):
        export(model, tmp_path / "file")
    with pytest.raises(InputError, match="unknown format 'onx'; did you mean 'onnx'"):
        export(model, tmp_path / "export", formats=["onx"])
    with pytest.raises(InputError, match="no format was given"):
        export(model, tmp_path / "export", formats=[])
    assert not (tmp_path / "export").exists()


def test_pcmc_is_refused(tmp_path: Path) -> None:
    model = Climb(method="pcmc", capacity=60, backbone="micro", replay_batch=8, device="cpu").partial_fit(noise(20))
    model.save(tmp_path / "pcmc.safetensors")
    with pytest.raises(InputError, match="cuts images into patches"):
        export(open_model(tmp_path / "pcmc.safetensors"))


CONFIG: dict[str, Any] = {
    "parameters": 1,
    "num_features": 1,
    "channels": "RGB",
    "mean": [0.5] * 3,
    "std": [0.25] * 3,
    "trained": {},
    "climb": "1.0",
}


@pytest.mark.parametrize(
    ("backbone", "side", "expected", "not_expected"),
    [
        ("resnet18", 32, ["torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)", "torchvision.models.resnet18()"], []),
        ("resnet50", 96, ['timm.create_model("resnet50", num_classes=0)'], ["Conv2d", "maxpool"]),
        ("vit-tiny", 32, ["img_size=32, patch_size=4", "class_token=False"], ["With torchvision"]),
        ("micro", 16, ["Neither has this small network"], ["With torchvision"]),
    ],
)
def test_the_card_says_how_other_libraries_load_it(
    backbone: str, side: int, expected: list[str], not_expected: list[str]
) -> None:
    config = {**CONFIG, "architecture": backbone, "image_size": side}
    text = card(config, trained_like(backbone, side).encoder, ["safetensors"], None)
    assert all(part in text for part in expected)
    assert not any(part in text for part in not_expected)
