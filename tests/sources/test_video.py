"""Frames of videos and of streams."""

from __future__ import annotations

import functools
import http.server
import struct
import sys
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from climb.errors import InputError
from climb.sources import Item, PassedOver, open_source
from climb.sources.source import SOURCES, find_kind
from climb.sources.video import is_video

av = pytest.importorskip("av")


def write_video(path: Path, frames: int = 12) -> Path:
    """A video whose frame k is grey of brightness 20 k."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(frames):
            pixels = np.full((48, 64, 3), 20 * number, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path


def test_every_frame_once_and_by_its_number(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mp4")
    source = open_source(str(path), image_size=16)
    found = list(source)
    assert [item.where for item in found] == [f"{path}#{number}" for number in range(12)]
    assert len({item.identity for item in found}) == 12
    assert source.rereadable
    for number, item in enumerate(found):
        assert item.image.shape == (3, 16, 16)
        assert abs(float(item.image.float().mean()) - 20 * number) < 8
    assert [item.where for item in open_source(str(path), image_size=16, every=5)] == [
        f"{path}#{n}" for n in (0, 5, 10)
    ]


def test_seen_frames_are_skipped(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.mkv")
    source = open_source(str(path), image_size=16)
    known = {item.identity for item in list(source)[:7]}
    rest = [a for a in source.arrivals(seen=lambda identity: identity not in known) if isinstance(a, Item)]
    assert [item.where for item in rest] == [f"{path}#{number}" for number in range(7, 12)]


def test_a_damaged_video_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(b"no video" * 100)
    (passed,) = open_source(str(tmp_path / "v.mp4"), image_size=16).arrivals()
    assert isinstance(passed, PassedOver)
    assert passed.reason == "corrupt"


def write_sound(path: Path) -> Path:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(16_000))
    return path


def test_a_video_without_pictures_is_passed_over(tmp_path: Path) -> None:
    (passed,) = open_source(str(write_sound(tmp_path / "v.wav").rename(tmp_path / "v.avi")), image_size=16).arrivals()
    assert isinstance(passed, PassedOver)
    assert (passed.reason, passed.detail) == ("corrupt", "the file has no picture track")


@pytest.mark.parametrize("announced", [True, False])
def test_gigantic_frames_are_not_converted(tmp_path: Path, announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a low bound, to keep the test fast."""
    path = write_video(tmp_path / "v.mkv", frames=2)
    monkeypatch.setattr("climb.sources.video.MAX_FRAME_PIXELS", 64 * 48 - 1)
    if not announced:  # the track announces smaller frames
        monkeypatch.setattr("climb.sources.video._check_size", lambda width, height: None)
    (passed,) = open_source(str(path), image_size=16).arrivals()
    assert isinstance(passed, PassedOver)
    assert passed.reason == ("too large" if announced else "corrupt")
    if announced:
        assert passed.detail == "frames of 64 x 48 pixels; at most 3,071 are decoded"


def test_a_rotated_video_is_turned_upright(tmp_path: Path) -> None:
    """Telephones store unrotated frames and an angle for the player: here 90 degrees clockwise."""
    path = tmp_path / "v.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        pixels = np.zeros((48, 64, 3), dtype=np.uint8)
        pixels[:, :32] = 255  # the left half, which belongs on top
        container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # the matrix of the track
    one = 1 << 16
    data[at : at + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 48 * one, 0, 1 << 30)
    path.write_bytes(bytes(data))
    (item,) = open_source(str(path), image_size=16)
    assert item.image[:, :6].float().mean() > 230
    assert item.image[:, 10:].float().mean() < 25


def test_the_password_of_a_camera_is_masked(caplog: pytest.LogCaptureFixture) -> None:
    source = open_source("http://admin:s3cret@127.0.0.1:9/stream", image_size=16)
    arrivals = source.arrivals(patience=60)
    first = next(arrivals)
    arrivals.close()
    assert isinstance(first, PassedOver)
    assert source.name == first.where == "http://admin:...@127.0.0.1:9/stream"
    assert "s3cret" not in first.detail + caplog.text


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a stream that ends after 12 frames."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    write_video(tmp_path / "stream.ts")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/stream.ts"
        server.shutdown()
        thread.join()


def test_a_stream_that_ends_is_connected_to_again(address: str) -> None:
    source = open_source(address, image_size=16)
    assert source.endless
    assert not source.rereadable
    arrivals = source.arrivals(patience=60)
    found = [next(arrivals) for _ in range(15)]  # more than one connection gives
    arrivals.close()
    assert all(isinstance(item, Item) and item.identity is None for item in found)


def test_a_stream_without_pictures_is_connected_to_again(address: str, tmp_path: Path) -> None:
    write_sound(tmp_path / "sound.wav")
    arrivals = open_source(address.replace("stream.ts", "sound.wav"), image_size=16).arrivals(patience=60)
    passed_over = [next(arrivals) for _ in range(2)]
    arrivals.close()
    for passed, seconds in zip(passed_over, (1, 2), strict=True):
        assert isinstance(passed, PassedOver)
        assert passed.detail == f"the file has no picture track; connecting again in {seconds} s"


def test_a_camera_that_does_not_answer_is_tried_again() -> None:
    source = open_source("tcp://127.0.0.1:9", image_size=16)  # no server listens there
    arrivals = source.arrivals(patience=60)
    first = next(arrivals)
    arrivals.close()
    assert isinstance(first, PassedOver)
    assert "connecting again in 1 s" in first.detail


def test_addresses_are_recognised() -> None:
    assert find_kind("rtsp://10.0.0.1/stream") is find_kind("/dev/video0") is SOURCES["camera"]
    assert find_kind("holiday.mp4") is None  # there is no such file
    assert is_video("Holiday.MP4")
    assert not is_video("holiday.png")


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "v.mp4", frames=1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError, match=r'pip install "climb-ssl\[video\]"'):
        open_source(str(path), image_size=16)
