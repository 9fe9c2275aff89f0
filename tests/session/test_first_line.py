from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from climb.session import learn
from climb.session.first_line import FirstLine, known_files

Write = Callable[..., Path]


def first_line(images: Any, out: Path, **settings: Any) -> str:
    lines: list[str] = []
    learn(images, out=out, observers=[FirstLine(images, say=lines.append)], **settings)
    (line,) = lines
    return line


def test_the_line_names_network_device_files_and_time(fill: Write, small: dict[str, Any], tmp_path: Path) -> None:
    line = first_line(fill(tmp_path / "images", 105), tmp_path / "out", **small)
    facts = "micro from random weights, 0.1 million parameters, images of 16 px, on cpu; 105 files; "
    assert line.startswith(facts)
    assert re.search(r"[0-9.,]+ images a second: about [0-9]+ s$", line)


def test_a_short_sitting_has_no_rate_and_an_endless_source_no_count(
    fill: Write, small: dict[str, Any], tmp_path: Path
) -> None:
    line = first_line(fill(tmp_path / "images", 20), tmp_path / "out", **small)
    assert line.endswith("on cpu; 20 files")
    pictures = (np.full((16, 16, 3), number, dtype=np.uint8) for number in range(200))
    line = first_line(pictures, tmp_path / "other", **small)
    assert "files" not in line
    assert line.endswith("images a second")


def test_only_what_can_be_counted_in_a_moment_is_counted(fill: Write, tmp_path: Path) -> None:
    assert known_files(fill(tmp_path / "images", 3)) == 3
    assert known_files([1, 2]) == 2
    assert known_files(tmp_path / "none.mp4") is None
    assert known_files("-") is None
