"""`climb learn` on a million images from tar shards, on a CPU: rate and memory of the process.

    python benchmarks/million.py                       # a million: within an hour on two cores
    python benchmarks/million.py --images 20000        # the rate alone

The micro network at 16 px, one pass, 16 replayed images, one thread for arithmetic and one for loading. A few shards
of synthetic images (PNG, JPEG, PPM) are written to a temporary folder and linked under many names. To the learner
each link is another shard, so it must remember a million names. Prints JSON. The exit code is 1 if an image was lost
or learned twice, or if memory grew by more than 5 % after the first tenth.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from climb.runs import Journal

PER_SHARD = 2000
SHARDS = 8  # files; the rest are links
FORMATS = ("PNG", "JPEG", "PPM")
SIDE = 16
MOST_GROWTH = 0.05


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--images", type=int, default=1_000_000)
    arguments.add_argument("--journal-seconds", type=float, default=None)
    arguments.add_argument("--out", type=Path, default=None, help="also write the JSON here")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="climb-million-") as temporary:
        found = measure(Path(temporary), given.images, given.journal_seconds)
    text = json.dumps(found, indent=2)
    print(text)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n", encoding="utf-8")
    if found["learned"] != found["images"] or found["names"] != found["images"]:
        raise SystemExit(f"learned {found['learned']} images by {found['names']} names of {found['images']}")
    if found["memory_growth"] > MOST_GROWTH:
        raise SystemExit(f"memory grew by {found['memory_growth']:.1%} after warm-up")


def measure(folder: Path, images: int, journal_seconds: float | None) -> dict[str, Any]:
    """Learn all images once; rate and memory are from the learner's journal."""
    write_shards(folder / "shards", images)
    command = [
        *(sys.executable, "-m", "climb", "learn", f"{folder}/shards/*.tar", "--out", f"{folder}/learner"),
        *("--device", "cpu", "--backbone", "micro", "--image-size", str(SIDE), "--passes", "1"),
        *("--replay-batch", "16", "--budget", "2500", "--workers", "1", "--checkpoint-seconds", "60"),
        *("--journal-seconds", str(journal_seconds or max(1.0, images / 50_000))),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = time.monotonic() - began
    lines = Journal(folder / "learner" / "journal.jsonl").read("train")
    settled = [line["resident_bytes"] for line in lines if line["images"] >= images / 10]
    return {
        "images": images,
        "learned": lines[-1]["images"],
        "names": len(np.unique(np.fromfile(folder / "learner" / "learned.u64", dtype=np.uint64))),
        "seconds": round(seconds, 1),
        "images_per_second": round(images / seconds, 1),
        "hours_for_a_million": round(1e6 / (images / seconds) / 3600, 2),
        "memory_growth": round(max(settled) / settled[0] - 1, 4),
        "most_stored": max(line["stored"] for line in lines),
        "resident_megabytes": [[line["images"], round(line["resident_bytes"] / 1e6, 1)] for line in lines],
    }


def write_shards(folder: Path, images: int) -> None:
    """Write ``images`` images in shards: a few files, then links to these."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    whole, rest = divmod(images, PER_SHARD)
    for number in range(min(SHARDS, whole)):
        write_shard(folder / f"{number:05d}.tar", PER_SHARD, generator)
    for number in range(SHARDS, whole):
        os.symlink(f"{number % SHARDS:05d}.tar", folder / f"{number:05d}.tar")
    if rest:
        write_shard(folder / f"{whole:05d}.tar", rest, generator)


def write_shard(path: Path, images: int, generator: np.random.Generator) -> None:
    """A tar file of smooth coloured images in three formats."""
    with tarfile.open(path, "w") as shard:
        for number in range(images):
            kind = FORMATS[number % len(FORMATS)]
            coarse = Image.fromarray(generator.integers(0, 256, (4, 4, 3), dtype=np.uint8))
            content = io.BytesIO()
            coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(content, format=kind)
            member = tarfile.TarInfo(f"{number:06d}.{kind.lower()}")
            member.size = content.tell()
            content.seek(0)
            shard.addfile(member, content)


if __name__ == "__main__":
    main()
