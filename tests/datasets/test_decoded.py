from __future__ import annotations

import logging
import os
import shutil
import struct
import threading
import zlib
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from climb.datasets import decode_cache as module
from climb.datasets.decode_cache import decode_files
from climb.errors import ClimbError
from climb.images.convert import center_square, squash, to_array
from climb.images.tensors import Decoder


def images(folder: Path, count: int) -> list[Path]:
    files = [folder / f"{i}.png" for i in range(count)]
    for i, file in enumerate(files):
        Image.new("RGB", (8, 8), (i, i, i)).save(file)
    return files


def levels(rows: torch.Tensor) -> list[int]:
    return rows[:, 0, 0, 0].tolist()


def test_rows_follow_the_files_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 4)
    rows, unreadable = decode_files(images(tmp_path, 11), 8, squash)
    assert levels(rows) == list(range(11))
    assert rows.dtype == torch.uint8
    assert unreadable == []


def test_the_second_time_nothing_is_decoded(tmp_path: Path, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="climb.datasets")
    files = images(tmp_path, 3)
    first, _ = decode_files(files, 8, squash)
    assert "decoded 3 of 3 images to 8 px" in caplog.text
    caplog.clear()
    assert torch.equal(decode_files(files, 8, squash)[0], first)
    assert caplog.text == ""
    assert len(list((cache / "decoded").iterdir())) == 1


def test_a_changed_file_or_size_is_decoded_again(tmp_path: Path) -> None:
    files = images(tmp_path, 3)
    assert levels(decode_files(files, 8, squash)[0]) == [0, 1, 2]
    Image.new("RGB", (8, 8), (9, 9, 9)).save(files[1])
    status = files[1].stat()
    os.utime(files[1], ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000))
    assert levels(decode_files(files, 8, squash)[0]) == [0, 9, 2]
    assert decode_files(files, 12, squash)[0].shape == (3, 3, 12, 12)
    assert levels(decode_files(files[::-1], 8, squash)[0]) == [2, 9, 0]


def test_another_square_is_decoded_anew(tmp_path: Path) -> None:
    Image.radial_gradient("L").resize((60, 20)).save(tmp_path / "a.png")
    whole, part = (decode_files([tmp_path / "a.png"], 8, square)[0] for square in (squash, center_square))
    assert whole[0, 0, 4].float().std() > part[0, 0, 4].float().std()  # only the squashed image contains the dark ends


def test_a_labelled_folder_decodes_a_large_photograph_as_a_source_does(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (600, 800, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.jpg")
    (row,), _ = decode_files([tmp_path / "a.jpg"], 32, center_square)
    assert torch.equal(row, Decoder(image_size=32).file(str(tmp_path / "a.jpg")))
    with Image.open(tmp_path / "a.jpg") as image:
        image.draft(None, (64, 64))
        assert image.size == (100, 75)  # an eighth, so both decoded far fewer pixels
        np.testing.assert_array_equal(row.numpy(), to_array(center_square(image, 32)))


def test_a_file_that_takes_gigabytes_is_left_out(tmp_path: Path) -> None:
    files = images(tmp_path, 2)
    pixels = zlib.compress(bytes(178_000_000))
    header = struct.pack(">IIBBBBB", 1, 89_000_000, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", pixels), (b"IEND", b"")]
    parts = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    files[1].write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    assert decode_files(files, 8, center_square)[1] == [1]


def test_writing_to_the_images_does_not_reach_the_cache(tmp_path: Path) -> None:
    files = images(tmp_path, 3)
    decode_files(files, 8, squash)[0].fill_(255)
    assert levels(decode_files(files, 8, squash)[0]) == [0, 1, 2]


@pytest.mark.parametrize("times", [1, 2])
def test_unreadable_files_are_reported_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    files = images(tmp_path, 5)
    files[1].write_bytes(b"not an image")
    whole = tmp_path / "3.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(whole)
    files[3] = tmp_path / "cut.jpg"
    files[3].write_bytes(whole.read_bytes()[:-500])
    for _ in range(times):
        caplog.clear()
        rows, unreadable = decode_files(files, 8, squash)
    assert unreadable == [1, 3]
    assert levels(rows) == [0, 2, 4]
    reported = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [str(files[1]) in reported[0], str(files[3]) in reported[1]] == [True, True]


def test_drafts_of_killed_processes_are_removed(tmp_path: Path, cache: Path) -> None:
    files = images(tmp_path, 3)
    decode_files(files, 8, squash)
    (folder,) = (cache / "decoded").iterdir()
    for left in (f".{folder.name}.ab12cd", f".{folder.name}"):
        shutil.copytree(folder, folder.with_name(left))
    shutil.rmtree(folder)
    assert levels(decode_files(files, 8, squash)[0]) == [0, 1, 2]
    assert list((cache / "decoded").iterdir()) == [folder]


def test_simultaneous_runs_decode_once_and_leave_nothing_behind(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = images(tmp_path, 20)
    decoded: list[str] = []
    file = Decoder.file
    monkeypatch.setattr(Decoder, "file", lambda decoder, path: (decoded.append(path), file(decoder, path))[1])
    found: list[list[int]] = []
    start = threading.Barrier(4)

    def run() -> None:
        start.wait()
        found.append(levels(decode_files(files, 8, squash)[0]))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [list(range(20))] * 4
    assert sorted(decoded) == sorted(map(str, files))
    assert len(list((cache / "decoded").iterdir())) == 1


def test_no_files() -> None:
    assert decode_files([], 16, squash)[0].shape == (0, 3, 16, 16)


def test_a_full_disk_is_reported_before_decoding(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: usage(100, 100, 0))
    with pytest.raises(ClimbError, match=r"GiB in .* but 0\.0 GiB are free; set CLIMB_CACHE"):
        decode_files(images(tmp_path, 2), 8, squash)
    assert list((cache / "decoded").iterdir()) == []


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = images(tmp_path, 1)
    monkeypatch.setenv("CLIMB_CACHE", str(files[0]))
    with pytest.raises(ClimbError, match=r"cannot make the folder .*: Not a directory; set CLIMB_CACHE"):
        decode_files(files, 8, squash)
