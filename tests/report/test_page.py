from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import tyro

from climb.cli.pages import report
from climb.errors import InputError
from climb.report import write_report
from climb.runs.run_file_checks import read_object
from climb.session import execute
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
)
from climb.state import save_tree

MakeRun = Callable[..., Path]


def page_of(folder: Path) -> ElementTree.Element:
    """The page, which is well-formed XML after its first line."""
    doctype, rest = write_report(folder).read_text(encoding="utf-8").split("\n", 1)
    assert doctype == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def text_of(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def headings(page: ElementTree.Element) -> list[str]:
    return [heading.text or "" for heading in page.iter("h2")]


def h1(page: ElementTree.Element) -> str:
    return next(page.iter("h1")).text or ""


def charts(page: ElementTree.Element) -> list[str]:
    return [svg.attrib["aria-label"] for svg in page.iter("svg") if "aria-label" in svg.attrib]


def cards(page: ElementTree.Element) -> dict[str, str]:
    found = [card for card in page.iter("div") if card.get("class") == "card"]
    return {card.findtext("h3") or "": card.findtext("div") or "" for card in found}


def without(lines: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in keys} for line in lines]


def journal_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def write_journal(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_sections_of_a_finished_run(make_run: MakeRun) -> None:
    page = page_of(make_run())
    assert h1(page) == page.findtext("head/title") == "climb (paper) on synthetic, 3 tasks, seed 7"
    assert "Accuracy of the teacher network" in text_of(page)
    assert headings(page) == [
        "Accuracy",
        "Memory",
        "Memory over time",
        "Training",
        "Cost",
        "All numbers",
        "Command",
        "Configuration",
        "Versions",
        "Files",
    ]
    assert cards(page) == {
        "FA": "55.00",
        "CA": "51.67",
        "CA up-to": "68.33",
        "Forgetting": "5.00",
        "Random encoder": "25.40",
    }
    assert "+29.60 over random" in text_of(page)
    assert charts(page) == [
        "Linear probe accuracy in percent, by task",
        "Accuracy after each task on each task, in percent",
        "Images in the memory",
        "Promotions, merges and prunes, cumulative",
        "Novelty threshold (cosine distance)",
        "Loss of the objective",
        "Alignment loss, before its weight",
    ]
    text = text_of(page)
    for value in ("117,192", "100,992", "189", "757,760 bytes", "of 240 at most", "46.1 s", "1,049.0 s"):
        assert value in text
    for value in ("learner.memory.capacity", "0123456789abcdef", "a very good CPU", "float32"):
        assert value in text
    assert "not finished" not in text


def test_accuracy_curves_are_those_of_the_matrix(make_run: MakeRun) -> None:
    (chart, *_) = (svg for svg in page_of(make_run()).iter("svg") if svg.get("class") == "chart")
    titles = [title.text for title in chart.iter("title")]
    assert titles == [
        "tasks seen, after task 1: 50",
        "tasks seen, after task 2: 50",
        "tasks seen, after task 3: 55",
        "classes seen, own probe, after task 1: 80",
        "classes seen, own probe, after task 2: 70",
        "classes seen, own probe, after task 3: 55",
        "all tasks, unseen included, after task 1: 26.67",
        "all tasks, unseen included, after task 2: 43.33",
        "all tasks, unseen included, after task 3: 55",
    ]
    assert len(chart.findall("line[@class='level']")) == 1


def test_memory_charts_have_the_task_boundaries(make_run: MakeRun) -> None:
    page = page_of(make_run())
    (chart,) = (svg for svg in page.iter("svg") if svg.get("aria-label") == "Images in the memory")
    assert len(chart.findall("line[@class='boundary']")) == 2
    assert "In total: 2 promotions." in text_of(page)


def test_an_unfinished_run_shows_its_progress(make_run: MakeRun) -> None:
    folder = make_run(result=None)
    write_journal(folder, journal_of(folder)[:5])  # the random encoder and two of three tasks
    page = page_of(folder)
    text = text_of(page)
    assert "This run is not finished: 2 of 3 tasks evaluated, 15 mini-batches" in text
    assert cards(page) == {"All tasks": "43.33", "Tasks seen": "50.00", "Up to now": "70.00", "Random encoder": "25.40"}
    assert "All numbers" not in headings(page)
    assert "total cost is known when the run has finished" in text
    assert len([title for title in page.iter("title") if (title.text or "").startswith("after task")]) == 6


def test_a_run_without_journal_lines(make_run: MakeRun) -> None:
    page = page_of(make_run(journal=[], result=None))
    assert "0 of 3 tasks evaluated" in text_of(page)
    assert charts(page) == []
    assert cards(page) == {}


def test_flat_memory_has_one_chart(make_run: MakeRun) -> None:
    folder = make_run()
    write_journal(folder, without(journal_of(folder), "stm_images", "ltm_images", "threshold", "promoted"))
    found = charts(page_of(folder))
    assert "Images stored" in found
    assert not [name for name in found if "in the memory" in name or "threshold" in name]


def test_method_without_memory_and_alignment(make_run: MakeRun) -> None:
    folder = make_run()
    write_journal(folder, [{**line, "stored": 0} for line in without(journal_of(folder), "stm_images", "alignment")])
    page = page_of(folder)
    assert "This method stores no images." in text_of(page)
    assert charts(page)[2:] == ["Loss of the objective"]


def test_one_task_has_no_forgetting(make_run: MakeRun) -> None:
    folder = make_run()
    result = read_object(folder / "result.json")
    result |= {"accuracy_matrix": [[50.0]], "accuracy_upto": [50.0], "forgetting": None, "forward_accuracy": None}
    (folder / "result.json").write_text(json.dumps(result))
    page = page_of(folder)
    assert "Forgetting" not in text_of(page)
    assert ", 1 task, " in h1(page)


def test_second_network_and_image_weights_get_columns(make_run: MakeRun) -> None:
    folder = make_run()
    assert "weighted by images" not in text_of(page_of(folder))
    result = read_object(folder / "result.json")
    result["final_accuracy_per_image"] = 57.25
    result["other"] = {"evaluated": "student", "final_accuracy": 33.33, "random_encoder_accuracy": 22.22}
    (folder / "result.json").write_text(json.dumps(result))
    rows = [text_of(row) for row in page_of(folder).iter("tr")]
    assert "teacher weighted by images student meaning" in rows
    assert any(row.startswith("FA 55.00 57.25 33.33 Final accuracy") for row in rows)
    assert any(row.startswith("Random encoder 25.40 22.22 The same network") for row in rows)


def test_diversity_of_the_memory(make_run: MakeRun) -> None:
    folder = make_run()
    assert "Diversity of the memory" not in text_of(page_of(folder))
    result = read_object(folder / "result.json")
    result["diversity"] = {"vendi_score": 31.26, "uniformity": None, "features": {"vendi_score": 7.0, "clusters": 4}}
    (folder / "result.json").write_text(json.dumps(result))
    rows = [text_of(row) for row in page_of(folder).iter("tr")]
    assert "Vendi score 31.3 7.0 Effective number of distinct images." in rows
    assert not [row for row in rows if row.startswith("Uniformity")]


def test_everything_is_escaped(make_run: MakeRun) -> None:
    nasty = '<script>alert("1")</script>&\''
    folder = make_run()
    header = read_object(folder / "config.json")
    header["config"]["learner"] |= {"method": nasty, "preset": nasty, nasty: nasty}
    header["config"]["data"]["dataset"] = nasty
    header["config"]["recipe"] = header["config"]["seed"] = header["config_hash"] = nasty
    (folder / "config.json").write_text(json.dumps(header))
    result = read_object(folder / "result.json")
    result |= {
        "config_hash": nasty,
        "evaluated": nasty,
        "precision": nasty,
        "versions": {nasty: nasty},
        "other": {"evaluated": nasty + "2"},
    }
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "<b>&'\"x.txt").write_text("")
    page = page_of(folder)
    assert len(list(page.iter("script"))) == 1  # the page's own
    assert nasty not in "".join(text for element in page.iter("script") for text in element.itertext())
    assert not [
        element
        for element in page.iter("b")
        if element.text != "Accuracy by task" and element.text != "Accuracy matrix."
    ]
    assert nasty in h1(page)
    (link,) = (link for link in page.iter("a") if "x.txt" in (link.text or ""))
    assert link.attrib["href"] == "./%3Cb%3E%26%27%22x.txt"


def test_the_page_is_self_contained(make_run: MakeRun) -> None:
    folder = make_run()
    page = page_of(folder)
    source = (folder / "report.html").read_text()
    assert set(re.findall(r"https?://[^\"' ]+", source)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"@import|url\(|<link|<iframe| on[a-z]+=\"", source)
    assert not [
        address for element in page.iter() if (address := element.get("src")) and not address.startswith("data:")
    ]
    assert "width=device-width" in source
    assert "color-scheme: light dark" in source
    assert "@media print" in source


def test_files_are_linked_and_the_page_is_reproducible(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "state.safetensors").write_bytes(b"x" * 2500)
    (folder / ".half-written.tmp").write_text("")
    page = page_of(folder)
    links = [link.attrib["href"] for link in page.iter("a")]
    assert links == ["./checkpoint/state.safetensors", "./config.json", "./journal.jsonl", "./result.json"]
    assert all((folder / link).is_file() for link in links)
    assert "(2.5 kB), the state from which an interrupted run continues" in text_of(page)
    before = (folder / "report.html").read_bytes()
    write_report(folder)
    assert (folder / "report.html").read_bytes() == before


def test_links_to_files_with_unusual_names(make_run: MakeRun) -> None:
    folder = make_run()
    for name in (b"caf\xe9.txt", b"a\x1bb.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).touch()
    links = {link.attrib["href"]: link.text for link in page_of(folder).iter("a")}
    assert links["./caf%E9.txt"] == "caf\ufffd.txt"
    assert links["./a%1Bb.txt"] == "a\ufffdb.txt"


def test_colours_of_every_drawn_class_are_defined(make_run: MakeRun) -> None:
    page = page_of(make_run())
    style = page.findtext("head/style") or ""
    used = {name for svg in page.iter("svg") for part in svg.iter() for name in part.get("class", "").split()}
    drawn = used - {"chart", "dot"}  # without a style of their own
    assert drawn >= {"line", "first", "second", "third", "level", "cell", "learned"}
    assert [name for name in sorted(drawn) if f".{name} " not in style] == []
    for variable in set(re.findall(r"var\((--[a-z-]+)\)", style)):
        assert style.count(f"{variable}: light-dark(") == 1, variable


def test_a_stream_without_labels_and_optional_parts(make_run: MakeRun) -> None:
    config = {"config": {"learner": {"method": "climb"}, "stream": {"tasks": 0}}, "config_hash": "0"}
    lines = [
        {
            "batch": n,
            "event": "train",
            "time": 1.0,
            "images": 10 * n,
            "objective": 1.5,
            "stored": n,
            "novelty_rate": 0.5,
            "heat": 1,
        }
        for n in (1, 2)
    ]
    warning = {"batch": 2, "event": "warning", "text": "the network has collapsed: lower --lr"}
    folder = make_run(config=config, journal=[*lines, warning], result=None)
    (folder / "journal.1.jsonl").write_text(json.dumps({**lines[0], "batch": 0}) + "\n")
    page = page_of(folder)
    assert h1(page) == "climb on run"
    assert cards(page) == {"Images": "20", "Stored": "2", "Loss": "1.500"}
    assert charts(page) == ["Images stored", "Loss of the objective", "Share of novel images", "Heat"]
    assert "After 2 mini-batches: the network has collapsed: lower --lr" in text_of(page)
    assert "Accuracy" not in headings(page)
    (chart,) = (svg for svg in page.iter("svg") if svg.get("aria-label") == "Images stored")
    assert len(chart.findall("circle")) == 3  # the older part of the journal counts


def test_a_damaged_memory_file_is_skipped(make_run: MakeRun) -> None:
    folder = make_run()
    (folder / "memory.safetensors").write_bytes(b"not a safetensors file")
    assert "No images to show" in text_of(page_of(folder))


def test_a_memory_file_with_unknown_keys_is_skipped(make_run: MakeRun) -> None:
    folder = make_run()
    save_tree(folder / "memory.safetensors", {"seen": 3, "groups": [{"mood": "good"}]}, kind="memory")
    assert "No images to show" in text_of(page_of(folder))


def test_the_verb_prints_the_path(make_run: MakeRun, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = make_run()
    tyro.cli(report, args=[str(folder)])
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").is_file()
    with pytest.raises(InputError, match=r"there is no .*elsewhere"):
        report(str(tmp_path / "elsewhere"))


def test_page_of_a_real_run(tmp_path: Path) -> None:
    config = RunConfig(
        data=DataConfig(image_size=16, options={"classes": 4, "train_per_class": 40, "test_per_class": 10}),
        stream=StreamConfig(tasks=2),
        learner=LearnerConfig(
            backbone="micro",
            image_size=16,
            replay_batch=8,
            memory=MemoryConfig(capacity=40, stm_centroids=10, ltm_centroids=3, images_per_centroid=5, window=50),
        ),
        evaluation=EvaluationConfig(network="both", epochs=2, knn=True, ridge=True),
    )
    result = execute(config, Execution(device="cpu"), tmp_path / "run")
    page = page_of(tmp_path / "run")
    assert cards(page)["FA"] == f"{result['final_accuracy']:.2f}"
    assert len(charts(page)) == 12  # two of accuracy, the map, five of the memory, four of the training
    rows = [text_of(row) for row in page.iter("tr")]
    assert any(row.startswith(f"kNN {result['knn_accuracy']:.2f}") for row in rows)
    assert any(row.startswith(f"CBP {result['cbp']:,}") for row in rows)
    assert {"./accuracy.png", "./memory.png", "./model.safetensors", "./memory.safetensors", "./scenario.json"} <= {
        link.attrib["href"] for link in page.iter("a")
    }
