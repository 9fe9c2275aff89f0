"""Pushing: the real client of the hub, against a server on this machine that speaks the little of it that is needed."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub.constants
import huggingface_hub.utils
import pytest

from climb.errors import ClimbError, InputError
from climb.export import export, open_model
from climb.export.hub import push


class Hub(BaseHTTPRequestHandler):
    """Makes repositories and takes commits with the files inside; what arrives is kept in ``server``."""

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
    with pytest.raises(InputError, match="is called OWNER/NAME"):
        push(tmp_path, name)


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r'pip install "climb-ssl\[hub\]"'):
        push(tmp_path, "someone/encoder")
