"""Tar shards."""

from __future__ import annotations

import errno
import io
import os
import tarfile
import time
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import IO

import numpy as np
import pytest
from PIL import Image

from climb.errors import InputError
from climb.sources import Item, PassedOver, at_hand, open_source, tar, watch
from climb.sources.item import Unusable
from climb.sources.source import Everything
from climb.sources.tar import read_shards


def write_shard(path: Path, pictures: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as shard:  # type: ignore[call-overload]
        for name, data in pictures.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    return path


def picture(seed: int, kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, format=kind)
    return content.getvalue()


@pytest.mark.parametrize(("suffix", "mode"), [("tar", "w"), ("tar.gz", "w:gz"), ("tgz", "w:gz"), ("tar.xz", "w:xz")])
def test_images_of_a_shard_in_its_order(tmp_path: Path, suffix: str, mode: str) -> None:
    pictures = {"b.png": picture(0), "b.json": b"{}", "a/1.jpg": picture(1, "JPEG"), "a/1.cls": b"3"}
    pictures["b.PPM"] = picture(2, "PPM")
    path = write_shard(tmp_path / f"s.{suffix}", pictures, mode)
    source = open_source(str(path), image_size=16)
    assert [item.where for item in source] == [f"{path}#{name}" for name in ("b.png", "a/1.jpg", "b.PPM")]
    assert source.rereadable


def test_hidden_files_of_a_shard_are_left_alone_as_those_of_a_folder_are(tmp_path: Path) -> None:
    pictures = {"./a.png": picture(0), "./._a.png": b"what macOS adds", ".cache/b.png": picture(1)}
    source = open_source(write_shard(tmp_path / "s.tar", pictures), image_size=16)
    assert [item.where for item in source] == [f"{tmp_path / 's.tar'}#./a.png"]
    assert not source.passed_over


def test_a_pattern_of_shards_and_two_members_of_one_name(tmp_path: Path) -> None:
    for number in range(3):
        write_shard(tmp_path / f"s-{number}.tar", {f"{i}.png": picture(i) for i in range(4)})
    (tmp_path / "s-3.tar").symlink_to(tmp_path / "s-0.tar")  # another name, another shard
    with tarfile.open(tmp_path / "s-0.tar", "a") as shard:
        member = tarfile.TarInfo("0.png")
        member.size = len(picture(9))
        shard.addfile(member, io.BytesIO(picture(9)))
    found = list(open_source(f"{tmp_path}/s-*.tar", image_size=16))
    assert len(found) == 5 + 4 + 4 + 5
    assert len({item.identity for item in found}) == 18


@pytest.mark.parametrize("cut", [4820, 5700, 5200], ids=["in a header", "in an image", "before an image"])
def test_a_shard_that_breaks_off_does_not_stop_the_next(tmp_path: Path, cut: int) -> None:
    whole = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(6)})
    whole.write_bytes(whole.read_bytes()[:cut])
    (tmp_path / "b.tar").write_bytes(b"no tar file")
    write_shard(tmp_path / "c.tar", {"last.png": picture(7), "bad.png": b"no image"})
    source = open_source(f"{tmp_path}/*.tar", image_size=16)
    arrivals = list(source.arrivals())
    images = [a.where for a in arrivals if isinstance(a, Item)]
    assert images[0] == f"{tmp_path}/a.tar#0.png"
    assert images[-1] == f"{tmp_path}/c.tar#last.png"
    passed = [(Path(a.where).name, a.reason) for a in arrivals if isinstance(a, PassedOver)]
    assert ("b.tar", "corrupt") in passed
    assert ("c.tar#bad.png", "not an image") in passed
    assert any(name.startswith("a.tar") for name, _ in passed)


def test_a_shard_that_others_are_added_to_keeps_those_that_are_known(tmp_path: Path) -> None:
    known: set[int] = set()

    class Known(Everything):
        def __call__(self, identity: int) -> bool:
            new = identity not in known
            known.add(identity)
            return new

    def names(source: str) -> list[str]:
        arrivals = open_source(source, image_size=16).arrivals(claim=Known())
        return [arrival.where.rpartition("#")[2] for arrival in arrivals if arrival is not None]

    shard = write_shard(tmp_path / "s.tar", {f"{i}.png": picture(i) for i in range(3)})
    assert names(str(shard)) == ["0.png", "1.png", "2.png"]
    write_shard(shard, {"3.png": picture(3)}, mode="a")
    assert names(str(shard)) == ["3.png"]
    os.utime(shard, (1, 1))
    assert names(str(shard)) == []
    assert len(picture(9)) == len(picture(0))  # by size and time it would be the same
    write_shard(shard, {"0.png": picture(9), "1.png": picture(1)})  # another shard by that name
    assert names(str(shard)) == ["0.png"]


def test_no_shard_by_that_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tar shard matches"):
        open_source(f"{tmp_path}/*.tar", image_size=16)


def test_a_range_in_braces_is_refused_with_what_to_type(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.png": picture(0)})
    with pytest.raises(InputError, match=r"no tar shard matches '.*\{0\.\.9\}\.tar' \(\* and \? stand for"):
        open_source(tmp_path / "{0..9}.tar", image_size=16)


def test_a_watched_shard_is_read_once_its_writer_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read while it grows, it would be another shard afterwards, and all its images would come a second time."""
    monkeypatch.setattr(watch, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    written = write_shard(tmp_path / "whole", {f"{i}.png": picture(i) for i in range(3)}).read_bytes()
    (tmp_path / "a.tar").write_bytes(written[:4096])  # a writer that takes its time
    source = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True)
    seen: list[str] = []
    arrivals = source.arrivals(patience=0.3)
    assert next(arrivals) is None
    (tmp_path / "a.tar").write_bytes(written)
    while len(seen) < 3:
        arrival = next(arrivals)
        if arrival is not None:
            seen.append(arrival.where.rpartition("#")[2])
    assert next(arrivals) is None  # none of them a second time
    arrivals.close()
    assert seen == ["0.png", "1.png", "2.png"]
    assert not source.passed_over


def test_a_watched_shard_that_was_given_up_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "SETTLED_SECONDS", 0.05)
    monkeypatch.setattr(tar, "ABANDONED_SECONDS", 0.4)
    shard = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(3)})
    shard.write_bytes(shard.read_bytes()[:4096])
    os.utime(shard, (1, 1))  # what its writer's clock says does not count
    began = time.monotonic()
    arrivals = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True).arrivals()
    found = [next(arrivals) for _ in range(3)]
    assert time.monotonic() - began >= 0.35
    arrivals.close()
    assert [type(arrival) for arrival in found] == [Item, Item, PassedOver]


def test_a_watched_shard_of_a_slow_writer_whose_clock_is_behind_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "SETTLED_SECONDS", 0.05)
    written = write_shard(tmp_path / "whole", {f"{i}.png": picture(i) for i in range(6)}).read_bytes()
    growing = tmp_path / "a.tar"

    def write() -> None:
        with open(growing, "wb") as handle:
            for place in range(0, len(written), 2048):
                handle.write(written[place : place + 2048])
                handle.flush()
                os.utime(growing, (time.time() - 3600,) * 2)
                time.sleep(0.15)

    writer = Thread(target=write)
    source = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True)
    arrivals = source.arrivals(patience=0.5)
    assert next(arrivals) is None
    writer.start()
    found: list[Item | PassedOver] = []
    while writer.is_alive() or len(found) < 6:
        arrival = next(arrivals)
        if arrival is not None:
            found.append(arrival)
    assert next(arrivals) is None
    arrivals.close()
    assert [type(arrival) for arrival in found] == [Item] * 6


def test_a_drive_that_fails_in_the_middle_of_a_shard_costs_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "SETTLED_SECONDS", 0.05)
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.1)
    write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(6)})
    extract, calls = tarfile.TarFile.extractfile, []

    def flaky(shard: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes] | None:
        calls.append(member.name)
        if len(calls) in (3, 4):  # twice at the same image
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return extract(shard, member)

    monkeypatch.setattr(tarfile.TarFile, "extractfile", flaky)
    source = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True)
    arrivals = source.arrivals(patience=5)
    found: list[str] = []
    while len(found) < 6:
        arrival = next(arrivals)
        if isinstance(arrival, Item):
            found.append(arrival.where.rpartition("#")[2])
    arrivals.close()
    assert found == [f"{i}.png" for i in range(6)]
    assert source.passed_over == {"unreadable": 1}


def test_a_shard_replaced_while_it_is_read_is_not_taken_for_the_one_that_was_found(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(3)})
    found = read_shards(str(path), image_size=16, watch=False)(Everything(), Event())
    assert next(found).where.endswith("#0.png")
    with open(path, "r+b") as handle:
        handle.write(handle.read())
    os.utime(path, (1, 1))
    with pytest.raises(Unusable, match="not what was found") as raised:
        next(found).load()
    assert raised.value.reason == "unreadable"


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_damage_within_a_compressed_shard_is_no_fault_of_the_drive(tmp_path: Path, mode: str) -> None:
    path = write_shard(tmp_path / f"a.tar.{mode[2:]}", {f"{i}.png": picture(i) for i in range(40)}, mode)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    path.write_bytes(data)
    passed = [a for a in open_source(path, image_size=16).arrivals() if isinstance(a, PassedOver)]
    assert passed[-1].reason == "corrupt"
    assert passed[-1].where == str(path)


def test_a_shard_that_breaks_off_is_counted_once_by_those_who_remember(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(6)})
    path.write_bytes(path.read_bytes()[:4820])
    source = open_source(path, image_size=16)
    arrivals = list(source.arrivals())
    known = {arrival.identity for arrival in arrivals if arrival is not None}
    assert isinstance(arrivals[-1], PassedOver)
    assert None not in known

    class Remembers(Everything):
        def __call__(self, identity: int, /) -> bool:
            return identity not in known

    assert list(source.arrivals(claim=Remembers())) == []


def test_large_images_are_not_kept_as_bytes_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_hand, "LARGE", 500)
    content = {"large.png": picture(0), "small.png": picture(1)[:400], "bad.png": b"no image" * 200}
    path = write_shard(tmp_path / "a.tar", content)
    found = list(read_shards(str(path), image_size=8, watch=False)(Everything(), Event()))
    held = [pending.load.args[0] if isinstance(pending.load, partial) else None for pending in found]
    assert held == [None, content["small.png"], None]
    assert found[0].load().shape == (3, 8, 8)
    with pytest.raises(Unusable, match="no decoder knows"):
        found[2].load()


def test_a_shard_that_a_pattern_names_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    path = write_shard(tmp_path / "a" / "b" / "s.tar", {"0.png": picture(0)})
    assert [item.where for item in open_source(f"{tmp_path}/**/**/*.tar", image_size=8)] == [f"{path}#0.png"]


def test_reading_ends_when_asked_to_even_if_every_image_is_known(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / f"{name}.tar", {f"{i}.png": picture(i) for i in range(4)})
    stop, asked = Event(), list[int]()

    class Known(Everything):
        def __call__(self, identity: int, /) -> bool:
            asked.append(identity)
            stop.set()
            return False

    assert list(read_shards(f"{tmp_path}/*.tar", image_size=8, watch=False)(Known(), stop)) == []
    assert len(asked) == 1
