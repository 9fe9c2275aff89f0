"""Finding image files, scan after scan."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.images import find
from climb.images.find import FolderScanner

Touch = Callable[[Path], Path]


@pytest.fixture
def touch() -> Touch:
    """``touch(file)`` writes an empty file, with its folders."""

    def write(file: Path) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        return file

    return write


@pytest.fixture
def root(touch: Touch, tmp_path: Path) -> Path:
    for name in ("a/1.png", "a/b/2.png", "a/b/3.png", "c/4.png", "5.png"):
        touch(tmp_path / name)
    for folder in ("a/b", "a", "c", "."):  # long ago, so that the next change shows on a coarse clock
        os.utime(tmp_path / folder, (1e9, 1e9))
    return tmp_path


def seen(scanner: FolderScanner, full: bool = False) -> list[str]:
    return [Path(path).stem for path, _ in scanner.scan(full)]


def test_a_quick_scan_lists_only_changed_folders(root: Path, touch: Touch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "COARSE_CLOCK_SECONDS", 0.0)
    scanner = FolderScanner(str(root))
    assert seen(scanner) == ["5", "1", "2", "3", "4"]
    assert seen(scanner) == []
    touch(root / "a" / "b" / "6.png")  # added
    assert seen(scanner) == ["2", "3", "6"]
    os.replace(touch(root / "c" / ".part.png"), root / "c" / "4.png")  # replaced
    assert seen(scanner) == ["4"]
    touch(root / "a" / "new" / "deep" / "7.png")
    assert seen(scanner) == ["1", "7"]
    assert seen(scanner) == []
    (root / "a" / "b" / "2.png").write_bytes(b"written in place")
    assert seen(scanner) == []
    assert seen(scanner, full=True) == ["5", "1", "2", "3", "6", "7", "4"]
    assert seen(scanner) == []


def test_a_folder_with_a_recent_time_is_scanned_again(root: Path, touch: Touch) -> None:
    """Two changes within one step of a coarse clock leave one time."""
    scanner = FolderScanner(str(root))
    before = os.stat(root / "c").st_mtime_ns
    assert len(seen(scanner)) == 5
    touch(root / "c" / "6.png")
    os.utime(root / "c", ns=(before, before))
    assert "6" in seen(scanner)


def test_a_scan_after_an_unfinished_one_skips_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "COARSE_CLOCK_SECONDS", 0.0)
    scanner = FolderScanner(str(root))
    scan = scanner.scan(False)
    assert [Path(next(scan)[0]).stem for _ in range(3)] == ["5", "1", "2"]
    scan.close()
    assert seen(scanner) == ["5", "1", "2", "3", "4"]


def test_a_file_whose_status_is_unreadable_is_retried(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "COARSE_CLOCK_SECONDS", 0.0)
    stat, broken = os.stat, True

    def flaky(path: Any, **options: Any) -> os.stat_result:
        if broken and str(path).endswith("2.png"):
            raise OSError(5, "Input/output error", path)
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", flaky)
    scanner = FolderScanner(str(root))
    assert seen(scanner) == ["5", "1", "3", "4"]
    assert seen(scanner) == ["3"]
    broken = False
    assert seen(scanner) == ["2", "3"]
    assert seen(scanner) == []


def test_a_root_that_vanishes_is_logged_and_found_when_it_returns(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(find, "COARSE_CLOCK_SECONDS", 0.0)
    scanner, away = FolderScanner(str(root)), root.with_name("away")
    assert len(seen(scanner)) == 5
    root.rename(away)  # an unmounted drive
    assert [seen(scanner), seen(scanner)] == [[], []]
    assert caplog.text.count(f"cannot list {root}") == 1
    away.rename(root)
    assert len(seen(scanner)) == 5


def test_deeply_nested_folders_are_scanned(root: Path, few_calls: int) -> None:
    deep = root / "b"
    deep.mkdir()
    for _ in range(2 * few_calls):
        deep /= "d"
        deep.mkdir()
    (deep / "6.png").touch()
    scanner = FolderScanner(str(root))
    assert seen(scanner) == ["5", "1", "2", "3", "6", "4"]
    assert seen(scanner) == ["5", "1", "2", "3", "6", "4"]  # their modification times are recent
