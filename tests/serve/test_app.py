from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient
from starlette.types import Message

from climb.files import exclusive
from climb.runs import Journal
from climb.runs.run_file_checks import read_object, write_object
from climb.serve import discovery
from climb.serve.app import make_app
from climb.session import MEASURES

Unfinished = Callable[[int], Path]


@pytest.fixture
def client(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(discovery, "FRESH", 0.0)
    monkeypatch.setattr(discovery, "SHARE", 0)
    with TestClient(make_app(runs), base_url="http://127.0.0.1") as client:
        yield client


def test_the_index_lists_all_runs(client: TestClient, runs: Path) -> None:
    text = client.get("/").text
    result = read_object(runs / "climb-0" / "result.json")
    assert 'href="/runs/climb-0"' in text
    assert 'href="/runs/sweep/fifo-1"' in text
    assert f">{result['final_accuracy']:.2f}</td>" in text
    assert "climb-fifo" in text


def test_the_index_of_an_empty_folder(tmp_path: Path) -> None:
    with TestClient(make_app(tmp_path), base_url="http://127.0.0.1") as client:
        assert "No runs here yet" in client.get("/").text


def test_pages_have_no_inline_script_or_style(client: TestClient) -> None:
    for path in ("/", "/runs/climb-0", "/compare?run=climb-0&run=sweep/fifo-1"):
        text = client.get(path).text
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/page.js" defer="defer">']
        assert "<style" not in text
        assert not re.search(r"<[^>]+ style=| on[a-z]+=\"", text)
        assert "http://" not in text


def test_page_of_a_run_and_its_memory(client: TestClient) -> None:
    text = client.get("/runs/climb-0").text
    for heading in ("Accuracy", "Memory over time", "Training", "Cost", "Files"):
        assert f"<h2>{heading}</h2>" in text
    news = client.get("/api/memory/climb-0").json()
    assert news["parts"]["memory"].count("data:image/webp;base64,") > 4
    again = client.get("/api/memory/climb-0", params={"version": news["version"]}).json()
    assert again == {"version": news["version"], "parts": {}}


def test_updates_come_only_after_changes(client: TestClient, unfinished: Unfinished) -> None:
    folder = unfinished(4)
    first = client.get("/api/live/live").json()
    assert "0 of 2 tasks evaluated" in first["parts"]["summary"]
    assert ">learning<" in first["parts"]["state"]
    assert client.get("/api/live/live", params={"version": first["version"]}).json()["parts"] == {}
    Journal(folder / "journal.jsonl").write(77, "train", objective=1.25, stored=3)
    second = client.get("/api/live/live", params={"version": first["version"]}).json()
    assert "77 mini-batches" in second["parts"]["summary"]
    assert ">77</td>" in client.get("/api/index").json()["parts"]["rows"]


def test_a_stream_without_labels(client: TestClient, own_stream: Path) -> None:
    text = client.get("/runs/photos").text
    assert "Learning from a stream: 59 mini-batches" in text
    assert "the network has &lt;collapsed&gt;" in text
    assert "<h2>Accuracy</h2>" not in text
    assert 'aria-label="Share of novel images"' in text
    assert "climb learn photos --out here" in text
    assert client.get("/api/memory/photos").json()["parts"]["memory"].count("No images to show") == 1


def test_compare(client: TestClient) -> None:
    text = client.get("/compare", params={"run": ["climb-0", "sweep/fifo-1"]}).text
    assert "Settings that differ" in text
    assert ">climb-fifo<" in text
    assert 'aria-label="Accuracy on the tasks seen, in percent"' in text
    for names in ([], ["climb-0"], ["climb-0", "climb-0"]):
        assert client.get("/compare", params={"run": names}).status_code == 400
    assert client.get("/compare", params={"run": ["climb-0", "nothing"]}).status_code == 404


TRAVERSALS = [
    "/runs/../secret", "/runs/..%2fsecret", "/runs/%2e%2e/secret", "/runs/climb-0/../../secret", "/runs//etc",
    "/runs/%2fetc", "/runs/climb-0%00", "/api/live/../../secret", "/api/live/..%2f..%2fsecret", "/api/memory/%2e%2e",
    "/file/../secret/result.json", "/file/..%2fsecret%2fresult.json", "/file/%2e%2e/secret/config.json",
    "/file/climb-0/../../secret/result.json", "/file//etc/passwd", "/file/%2fetc%2fpasswd", "/file/climb-0/.hidden",
    "/file/climb-0/report.html", "/file/climb-0", "/file/", "/file/climb-0/%2e%2e/%2e%2e/secret/result.json",
    "/compare?run=../secret&run=climb-0", "/file/climb-0/result.json%00.png", "/runs/climb-0%5c..%5c..%5csecret",
]  # fmt: skip


@pytest.mark.parametrize("path", TRAVERSALS)
def test_path_traversal_is_rejected(client: TestClient, runs: Path, path: str) -> None:
    secret = runs.parent / "secret"
    (secret).mkdir()
    for name in ("config.json", "result.json"):
        (secret / name).write_text('{"config": {"learner": {}}, "config_hash": "WHISPER"}')
    (runs / "climb-0" / ".hidden").write_text("WHISPER")
    (runs / "climb-0" / "report.html").write_text("WHISPER")
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert "WHISPER" not in answer.text


@pytest.mark.parametrize("name", ["journal.jsonl", "result.json", "memory.safetensors", "model.safetensors"])
def test_links_out_of_the_folder_are_not_followed(client: TestClient, runs: Path, name: str) -> None:
    secret = runs.parent / "secret"
    secret.write_text('{"batch": 4242, "event": "train", "objective": 4242, "final_accuracy": 4242}\n')
    path = runs / "climb-0" / name
    path.unlink()
    os.symlink(secret, path)
    for address in ("/", "/metrics", "/runs/climb-0", "/api/live/climb-0", "/api/memory/climb-0"):
        answer = client.get(address)
        assert answer.status_code == 200
        assert "4242" not in answer.text.replace("4,242", "4242")
    assert client.get(f"/file/climb-0/{name}").status_code == 404


def test_a_linked_memory_is_not_shown(client: TestClient, runs: Path) -> None:
    path = runs / "climb-0" / "memory.safetensors"
    path.rename(runs.parent / "elsewhere.safetensors")
    os.symlink(runs.parent / "elsewhere.safetensors", path)
    assert "data:image" not in client.get("/api/memory/climb-0").text


def test_files_are_downloads(client: TestClient, runs: Path) -> None:
    answer = client.get("/file/sweep/fifo-1/result.json")
    assert answer.content == (runs / "sweep" / "fifo-1" / "result.json").read_bytes()
    assert answer.headers["content-disposition"] == 'attachment; filename="result.json"'
    assert answer.headers["content-type"] == "application/octet-stream"


def test_a_journal_that_grows_while_sent_keeps_its_announced_length(runs: Path) -> None:
    path = runs / "climb-0" / "journal.jsonl"
    path.write_bytes(b'{"batch": 1, "event": "train"}\n' * 10_000)  # more than one chunk
    announced, sent = 0, 0

    async def receive() -> Message:
        await asyncio.sleep(0)  # let other tasks run
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        nonlocal announced, sent
        if message["type"] == "http.response.start":
            announced = int(dict(message["headers"])[b"content-length"])
            Journal(path).write(2, "train")
        else:
            sent += len(message["body"])

    scope = {
        "type": "http", "method": "GET", "path": "/file/climb-0/journal.jsonl", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1")],
    }  # fmt: skip
    with ThreadPoolExecutor() as pool:  # in this thread, browser tests may have left an event loop running
        pool.submit(asyncio.run, make_app(runs)(scope, receive, send)).result()  # type: ignore[arg-type]
    assert sent == announced


def test_names_are_escaped(client: TestClient, runs: Path) -> None:
    nasty = '<img src=x onerror="alert(1)">&'
    folder = runs / nasty
    (runs / "climb-0").rename(folder)
    header = read_object(folder / "config.json")
    header["config"]["learner"]["method"] = nasty
    header["config"]["data"]["dataset"] = nasty
    write_object(folder / "config.json", header)
    for path in ("/", f"/runs/{quote(nasty)}", "/api/index", f"/api/live/{quote(nasty)}"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<img src=x" not in answer.text
        assert "&lt;img src=x" in answer.text


def test_names_in_metrics_are_escaped(client: TestClient, runs: Path) -> None:
    (runs / "climb-0").rename(runs / 'a "run"')
    assert 'climb_run_finished{run="a \\"run\\""} 1' in client.get("/metrics").text.splitlines()


def test_an_unreadable_run_is_listed(client: TestClient, runs: Path) -> None:
    (runs / "climb-0" / "result.json").write_text("{")
    assert "unreadable" in client.get("/").text
    assert client.get("/runs/climb-0").status_code == 409
    lines = client.get("/metrics").text.splitlines()
    assert 'climb_run_readable{run="climb-0"} 0' in lines
    assert 'climb_run_finished{run="climb-0"} 0' in lines
    assert 'climb_run_readable{run="sweep/fifo-1"} 1' in lines


def test_metrics_are_unique(client: TestClient, unfinished: Unfinished) -> None:
    numbers = {"batches": 3.0, "of a part": 1.0, "of/a/part": 2.0}
    Journal(unfinished(4) / "journal.jsonl").write(99, "train", **numbers)
    told = [line.rsplit(" ", 1)[0] for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    assert len(set(told)) == len(told)
    lines = client.get("/metrics").text.splitlines()
    assert 'climb_batches{run="live"} 99' in lines  # the counted value, not the journal's key of the same name
    assert 'climb_of_a_part{run="live"} 1' in lines


def test_metrics_equal_the_journal(client: TestClient, runs: Path, unfinished: Unfinished) -> None:
    folder = unfinished(4)
    Journal(folder / "journal.jsonl").write(99, "train", objective=1.25, stored=7, alignment=float("nan"))
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = answer.text.splitlines()
    assert 'climb_objective{run="live"} 1.25' in lines
    assert 'climb_batches{run="live"} 99' in lines
    assert 'climb_run_finished{run="live"} 0' in lines
    assert 'climb_run_finished{run="sweep/fifo-1"} 1' in lines
    result = read_object(runs / "climb-0" / "result.json")
    assert f'climb_final_accuracy{{run="climb-0",network="student"}} {result["final_accuracy"]:.10g}' in lines
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert sorted(names) == names  # grouped by metric, after its type
    place = lines.index("# TYPE climb_objective gauge")
    assert lines[place - 1] == f"# HELP climb_objective {MEASURES['objective']}"
    pattern = r'(# HELP [a-z_]+ .+|# TYPE [a-z_]+ gauge|[a-z_]+\{([a-z_]+="[^"]*",?)+\} -?[0-9.e+-]+)'
    assert [line for line in lines if not re.fullmatch(pattern, line)] == []


def test_metrics_have_an_info_line(client: TestClient, runs: Path) -> None:
    header, result = (json.loads((runs / "climb-0" / f"{name}.json").read_text()) for name in ("config", "result"))
    lines = client.get("/metrics").text.splitlines()
    about = 'method="climb",preset="default",data="synthetic",seed="0"'
    (info,) = (line for line in lines if line.startswith('climb_run_info{run="climb-0"'))
    assert info == f'climb_run_info{{run="climb-0",{about},config_hash="{header["config_hash"]}"}} 1'
    random = (
        f'climb_random_encoder_accuracy{{run="climb-0",network="student"}} {result["random_encoder_accuracy"]:.10g}'
    )
    assert random in lines


def test_metrics_have_the_latest_accuracy(client: TestClient, unfinished: Unfinished) -> None:
    journal = Journal(unfinished(1) / "journal.jsonl")
    for task, upto in enumerate((30.5, 40.5)):
        journal.write(7, "evaluation", network="student", task=task, per_task=[1.0, 2.0], upto=upto)
        lines = client.get("/metrics").text.splitlines()
        assert f'climb_tasks_evaluated{{run="live"}} {task + 1}' in lines
        assert f'climb_accuracy_upto{{run="live",network="student"}} {upto}' in lines


def test_metrics_include_values_missing_in_the_last_line(client: TestClient, unfinished: Unfinished) -> None:
    journal = Journal(unfinished(1) / "journal.jsonl")
    journal.write(1, "train", drift=0.25)
    journal.write(2, "train", objective=1.5)
    assert 'climb_drift{run="live"} 0.25' in client.get("/metrics").text.splitlines()


def test_metrics_measure_silence(client: TestClient, unfinished: Unfinished) -> None:
    journal = unfinished(4) / "journal.jsonl"
    os.utime(journal, (time.time() - 3600, time.time() - 3600))
    (silence,) = re.findall(r'^climb_run_silence_seconds{run="live"} (.+)$', client.get("/metrics").text, re.MULTILINE)
    assert float(silence) >= 3599
    journal.unlink()
    assert 'climb_run_silence_seconds{run="live"}' not in client.get("/metrics").text


def test_metrics_report_a_process_at_work_in_a_damaged_run(client: TestClient, runs: Path) -> None:
    (runs / "climb-0" / "result.json").write_text("{")
    with exclusive(runs / "climb-0" / ".lock"):
        lines = client.get("/metrics").text.splitlines()
    assert 'climb_run_readable{run="climb-0"} 0' in lines
    assert 'climb_run_at_work{run="climb-0"} 1' in lines
