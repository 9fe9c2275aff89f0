"""Looking below a folder again and again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.sources import tree as looking
from climb.sources.tree import Tree

Draw = Callable[..., Path]


@pytest.fixture
def root(draw: Draw, tmp_path: Path) -> Path:
    for name in ("a/1.png", "a/b/2.png", "a/b/3.png", "c/4.png", "5.png"):
        draw(tmp_path / name)
    for folder in ("a/b", "a", "c", "."):  # long ago: a clock of coarse steps would not tell the next change from these
        os.utime(tmp_path / folder, (1e9, 1e9))
    return tmp_path


def seen(tree: Tree, thorough: bool = False) -> list[str]:
    return [Path(path).stem for path, _ in tree.look(thorough)]


def test_a_quick_look_is_into_folders_that_changed_only(
    root: Path, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "SURE_SECONDS", 0.0)
    tree = Tree(str(root), frozenset({".png"}))
    assert seen(tree) == ["5", "1", "2", "3", "4"]
    assert seen(tree) == []
    draw(root / "a" / "b" / "6.png")  # added
    assert seen(tree) == ["2", "3", "6"]
    os.replace(draw(root / "c" / ".part.png", 9), root / "c" / "4.png")  # replaced
    assert seen(tree) == ["4"]
    draw(root / "a" / "new" / "deep" / "7.png")
    assert seen(tree) == ["1", "7"]
    assert seen(tree) == []
    (root / "a" / "b" / "2.png").write_bytes(b"written in place")
    assert seen(tree) == []
    assert seen(tree, thorough=True) == ["5", "1", "2", "3", "6", "7", "4"]
    assert seen(tree) == []


def test_a_folder_whose_time_is_young_is_looked_into_again(root: Path, draw: Draw) -> None:
    """Two changes within one step of a coarse clock leave one time."""
    tree = Tree(str(root), frozenset({".png"}))
    before = os.stat(root / "c").st_mtime_ns
    assert len(seen(tree)) == 5
    draw(root / "c" / "6.png")
    os.utime(root / "c", ns=(before, before))
    assert "6" in seen(tree)


def test_a_look_that_was_not_taken_to_its_end_skips_nothing_the_next_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "SURE_SECONDS", 0.0)
    tree = Tree(str(root), frozenset({".png"}))
    look = tree.look(False)
    assert [Path(next(look)[0]).stem for _ in range(3)] == ["5", "1", "2"]
    look.close()
    assert seen(tree) == ["5", "1", "2", "3", "4"]


def test_a_file_that_cannot_be_looked_at_for_now_is_not_skipped(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "SURE_SECONDS", 0.0)
    stat, broken = os.stat, True

    def flaky(path: Any, **options: Any) -> os.stat_result:
        if broken and str(path).endswith("2.png"):
            raise OSError(5, "Input/output error", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", flaky)
    tree = Tree(str(root), frozenset({".png"}))
    assert seen(tree) == ["5", "1", "3", "4"]
    assert seen(tree) == ["3"]
    broken = False
    assert seen(tree) == ["2", "3"]
    assert seen(tree) == []


def test_a_root_that_vanishes_is_named_and_what_comes_back_is_found(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(looking, "SURE_SECONDS", 0.0)
    tree, away = Tree(str(root), frozenset({".png"})), root.with_name("away")
    assert len(seen(tree)) == 5
    root.rename(away)  # a drive that is not mounted
    assert [seen(tree), seen(tree)] == [[], []]
    assert caplog.text.count(f"cannot look into {root}") == 1
    away.rename(root)
    assert len(seen(tree)) == 5


def test_folders_nested_deeper_than_function_calls_are_looked_into(root: Path, few_calls: int) -> None:
    deep = root / "b"
    deep.mkdir()
    for _ in range(2 * few_calls):
        deep /= "d"
        deep.mkdir()
    (deep / "6.png").touch()
    tree = Tree(str(root), frozenset({".png"}))
    assert seen(tree) == ["5", "1", "2", "3", "6", "4"]
    assert seen(tree) == ["5", "1", "2", "3", "6", "4"]  # their times are young
