"""The folder of an export: its files, its model card, rejected folders."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub.constants
import huggingface_hub.utils
import numpy as np
import pytest
import torch
from PIL import Image

from climb import Climb
from climb.errors import ClimbError, InputError
from climb.export import export, open_model
from climb.export.embed import decode_one
from climb.export.exporter import push
from climb.export.model_card import card

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
    model = open_model(run_folder, device="cpu", precision="float32")
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
        error = np.abs(np.asarray(names["features"]) - expected).max()
        assert error <= (0.02 * expected.max() if heading == "With climb" else 1e-4)  # climb may compute in bf16


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
    folder = export(open_model(run_folder, device="cpu", precision="float32"), tmp_path / "export")
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
    assert f"| FA: final accuracy, all tasks | {result['final_accuracy']:.2f} |" in text
    assert f"| {result['random_encoder_accuracy']:.2f} |" in text
    assert "Trained by `climb` (preset `default`, seed 0) on synthetic, a stream of 2 tasks, without labels." in text
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
    assert np.allclose(
        open_model(folder, device="cpu", precision="float32").features(images).numpy(),
        model.transform(noise(4)),
        atol=1e-6,
    )
    assert "How good it is" not in (folder / "README.md").read_text()


def test_the_second_format_joins_the_first(run_folder: Path, tmp_path: Path) -> None:
    model = open_model(run_folder, device="cpu", precision="float32")
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
    with pytest.raises(InputError, match=r"model\.onnx has other weights"):
        export(other, folder)
    assert not (folder / "model.safetensors").exists()


def test_folders_and_formats_that_are_rejected(run_folder: Path, tmp_path: Path) -> None:
    model = open_model(run_folder)
    before = sorted(run_folder.iterdir())
    with pytest.raises(InputError, match="not empty and not an export"):
        export(model, run_folder)
    assert sorted(run_folder.iterdir()) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; --out must be a folder"):
        export(model, tmp_path / "file")
    with pytest.raises(InputError, match="unknown format 'onx'; did you mean 'onnx'"):
        export(model, tmp_path / "export", formats=["onx"])
    with pytest.raises(InputError, match="there is no format"):
        export(model, tmp_path / "export", formats=[])
    assert not (tmp_path / "export").exists()


def test_pcmc_cannot_be_exported(tmp_path: Path) -> None:
    model = Climb(
        method="pcmc", capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32"
    ).partial_fit(noise(20))
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
        ("micro", 16, ["Neither has this network"], ["With torchvision"]),
    ],
)
def test_the_card_says_how_other_libraries_load_it(
    backbone: str, side: int, expected: list[str], not_expected: list[str]
) -> None:
    config = {**CONFIG, "architecture": backbone, "image_size": side}
    text = card(config, trained_like(backbone, side).encoder, ["safetensors"], None)
    assert all(part in text for part in expected)
    assert not any(part in text for part in not_expected)


class Hub(BaseHTTPRequestHandler):
    """A fake hub: creates repositories and accepts commits. ``server`` keeps the files."""

    server: Any

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != "Bearer right":
            return self._answer(401, {"error": "Invalid username or password."})
        if self.path == "/api/repos/create":
            self.server.made.append(json.loads(body))
            return self._answer(200, {"url": f"{self.server.address}/someone/encoder"})
        if "/preupload/" in self.path:
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            return self._answer(200, {"files": [{**file, "shouldIgnore": False} for file in files]})
        if "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return self._answer(200, {"commitUrl": f"{self.server.address}/someone/encoder/commit/1", "commitOid": "1"})
        return self._answer(200, {"errors": [], "warnings": []})  # the card's front matter is fine

    def do_GET(self) -> None:
        self._answer(200, {"sha": "0" * 40, "id": "someone/encoder", "siblings": []})

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.made, server.files = [], {}
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    huggingface_hub.utils.close_session()  # the client keeps the proxies of its first use, perhaps by another test
    yield server
    huggingface_hub.utils.close_session()
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_file_arrives_in_a_private_repository(
    hub: Any, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "right")
    folder = export(open_model(run_folder), tmp_path / "export")
    assert push(folder, "someone/encoder") == f"{hub.address}/someone/encoder"
    assert hub.made[0]["name"] == "encoder"
    assert hub.made[0]["organization"] == "someone"
    assert hub.made[0].get("private") or hub.made[0].get("visibility") == "private"
    assert hub.files == {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_refusal_says_what_to_do(hub: Any, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "wrong")
    folder = export(open_model(run_folder), tmp_path / "export")
    with pytest.raises(ClimbError, match=r"nothing was uploaded to someone/encoder: .*hf auth login"):
        push(folder, "someone/encoder")
    assert not hub.files


@pytest.mark.parametrize("name", ["encoder", "/encoder", "someone/", "https://huggingface.co/someone/encoder"])
def test_a_name_that_is_none(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a repository OWNER/NAME"):
        push(tmp_path, name)


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r'pip install "climb-ssl\[hub\]"'):
        push(tmp_path, "someone/encoder")
