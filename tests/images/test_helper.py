"""Helper processes: they outlive neither their image nor the learner, and a crash costs one image."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hostile import HOSTILE, saved
from PIL import Image

from climb.errors import ClimbError
from climb.images import helper
from climb.images.decode import CORRUPT, TOO_LARGE, UNREADABLE, ImageError, decode_rgb
from climb.images.needs import is_ordinary

PIXELS = np.random.default_rng(0).integers(0, 256, (24, 24, 3), dtype=np.uint8)
TIFF = saved(Image.fromarray(PIXELS), "TIFF", compression="tiff_lzw")
"""An image for a helper."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")


@pytest.fixture(autouse=True)
def no_helper_before_and_after() -> Iterator[None]:
    helper.close_idle()
    yield
    helper.close_idle()


def helpers_of(parent: int) -> list[int]:
    """The processes of a parent that are helpers."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            if folder.name.isdigit() and int(state[1]) == parent and state[0] != "Z":
                found += [int(folder.name)] * (b"helper_main" in (folder / "cmdline").read_bytes())
        except (OSError, IndexError):
            continue
    return found


def decoded(data: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.asarray(decode_rgb(data, 24).image)


def test_one_helper_decodes_one_image_after_the_other() -> None:
    for _ in range(3):
        np.testing.assert_array_equal(decoded(TIFF), PIXELS)
    (process,) = helpers_of(os.getpid())
    assert os.getsid(process) != os.getsid(0)  # Ctrl-C in a terminal does not reach it
    helper.close_idle()
    assert helpers_of(os.getpid()) == []


def test_ordinary_files_need_no_helper() -> None:
    exif = Image.Exif()
    exif[0x010F] = "maker"
    for kind in ("JPEG", "PNG", "BMP", "GIF", "PPM", "WEBP"):
        decoded(saved(Image.fromarray(PIXELS), kind, **({"exif": exif} if kind == "JPEG" else {})))
    decoded(saved(Image.fromarray(PIXELS), "JPEG", progressive=True))
    assert helpers_of(os.getpid()) == []


UNUSUAL = (
    "many-tiles.jp2 many-comments.pgm exif-in-one-segment.jpg exif-in-two-segments.jpg profiles.png exif.png "
    "further-images.jpg million-segments.jpg scans-of-1000-px.jpg directory.tif"
)


@pytest.mark.parametrize("name", UNUSUAL.split())
def test_files_of_unusual_structure_are_not_decoded_in_the_process(name: str) -> None:
    kind = {"jpg": "JPEG", "png": "PNG", "pgm": "PPM", "tif": "TIFF", "jp2": "JPEG2000"}[name[-3:]]
    assert not is_ordinary(kind, HOSTILE[name]())


def test_a_helper_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ClimbError, match="cannot start a helper process to decode images: /bin/false failed"):
        decoded(TIFF)


def test_threads_have_helpers_of_their_own() -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(decoded, [TIFF] * 40))
    assert all((result == PIXELS).all() for result in results)
    assert 1 <= len(helpers_of(os.getpid())) <= 4


def test_an_idle_helper_that_was_killed_costs_no_image() -> None:
    decoded(TIFF)
    os.kill(helpers_of(os.getpid())[0], signal.SIGKILL)
    np.testing.assert_array_equal(decoded(TIFF), PIXELS)


@pytest.mark.parametrize(
    ("ended_by", "reason"),
    [(signal.SIGSEGV, CORRUPT), (signal.SIGXCPU, TOO_LARGE), (signal.SIGKILL, UNREADABLE)],  # the kernel lacks memory
)
def test_a_helper_that_ends_at_an_image_gives_the_reason(ended_by: signal.Signals, reason: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(decoded, HOSTILE["many-comments.pgm"]())
        while not (processes := helpers_of(os.getpid())):
            time.sleep(0.01)
        time.sleep(1.0)
        os.kill(processes[0], ended_by)
        with pytest.raises(ImageError) as caught:
            result.result()
    assert caught.value.reason == reason
    np.testing.assert_array_equal(decoded(TIFF), PIXELS)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_leaves_its_parents_helper_alone() -> None:
    decoded(TIFF)
    child = os.fork()
    if child == 0:
        os._exit(0 if (decoded(TIFF) == PIXELS).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(decoded(TIFF), PIXELS)


def test_a_helper_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(TIFF)
    program = """
import sys, time
from climb.images.decode import decode_rgb, read_image_file
decode_rgb(read_image_file(sys.argv[1]), 8)
print("decoded", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "a.tif")], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"decoded\n"
        (process,) = helpers_of(parent.pid)
        parent.kill()
    for _ in range(500):
        if not Path(f"/proc/{process}").exists():
            return
        time.sleep(0.02)
    raise AssertionError("the helper is still there")
