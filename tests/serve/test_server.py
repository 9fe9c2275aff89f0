from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from climb.cli import run_command
from climb.errors import InputError
from climb.serve import serve

Start = Callable[..., Any]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.org"])
def test_another_address_needs_a_token(real_runs: Path, host: str) -> None:
    with pytest.raises(InputError, match="needs a token"):
        serve(real_runs, host=host)


def test_a_short_token_is_rejected(real_runs: Path) -> None:
    with pytest.raises(InputError, match="at least 16 characters; given 6"):
        serve(real_runs, host="0.0.0.0", token="secret")


def test_a_missing_extra_is_named(real_runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "climb.serve.connections", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"needs uvicorn: pip install \"climb-ssl\[serve\]\""):
        serve(real_runs)


def test_a_missing_folder_exits_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["serve", str(tmp_path / "nothing")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_taken_port_is_named(real_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run_command(["serve", str(real_runs), "--port", str(taken.getsockname()[1])]) == 1
    assert "give another --port" in capsys.readouterr().err


def test_the_command_serves_with_a_token_from_the_environment(real_runs: Path, start: Start) -> None:
    token = "a-token-of-some-length"
    with start(real_runs, "--host", "0.0.0.0", token=token) as address:
        address = address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(address, timeout=60).status_code == 401
        answer = httpx.get(f"{address}metrics", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        assert answer.status_code == 200
        assert "climb_run_info" in answer.text
        assert "server" not in answer.headers
