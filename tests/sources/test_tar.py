"""Tar shards."""

from __future__ import annotations

import errno
import gzip
import io
import os
import struct
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import IO

import numpy as np
import pytest
from PIL import Image

from climb.errors import InputError
from climb.images.decode import ImageError
from climb.sources import Item, Options, PassedOver, in_memory, open_source, tar, watch
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


def test_hidden_files_of_a_shard_are_skipped(tmp_path: Path) -> None:
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


def test_a_growing_shard_keeps_its_identities(tmp_path: Path) -> None:
    known: set[int] = set()

    class Known(Everything):
        def __call__(self, identity: int) -> bool:
            new = identity not in known
            known.add(identity)
            return new

    def names(source: str) -> list[str]:
        arrivals = open_source(source, image_size=16).arrivals(seen=Known())
        return [arrival.where.rpartition("#")[2] for arrival in arrivals if arrival is not None]

    shard = write_shard(tmp_path / "s.tar", {f"{i}.png": picture(i) for i in range(3)})
    assert names(str(shard)) == ["0.png", "1.png", "2.png"]
    write_shard(shard, {"3.png": picture(3)}, mode="a")
    assert names(str(shard)) == ["3.png"]
    os.utime(shard, (1, 1))
    assert names(str(shard)) == []
    assert len(picture(9)) == len(picture(0))  # equal in size and time
    write_shard(shard, {"0.png": picture(9), "1.png": picture(1)})  # a different shard of the same name
    assert names(str(shard)) == ["0.png"]


def test_no_shard_by_that_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tar shard matches"):
        open_source(f"{tmp_path}/*.tar", image_size=16)


def test_a_range_in_braces_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", {"a.png": picture(0)})
    with pytest.raises(InputError, match=r"no tar shard matches '.*\{0\.\.9\}\.tar' \(only \* and \? are wildcards"):
        open_source(tmp_path / "{0..9}.tar", image_size=16)


def test_a_watched_shard_is_read_once_its_writer_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that is read while it grows would yield its images twice."""
    monkeypatch.setattr(watch, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    written = write_shard(tmp_path / "whole", {f"{i}.png": picture(i) for i in range(3)}).read_bytes()
    (tmp_path / "a.tar").write_bytes(written[:4096])  # a slow writer
    source = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True)
    seen: list[str] = []
    arrivals = source.arrivals(patience=0.3)
    assert next(arrivals) is None
    (tmp_path / "a.tar").write_bytes(written)
    while len(seen) < 3:
        arrival = next(arrivals)
        if arrival is not None:
            seen.append(arrival.where.rpartition("#")[2])
    assert next(arrivals) is None  # no image arrives twice
    arrivals.close()
    assert seen == ["0.png", "1.png", "2.png"]
    assert not source.passed_over


def test_an_abandoned_shard_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watch, "SETTLED_SECONDS", 0.05)
    monkeypatch.setattr(tar, "ABANDONED_SECONDS", 0.4)
    shard = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(3)})
    shard.write_bytes(shard.read_bytes()[:4096])
    os.utime(shard, (1, 1))  # the writer's clock does not count
    began = time.monotonic()
    arrivals = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True).arrivals()
    found = [next(arrivals) for _ in range(3)]
    assert time.monotonic() - began >= 0.35
    arrivals.close()
    assert [type(arrival) for arrival in found] == [Item, Item, PassedOver]


def test_a_shard_of_a_slow_writer_with_a_late_clock_is_read_once(
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


def test_a_read_error_within_a_shard_loses_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_shard_replaced_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(3)})
    found = read_shards(str(path), Options(image_size=16))(Everything(), Event())
    assert next(found).where.endswith("#0.png")
    with open(path, "r+b") as handle:
        handle.write(handle.read())
    os.utime(path, (1, 1))
    with pytest.raises(ImageError, match="has changed since it was found") as raised:
        next(found).load()
    assert raised.value.reason == "unreadable"


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_damage_in_a_compressed_shard_is_corruption(tmp_path: Path, mode: str) -> None:
    path = write_shard(tmp_path / f"a.tar.{mode[2:]}", {f"{i}.png": picture(i) for i in range(40)}, mode)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    path.write_bytes(data)
    passed = [a for a in open_source(path, image_size=16).arrivals() if isinstance(a, PassedOver)]
    assert passed[-1].reason == "corrupt"
    assert passed[-1].where == str(path)


def header(name: str, size: int, kind: bytes) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


LARGE = 50_000_000
SPARSE = struct.pack(">12s12s", b"00000000001\0", b"00000000001\0") * 21 + b"\1" + bytes(7)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(lambda: header("x", LARGE, tarfile.GNUTYPE_LONGNAME) + bytes(LARGE), id="name"),
        pytest.param(lambda: header("x", LARGE, tarfile.GNUTYPE_LONGLINK) + bytes(LARGE), id="link"),
        pytest.param(lambda: header("x", LARGE, tarfile.XHDTYPE) + b"9 a=bcde\n" * (LARGE // 9 + 60), id="records"),
        pytest.param(lambda: header("x", LARGE, tarfile.XGLTYPE) + bytes(LARGE), id="global-records"),
        pytest.param(lambda: header("x", 2**40, tarfile.GNUTYPE_LONGNAME), id="terabyte"),
        pytest.param(lambda: header("x", 0, tarfile.GNUTYPE_LONGNAME) * 2_000, id="chain"),
        pytest.param(
            lambda: header("x", 0, tarfile.GNUTYPE_SPARSE)[:482] + b"\1" + bytes(29) + SPARSE * 20_000, id="sparse"
        ),
    ],
)
def test_headers_are_read_up_to_a_bound(tmp_path: Path, mode: str, claim: Callable[[], bytes]) -> None:
    path = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(3)})
    whole = path.read_bytes()
    content = whole[: 3 * 1536] + with_checksum(claim()) + whole
    opener = gzip.open if mode == "w:gz" else open
    with opener(path, "wb") as file:
        file.write(content)
    source = open_source(path, image_size=8)
    tracemalloc.start()
    try:
        arrivals = list(source.arrivals())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
    assert [type(arrival) for arrival in arrivals] == [Item, Item, Item, PassedOver]
    assert isinstance(arrivals[3], PassedOver)
    assert arrivals[3].detail.startswith("the shard breaks off")
    assert source.passed_over == {"corrupt": 1}


def with_checksum(block: bytes) -> bytes:
    """Headers that were changed after they were made need a new checksum."""
    plain = block[:148] + b" " * 8 + block[156:512]
    if block[156:157] != tarfile.GNUTYPE_SPARSE:
        return block
    return plain[:148] + f"{sum(plain):06o}\0 ".encode() + block[156:]


def test_global_records_do_not_add_up(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as shard:
        for number in range(100):
            member = tarfile.TarInfo(f"{number}.png")
            member.size = len(picture(0))
            records = tarfile.TarInfo.create_pax_global_header({f"key{number}": "x" * 60_000})
            assert shard.fileobj is not None
            shard.fileobj.write(records)
            shard.offset += len(records)
            shard.addfile(member, io.BytesIO(picture(0)))
    arrivals = list(open_source(path, image_size=8).arrivals())
    assert [type(arrival) for arrival in arrivals] == [Item] * 17 + [PassedOver]


def test_a_name_of_usual_length_is_read(tmp_path: Path) -> None:
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        name = "/".join(["folder" * 20] * 30) + "/a.png"
        with tarfile.open(tmp_path / "a.tar", "w", format=kind) as shard:
            member = tarfile.TarInfo(name)
            member.size = len(picture(0))
            shard.addfile(member, io.BytesIO(picture(0)))
        assert [item.where for item in open_source(tmp_path / "a.tar", image_size=8)] == [f"{tmp_path}/a.tar#{name}"]


def test_a_damaged_shard_is_counted_once(tmp_path: Path) -> None:
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

    assert list(source.arrivals(seen=Remembers())) == []


def test_large_members_are_decoded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "LARGE_BYTES", 500)
    content = {"large.png": picture(0), "small.png": picture(1)[:400], "bad.png": b"no image" * 200}
    path = write_shard(tmp_path / "a.tar", content)
    found = list(read_shards(str(path), Options(image_size=8))(Everything(), Event()))
    held = [pending.load.args[0] if isinstance(pending.load, partial) else None for pending in found]
    assert held == [None, content["small.png"], None]
    assert found[0].load().shape == (3, 8, 8)
    with pytest.raises(ImageError, match="no decoder knows"):
        found[2].load()


def test_a_shard_matched_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    path = write_shard(tmp_path / "a" / "b" / "s.tar", {"0.png": picture(0)})
    assert [item.where for item in open_source(f"{tmp_path}/**/**/*.tar", image_size=8)] == [f"{path}#0.png"]


def test_reading_stops_within_a_shard_of_seen_images(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / f"{name}.tar", {f"{i}.png": picture(i) for i in range(4)})
    stop, asked = Event(), list[int]()

    class Known(Everything):
        def __call__(self, identity: int, /) -> bool:
            asked.append(identity)
            stop.set()
            return False

    assert list(read_shards(f"{tmp_path}/*.tar", Options(image_size=8))(Known(), stop)) == []
    assert len(asked) == 1
