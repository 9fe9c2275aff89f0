"""Tar shards."""

from __future__ import annotations

import io
import os
import tarfile
import time
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from PIL import Image

from climb.errors import InputError
from climb.sources import Item, PassedOver, at_hand, open_source, watch
from climb.sources.item import Unusable
from climb.sources.tar import ABANDONED_SECONDS, read_shards


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


def test_no_shard_by_that_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tar shard matches"):
        open_source(f"{tmp_path}/*.tar", image_size=16)


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
    for arrival in arrivals:
        if arrival is None:
            break
        seen.append(arrival.where.rpartition("#")[2])
    arrivals.close()
    assert seen == ["0.png", "1.png", "2.png"]
    assert not source.passed_over


def test_a_watched_shard_that_was_given_up_is_read_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    shard = write_shard(tmp_path / "a.tar", {f"{i}.png": picture(i) for i in range(3)})
    shard.write_bytes(shard.read_bytes()[:4096])
    os.utime(shard, (time.time() - 2 * ABANDONED_SECONDS,) * 2)
    arrivals = open_source(f"{tmp_path}/*.tar", image_size=16, watch=True).arrivals(patience=0.3)
    found = [next(arrivals) for _ in range(3)]
    arrivals.close()
    assert [type(arrival) for arrival in found] == [Item, Item, PassedOver]


def test_large_images_are_not_kept_as_bytes_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_hand, "LARGE", 500)
    content = {"large.png": picture(0), "small.png": picture(1)[:400], "bad.png": b"no image" * 200}
    path = write_shard(tmp_path / "a.tar", content)
    found = list(read_shards(str(path), image_size=8, watch=False)(lambda identity: True, Event()))
    held = [pending.load.args[0] if isinstance(pending.load, partial) else None for pending in found]
    assert held == [None, content["small.png"], None]
    assert found[0].load().shape == (3, 8, 8)
    with pytest.raises(Unusable, match="no decoder knows"):
        found[2].load()
