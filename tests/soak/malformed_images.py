"""Decode malformed images of every format that Pillow writes: one by one, and through `climb learn`.

    python tests/soak/malformed_images.py                 # 3,000 files
    python tests/soak/malformed_images.py --trials 100

A trial is one file: truncated, with flipped bytes, wrong sizes, swapped, repeated or foreign parts. It is decoded in a
process that measures its memory and processor time, helper included. Then learners read all files, from folders and
tar shards. A trial fails if a process crashes, an error is no `ImageError`, or a limit is exceeded. A learner fails if
its counts differ from those of the single files, or its memory exceeds that of its loading threads.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from trials import Trials, parse_arguments

SOURCE = Path(__file__).parents[2] / "src"
PER_LEARNER, SIDE, WORKERS = 250, 16, 2
MOST_MEMORY, MOST_SECONDS = 635 * 10**6, 32.0
USED = "used"
"""Outcome of an image that was decoded."""

# -- files -------------------------------------------------------------------------------------------------------------

MODES = ("RGB", "L", "RGBA", "P", "1", "LA", "CMYK", "I;16", "I", "F")
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "JPEG": [{}, {"progressive": True}, {"quality": 100, "subsampling": 0}, {"restart_marker_blocks": 1}],
    "PNG": [{}, {"compress_level": 0}, {"transparency": 0}],
    "WEBP": [{"method": 0}, {"lossless": True, "method": 0}],
    "TIFF": [{"compression": name} for name in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "group4")],
    "AVIF": [{"speed": 10}],
    "JPEG2000": [{}, {"no_jp2": True}, {"tile_size": (16, 16)}],
}
DECODED = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
"""Two files of three are of these formats; the others are refused by name."""
ANIMATED = ("GIF", "PNG", "WEBP", "TIFF", "AVIF", "MPO")


def formats() -> list[str]:
    """The formats that this build of Pillow writes."""
    Image.init()
    written = []
    for name in sorted(Image.SAVE):
        if any(save(name, picture(random.Random(0), mode, (16, 16)), {}) for mode in MODES):
            written.append(name)
    return written


def picture(draw: random.Random, mode: str, size: tuple[int, int]) -> Image.Image:
    """Noise, or one colour if it is large."""
    if size[0] * size[1] > 10**6:
        return Image.new(mode, size)
    noise = np.random.default_rng(draw.getrandbits(32)).integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    if mode in ("I;16", "I", "F"):
        return Image.fromarray(noise[:, :, 0].astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]) * 50)
    return Image.fromarray(noise).convert("RGB").convert(mode) if mode != "RGBA" else Image.fromarray(noise)


def save(name: str, image: Image.Image, options: dict[str, Any]) -> bytes:
    """An image in a format; nothing if the format does not take it."""
    content = io.BytesIO()
    try:
        image.save(content, format=name, **options)
    except Exception:
        return b""
    return content.getvalue()


def whole(draw: random.Random, name: str) -> tuple[tuple[int, int], bytes]:
    """Size and content of a valid file of a format."""
    sizes = [(draw.randint(1, 64), draw.randint(1, 64)) for _ in range(12)]
    size = draw.choice([*sizes, (800, 600), (3000, 2000), (1, 3000), (6000, 1)])
    for _ in range(20):
        options = dict(draw.choice(OPTIONS.get(name, [{}])))
        if name != "AVIF" and draw.random() < 0.3:  # Pillow's AVIF encoder crashes at such profiles
            exif = Image.Exif()
            exif[0x0112], exif[0x010E] = draw.randint(0, 9), "x" * draw.randint(0, 99)
            options["exif"] = exif
        if name != "AVIF" and draw.random() < 0.2:
            options["icc_profile"] = draw.randbytes(200)
        if name in ANIMATED and draw.random() < 0.2:
            options |= {"save_all": True, "append_images": [picture(draw, "RGB", size)]}
        if data := save(name, picture(draw, draw.choice(MODES), size), options):
            return size, data
    size = (16, 16)  # every format takes it in some mode
    return size, next(filter(None, (save(name, picture(draw, mode, size), {}) for mode in MODES)))


# -- damage ------------------------------------------------------------------------------------------------------------

Damage = Callable[[random.Random, bytearray], bytearray]
"""Changes a file that is not empty."""
EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 9_000, 65_500, 89_000_000, 2**31 - 1, 2**32 - 1)


def truncate(draw: random.Random, data: bytearray) -> bytearray:
    return data[: draw.randrange(len(data))]


def flip(draw: random.Random, data: bytearray) -> bytearray:
    end = len(data) if draw.random() < 0.5 else min(100, len(data))
    for _ in range(draw.randint(1, 20)):
        data[draw.randrange(end)] ^= 1 << draw.randrange(8)
    return data


def size(draw: random.Random, data: bytearray) -> bytearray:
    """Another number of 16 or 32 bits, most likely in the header."""
    for _ in range(draw.randint(1, 3)):
        form = draw.choice(["<H", ">H", "<I", ">I"])
        place = draw.randrange(min(len(data), draw.choice([32, 64, 200, len(data)])))
        value = draw.choice(EXTREMES) & (0xFFFF if form[1] == "H" else 0xFFFFFFFF)
        data[place : place + struct.calcsize(form)] = struct.pack(form, value)
    return data


def declare(draw: random.Random, data: bytearray, width: int, height: int) -> bytearray:
    """Other dimensions where the format stores them, which are found by their values."""
    for form in (">HH", "<HH", ">II", "<II"):
        limit = 2 ** (8 * struct.calcsize(form) // 2) - 1
        for pair in ((width, height), (height, width)):
            place = data.find(struct.pack(form, *pair)) if max(pair) <= limit else -1
            if place >= 0:
                sides = [min(limit, draw.choice([1, 2, 500, 9_000, 30_000, 65_500, 89_000_000])) for _ in pair]
                data[place : place + struct.calcsize(form)] = struct.pack(form, *sides)
    return data


def swap(draw: random.Random, data: bytearray) -> bytearray:
    first, second, third = sorted(draw.randrange(len(data) + 1) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def repeat(draw: random.Random, data: bytearray) -> bytearray:
    first, second = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    times = min(draw.choice([2, 10, 1000]), 1 + 2**22 // max(1, second - first))
    return data[:second] + data[first:second] * times + data[second:]


def fill(draw: random.Random, data: bytearray) -> bytearray:
    place, count = draw.randrange(len(data)), draw.choice([1, 16, 1000, 2**20])
    filler = draw.choice([b"\0", b"\xff", b"#", None])
    inserted = draw.randbytes(count) if filler is None else filler * count
    return data[:place] + inserted + data[place if draw.random() < 0.5 else place + count :]


def chunks(draw: random.Random, data: bytearray) -> bytearray:
    """PNG: its chunks in another order, some twice or with other content, with valid checksums."""
    if not data.startswith(b"\x89PNG"):
        return swap(draw, data)
    place, parts = 8, []
    while place + 12 <= len(data):
        (length,) = struct.unpack(">I", data[place : place + 4])
        parts.append((bytes(data[place + 4 : place + 8]), bytearray(data[place + 8 : place + 8 + length])))
        place += 12 + length
    for _ in range(draw.randint(1, 3) if parts else 0):
        kind, content = draw.choice(parts)
        action = draw.randrange(4)
        if action == 0:
            draw.shuffle(parts)
        elif action == 1:
            parts.insert(draw.randrange(len(parts) + 1), (kind, content))
        elif action == 2 and content:
            content[draw.randrange(len(content))] = draw.randrange(256)
        else:
            kind = draw.choice([b"iCCP", b"zTXt", b"tRNS", b"PLTE", b"acTL", b"fcTL", b"eXIf", b"IDAT", b"IEND"])
            parts.insert(
                draw.randrange(len(parts) + 1), (kind, bytearray(draw.randbytes(draw.choice([0, 4, 26, 300]))))
            )
    body = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in parts)
    return bytearray(b"\x89PNG\r\n\x1a\n" + b"".join(body))


DAMAGES: tuple[Damage, ...] = (truncate, flip, size, swap, repeat, fill, chunks)


def malformed(seed: int, number: int, names: list[str]) -> tuple[str, bytes]:
    """Kind and content of one file."""
    draw = random.Random(f"{seed}/{number}")
    name = draw.choice(DECODED) if number % 3 else names[number // 3 % len(names)]
    dimensions, content = whole(draw, name)
    data = bytearray(content)
    if draw.random() < 0.1:  # the head of one format, the tail of another
        _, other = whole(draw, draw.choice(names))
        data = data[: draw.randrange(len(data))] + other[draw.randrange(len(other)) :]
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        damage = draw.choice([*DAMAGES, None])
        data = damage(draw, data or bytearray(1)) if damage else declare(draw, data, *dimensions)
    return name, bytes(data)


# -- one by one --------------------------------------------------------------------------------------------------------


def status(process: int | str, name: str) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def seconds_of(process: int | str) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(process: int | str) -> list[int]:
    folder = Path(f"/proc/{process}/task")
    return [int(child) for task in folder.iterdir() for child in (task / "children").read_text().split()]


def decode_all(folder: Path) -> None:
    """Decode each file and print its outcome, its memory and its seconds. Runs in a process of its own."""
    package = sys.modules["climb"] = types.ModuleType("climb")  # without torch: the peak of its import would hide ours
    package.__path__ = [str(SOURCE / "climb")]
    from climb.images.decode import REASONS, ImageError, decode_rgb

    warnings.simplefilter("ignore")
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        Path("/proc/self/clear_refs").write_text("5")
        before, began, helpers = status("self", "VmRSS"), time.process_time(), children("self")
        spent = sum(map(seconds_of, helpers)) + sum(os.times()[2:4])
        try:
            image = decode_rgb(data, SIDE).image
            outcome, detail = USED, "" if (image.size, image.mode) == ((SIDE, SIDE), "RGB") else f"gave {image}"
        except ImageError as error:
            outcome, detail = error.reason, "" if error.reason in REASONS[:4] else error.detail
        except BaseException as error:
            outcome, detail = "exception", repr(error)
        memory, seconds = status("self", "VmHWM") - before, time.process_time() - began - spent
        memory += sum(status(process, "VmHWM") for process in children("self"))
        seconds += sum(map(seconds_of, children("self"))) + sum(os.times()[2:4])
        if set(helpers) - set(children("self")):
            memory += 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(json.dumps([path.name, outcome, detail, memory, seconds]), flush=True)


def outcomes_of(folder: Path, kinds: dict[str, str], trials: Trials) -> Counter[str]:
    """How many files have each outcome. A process that crashes is replaced for the remaining files."""
    remaining = folder.with_name("remaining")
    remaining.mkdir()
    for path in folder.iterdir():
        (remaining / path.name).hardlink_to(path)
    outcomes = Counter[str]()
    while names := sorted(path.name for path in remaining.iterdir()):
        command = [sys.executable, __file__, "--decode", str(remaining)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                name, outcome, detail, memory, seconds = json.loads(line)
                ok = not detail and memory <= MOST_MEMORY and seconds <= MOST_SECONDS
                described = f"{name}: {outcome} {detail}, {memory / 1e6:.0f} MB, {seconds:.1f} s"
                trials.add(kinds[name], ok=ok, detail=keep(folder / name, described) if not ok else "")
                outcomes[outcome] += 1
                (remaining / name).unlink()
                names.remove(name)
        if names:  # the file after the last one ended the process
            trials.add(kinds[names[0]], ok=False, detail=keep(folder / names[0], f"exit code {process.returncode}"))
            (remaining / names[0]).unlink()
            (folder / names[0]).unlink()
    remaining.rmdir()
    return outcomes


def keep(path: Path, described: str) -> str:
    """Copy a file that failed, to look at it."""
    kept = Path(tempfile.gettempdir()) / f"malformed-{path.name}"
    kept.write_bytes(path.read_bytes())
    return f"{described} ({kept})"


# -- through a learner -------------------------------------------------------------------------------------------------


def learn(source: Path, out: Path) -> tuple[int, Counter[str], int, str]:
    """Exit code, outcomes, peak of the memory with all helpers, and what a learner printed."""
    options = f"--size edge --device cpu --image-size {SIDE} --workers {WORKERS} --checkpoint-seconds 1000".split()
    command = [sys.executable, "-m", "climb", "learn", str(source), "--out", str(out), *options]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as it:
        while it.poll() is None:
            with suppress(OSError):
                peak = max(peak, sum(status(process, "VmRSS") for process in (it.pid, *children(it.pid))))
            time.sleep(0.01)
        assert it.stdout is not None
        text = it.stdout.read()
    learned = re.search(r"learned ([\d,]+)", text)
    outcomes = Counter({USED: int(learned[1].replace(",", ""))} if learned else {})
    for count, reason in re.findall(r"passed over: ([\d,]+) (.+)", text):
        outcomes[reason] += int(count.replace(",", ""))
    return it.returncode, outcomes, peak, text


def shard_of(folder: Path) -> Path:
    with tarfile.open(folder.with_suffix(".tar"), "w") as shard:
        for path in sorted(folder.iterdir()):
            shard.add(path, path.name)
    return folder.with_suffix(".tar")


def main() -> None:
    given = parse_arguments(__doc__, trials=3_000)
    warnings.simplefilter("ignore")
    trials, names = Trials("malformed images"), formats()
    print(f"{len(names)} formats: {', '.join(names)}", flush=True)
    with tempfile.TemporaryDirectory() as root:
        plain = Path(root, "plain")
        plain.mkdir()
        for number in range(20):
            picture(random.Random(number), "RGB", (20, 20)).save(plain / f"{number}.png")
        _, _, base, _ = learn(plain, Path(root, "learner-plain"))
        for part, first in enumerate(range(0, given.trials, PER_LEARNER)):
            folder, kinds = Path(root, f"part-{part}"), dict[str, str]()
            folder.mkdir()
            for number in range(first, min(first + PER_LEARNER, given.trials)):
                kind, data = malformed(given.seed, number, names)
                name = f"{number:05d}-{kind}.png"
                kinds[name] = kind
                (folder / name).write_bytes(data)
            alone = outcomes_of(folder, kinds, trials)
            source = shard_of(folder) if part % 2 else folder
            code, outcomes, peak, text = learn(source, Path(root, f"learner-{part}"))
            most = base + (WORKERS + part % 2) * MOST_MEMORY  # the thread that reads a shard decodes large files
            detail = f"exit code {code}, {peak / 1e6:.0f} MB, {dict(outcomes)} but alone {dict(alone)}; {text}"
            kind = "learner from a shard" if part % 2 else "learner from a folder"
            trials.add(kind, ok=code == 0 and outcomes == alone and peak <= most, detail=detail)
            print(f"{first + len(kinds)} files: {dict(alone)}, learner {peak / 1e6:.0f} MB", flush=True)
            shutil.rmtree(folder)
            folder.with_suffix(".tar").unlink(missing_ok=True)
    trials.finish(given.out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--decode"]:
        decode_all(Path(sys.argv[2]))
    else:
        main()
