"""Files are complete or absent, even if the writer fails. Locks, and the files below a folder."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from climb import files
from climb.errors import ClimbError, InputError
from climb.files import (
    exclusive,
    files_below,
    is_held,
    leftovers,
    naming,
    only_one,
    write_atomic,
    write_json,
    write_text,
)


def test_text_and_json_arrive_as_given(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "grüße\n")
    assert (tmp_path / "a" / "b.txt").read_text(encoding="utf-8") == "grüße\n"
    data = {"number": 1.5, "none": None, "list": ["é", 2], "true": True}
    write_json(tmp_path / "data.json", data)
    assert json.loads((tmp_path / "data.json").read_text(encoding="utf-8")) == data


def test_a_name_that_is_not_utf8_can_be_written_and_opens_again(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    name = os.fsdecode(os.fsencode(tmp_path / "there") + b"/caf\xe9")
    Path(name).touch()
    write_json(tmp_path / "data.json", {"folder": name})
    assert Path(json.loads((tmp_path / "data.json").read_text(encoding="utf-8"))["folder"]).is_file()
    write_text(tmp_path / "page.html", f"<p>{Path(name).name}</p>")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == r"<p>caf\udce9</p>"


def test_a_name_may_be_as_long_as_names_can_be(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 125 + ".txt")  # 254 bytes
    write_text(path, "a")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_bad_input(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file can have this name"):
        write_text(tmp_path / name, "text")


def test_a_new_folder_survives_a_power_cut_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = list[Path](), files.sync_folder
    monkeypatch.setattr(files, "sync_folder", lambda folder: (synced.append(folder), sync(folder)))
    write_text(tmp_path / "checkpoint" / "state", "1")
    write_text(tmp_path / "checkpoint" / "state", "2")
    assert synced == [tmp_path, tmp_path / "checkpoint", tmp_path / "checkpoint"]


def test_others_may_read_what_the_folder_lets_them(tmp_path: Path) -> None:
    def keeps_to_itself(temporary: Path) -> None:
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY, 0o600))

    (tmp_path / "plain").touch()
    write_atomic(tmp_path / "state", keeps_to_itself)
    assert (tmp_path / "state").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_name_is_synced_after_the_file_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut cannot be tested, so this checks the system calls."""
    fsync, asked = os.fsync, list[tuple[bool, bool]]()

    def noted(descriptor: int) -> None:
        asked.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "state").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    write_text(tmp_path / "state", "whole")
    assert asked == [(False, False), (True, True)]


def test_a_writer_that_fails_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_text(path, "old")

    def fails_midway(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(ClimbError, match="disk full"):
        write_atomic(path, fails_midway)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_killed_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_text(path, "old")
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from climb.files import files_below, naming, write_atomic\n"
        "def write(temporary):\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"write_atomic(Path({str(path)!r}), write)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code], env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"


def test_folders_may_be_nested_deeper_than_the_recursion_limit(tmp_path: Path, few_calls: int) -> None:
    deep = tmp_path
    for _ in range(2 * few_calls):
        deep /= "d"
        deep.mkdir()
    for file in (tmp_path / "top", tmp_path / ".hidden" / "x", tmp_path / "a" / ".y", deep / "z"):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert sorted(path.name for path in files_below(tmp_path)) == [".y", "loop", "top", "z"]
    assert list(files_below(tmp_path / "top")) == list(files_below(tmp_path / "nowhere")) == []


def test_an_error_of_the_drive_names_the_file_unless_it_does_already(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"left on device: '.*journal\.jsonl'"), naming(tmp_path / "journal.jsonl"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match=r"'.*other'$"), naming(tmp_path / "journal.jsonl"):
        (tmp_path / "other").read_bytes()


def test_an_error_that_is_not_of_the_drive_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"^not an image$") as raised, naming(tmp_path / "journal.jsonl"):
        raise OSError("not an image")
    assert raised.value.filename is None


def test_an_unreadable_folder_is_logged_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "closed", "gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    scandir = os.scandir

    def watched(folder: str) -> Any:
        for name, number in (("closed", errno.EACCES), ("gone", errno.ENOENT)):
            if folder == str(tmp_path / name):
                raise OSError(number, os.strerror(number), folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", watched)
    with caplog.at_level(logging.WARNING, logger="climb.files"):
        assert [path.name for path in files_below(tmp_path)] == ["a"]
    assert [record.getMessage() for record in caplog.records] == [
        f"cannot read folder {tmp_path / 'closed'}: Permission denied; its files are skipped"
    ]


def test_leftovers_are_found_for_names_with_special_characters(tmp_path: Path) -> None:
    for name in (".a[1].json.1a.tmp", ".a1.json.2b.tmp", ".other.json.3c.tmp"):
        (tmp_path / name).touch()
    assert leftovers(tmp_path / "a[1].json") == [tmp_path / ".a[1].json.1a.tmp"]


def test_json_that_others_could_not_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "data.json", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_the_others_wait_for_their_turn(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with only_one(tmp_path / "lock"):
            order.append("second")

    with only_one(tmp_path / "lock"):
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.2)
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_a_held_lock_is_detected_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    assert not lock.exists()  # to look leaves nothing
    with only_one(lock):
        assert is_held(lock)
    assert not is_held(lock)

    def refused(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    assert not is_held(lock)


def test_other_processes_get_an_error_with_the_process_id(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path / "lock"),
        pytest.raises(InputError, match=rf"another process \(id {os.getpid()}\) is using"),
        exclusive(tmp_path / "lock"),
    ):
        pass
    with exclusive(tmp_path / "lock"):  # the first has let go of it
        pass


def test_a_drive_without_locks_is_not_taken_for_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(ClimbError, match="lock: No locks available"), exclusive(tmp_path / "lock"):
        pass


def test_on_a_full_disk_the_lock_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ClimbError, match=r"cannot write .*lock: No space left on device"), exclusive(tmp_path / "lock"):
        pass
