from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from climb.errors import InputError
from climb.serve import serve
from climb.serve.app import make_app
from climb.serve.guard import HEADERS

TOKEN = "a-token-of-some-length"


@pytest.fixture
def open_client(real_runs: Path) -> Iterator[TestClient]:
    with TestClient(make_app(real_runs), base_url="http://127.0.0.1:8765", follow_redirects=False) as client:
        yield client


@pytest.fixture
def client(real_runs: Path) -> Iterator[TestClient]:
    app = make_app(real_runs, token=TOKEN)
    with TestClient(app, base_url="http://big.machine:8765", follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/metrics", "/page.js", "/runs/climb-0", "/api/index", "/nothing"])
def test_requests_without_the_token_are_rejected(client: TestClient, path: str) -> None:
    for headers in (
        {},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Cookie": f"climb={TOKEN}; climb_00000000={TOKEN}"},
    ):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 401
        assert "climb-0" not in answer.text
    assert client.get(path, params={"token": "wrong"}).status_code == 401
    assert client.get(path, params={"token": "ü"}).status_code == 401
    assert client.get(path, params={"token": ""}).status_code == 401


def test_a_program_sends_the_token_in_a_header(client: TestClient) -> None:
    answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    assert "climb_final_accuracy" in answer.text


def test_a_browser_exchanges_the_token_for_a_cookie(client: TestClient) -> None:
    answer = client.get(f"/compare?run=climb-0&token={TOKEN}&run=sweep/fifo-1")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/compare?run=climb-0&run=sweep%2Ffifo-1"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie
    assert client.get(answer.headers["location"]).status_code == 200  # the client keeps cookies
    assert client.get(f"/?token={TOKEN}").headers["location"] == "/"  # stripped again for a known session
    client.cookies.clear()
    assert client.get("/").status_code == 401


def test_the_redirect_stays_on_this_server(client: TestClient) -> None:
    answer = client.get(f"http://big.machine:8765//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/"


def test_a_cookie_of_another_server_is_rejected(client: TestClient, real_runs: Path) -> None:
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"].split(";")[0]
    with TestClient(make_app(real_runs, token=TOKEN), base_url="http://big.machine") as other:
        assert other.get("/", headers={"Cookie": cookie}).status_code == 401


@pytest.mark.parametrize(
    "token",
    ["pässwort-mit-umlaut-lang", os.fsdecode(b"p\xe4sswort-mit-umlaut-lang"), "sixteen letters\n", "a" * 15 + "\x00"],
)
def test_a_token_that_fits_no_header_is_rejected(real_runs: Path, token: str) -> None:
    with pytest.raises(InputError, match="ASCII"):
        make_app(real_runs, token=token)
    with pytest.raises(InputError, match="ASCII"):
        serve(real_runs, host="0.0.0.0", token=token)


def test_a_token_of_words_works_both_ways(real_runs: Path) -> None:
    token = "correct horse + battery & staple"
    with TestClient(make_app(real_runs, token=token), base_url="http://big.machine", follow_redirects=False) as client:
        assert client.get("/", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert client.get("/", params={"token": token}).status_code == 303


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_writing_methods_are_rejected(open_client: TestClient, method: str) -> None:
    assert open_client.request(method, "/").status_code == 405
    assert open_client.request(method, "/file/climb-0/result.json").status_code == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "192.168.1.7:8765", "", "[::1", "localhost@evil"]
)
def test_without_a_token_other_hosts_are_rejected(open_client: TestClient, host: str) -> None:
    assert open_client.get("/", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "[::1]:8765"])
def test_names_of_the_local_host(open_client: TestClient, host: str) -> None:
    assert open_client.get("/", headers={"Host": host}).status_code == 200


def test_every_answer_has_the_headers(open_client: TestClient, client: TestClient) -> None:
    answers = [
        open_client.get(path)
        for path in ("/", "/runs/climb-0", "/page.css", "/file/climb-0/result.json", "/nothing", "/compare")
    ]
    answers += [open_client.post("/"), client.get("/"), client.get(f"/?token={TOKEN}")]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_there_are_no_api_pages(open_client: TestClient) -> None:
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert open_client.get(path).status_code == 404
