"""Python iterables, and invalid addresses."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb.errors import InputError
from climb.sources import Item, Options, PassedOver, in_memory, open_source
from climb.sources.in_memory import read_iterable
from climb.sources.source import Everything

Draw = Callable[..., Path]


def test_pictures_arrays_tensors_paths_and_bytes(draw: Draw, tmp_path: Path) -> None:
    file = draw(tmp_path / "a.png")
    array = np.asarray(Image.open(file))
    given = [
        file, str(file), file.read_bytes(), Image.open(file), array, array.transpose(2, 0, 1),
        torch.from_numpy(array.copy()),
    ]  # fmt: skip
    found = list(open_source(given, image_size=16))
    expected = torch.from_numpy(array.transpose(2, 0, 1).copy())
    assert len(found) == len(given)
    assert all(torch.equal(item.image, expected) for item in found)
    assert [item.identity is None for item in found] == [False, False, True, True, True, True, True]
    grey = list(open_source([array[:, :, 0], array[:, :, :1]], image_size=16))
    assert torch.equal(grey[0].image, grey[1].image)
    assert torch.equal(grey[0].image[2], expected[0])


def saved(pixels: np.ndarray, kind: str, **options: Any) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind, **options)
    return content.getvalue()


def noise(side: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)


def test_a_truncated_picture_is_passed_over() -> None:
    whole = saved(noise(64), "PNG")
    given = [Image.open(io.BytesIO(data)) for data in (whole, whole[:3000], whole)]
    source = open_source(given, image_size=16)
    passed = [type(arrival) for arrival in source.arrivals()]
    assert passed == [Item, PassedOver, Item]
    assert source.passed_over == {"truncated": 1}


@pytest.mark.parametrize("turn", range(1, 9))
def test_a_picture_is_turned_by_its_metadata(turn: int) -> None:
    pixels = np.zeros((32, 32, 3), np.uint8)
    pixels[:16], pixels[:, :16, 0] = 255, 128
    exif = Image.Exif()
    exif[0x0112] = turn
    data = saved(pixels, "PNG", exif=exif)
    picture = Image.open(io.BytesIO(data))
    of_bytes, of_picture = open_source([data, picture], image_size=8)
    assert torch.equal(of_bytes.image, of_picture.image)
    assert np.array_equal(np.asarray(picture), pixels)  # the caller's picture is unchanged


def test_empty_images_are_passed_over() -> None:
    given = [np.zeros((0, 5, 3), dtype=np.uint8), Image.new("RGB", (4, 0))]
    arrivals = list(open_source(given, image_size=8).arrivals())
    assert [a.detail for a in arrivals if isinstance(a, PassedOver)] == ["5 x 0 pixels", "4 x 0 pixels"]


def test_large_bytes_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "LARGE_BYTES", 500)
    (found,) = read_iterable([saved(noise(32), "PNG")], Options(image_size=8))(Everything(), threading.Event())
    assert found.load().shape == (3, 8, 8)
    assert not isinstance(found.load, partial)


def test_images_may_be_overwritten_after_the_next_request(draw: Draw, tmp_path: Path) -> None:
    files = [draw(tmp_path / f"{number}.png", number) for number in range(20)]

    def pictures() -> Iterator[Image.Image]:
        for file in files:
            with Image.open(file) as picture:
                yield picture

    def frames() -> Iterator[np.ndarray]:
        frame = np.zeros((16, 16, 3), np.uint8)
        for file in files:
            frame[:] = np.asarray(Image.open(file))
            yield frame

    expected = [item.image for item in open_source(tmp_path.glob("*.png"), image_size=16)]
    assert len(expected) == 20
    for images in (pictures(), frames()):
        found = [item.image for item in open_source(images, image_size=16)]
        assert sorted(i.numpy().tobytes() for i in found) == sorted(i.numpy().tobytes() for i in expected)


@pytest.mark.parametrize(
    "given",
    [np.zeros((4, 16, 16, 3), np.uint8), np.zeros((16, 16, 3)), 7, (np.zeros((16, 16, 3), np.uint8), 7)],
    ids=["many", "float", "7", "with its label"],
)
def test_values_that_are_not_images_are_refused(given: Any) -> None:
    with pytest.raises(InputError, match="images must be PIL pictures"):
        list(open_source([given], image_size=16))


def test_an_error_of_the_iterable_reaches_the_reader() -> None:
    def images() -> Iterator[np.ndarray]:
        yield np.zeros((16, 16, 3), np.uint8)
        raise RuntimeError("the queue is gone")

    found = iter(open_source(images(), image_size=16))
    assert isinstance(next(found), Item)
    with pytest.raises(RuntimeError, match="the queue is gone"):
        next(found)


def test_loading_ahead_is_bounded_and_ends_with_the_reader() -> None:
    taken = 0

    def images() -> Iterator[np.ndarray]:
        nonlocal taken
        while True:
            taken += 1
            yield np.zeros((16, 16, 3), np.uint8)

    others = set(threading.enumerate())  # threads of earlier tests
    arrivals = open_source(images(), image_size=16).arrivals()
    next(arrivals)
    deadline = time.monotonic() + 60
    while taken < 33 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert 33 <= taken <= 36
    arrivals.close()
    for thread in set(threading.enumerate()) - others:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("no-such-folder", {}, "does not exist. Allowed: a folder"),
        (
            "photos/*.png",
            {},
            r"only tar shards are given by a pattern.*give the folder, or pipe their paths: ls photos/\*\.png \|",
        ),
        (None, {}, "or, in Python, any iterable of images; given NoneType"),
        ("-", {"watch": True}, "watch follows a folder or a pattern of tar shards; given -$"),
        ("nowhere", {"watch": True}, "'nowhere' does not exist"),
        ("/dev/video99", {}, "there is no camera at /dev/video99"),
        ("rtsp://camera", {"watch": True}, "watch follows a folder"),
        (".", {"every": 0}, "every must be at least 1"),
        (".", {"workers": 0}, "workers must be at least 1"),
    ],
)
def test_invalid_addresses_are_refused(text: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(text, image_size=16, **options)


def test_one_image_file(draw: Draw, tmp_path: Path) -> None:
    source = open_source(draw(tmp_path / "a.png"), image_size=16)
    assert len(list(source)) == 1
    assert source.rereadable


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match="is a file of another kind"):
        open_source(tmp_path / "notes.txt", image_size=16)
