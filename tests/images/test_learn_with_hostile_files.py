"""`climb learn` on a folder with hostile files: within its memory, with correct counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hostile import HOSTILE
from PIL import Image

from climb.images.decode import MAX_MEMORY

MB = 10**6
WORKERS = 2
PER_THREAD = MAX_MEMORY + 35 * MB

pytestmark = [
    pytest.mark.slow(seconds=60),
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured in /proc"),
]


def tree_memory(root: int) -> int:
    """Bytes that a process and its descendants hold. Shared pages count for each of them."""
    total, queue = 0, [root]
    while queue:
        process = queue.pop()
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                queue += map(int, (task / "children").read_text().split())
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return total


def learn(folder: Path, out: Path) -> tuple[int, str]:
    """The peak of the memory of a learner with its helpers, and what it printed."""
    options = f"--size edge --device cpu --workers {WORKERS} --checkpoint-seconds 1000".split()
    command = [sys.executable, "-m", "climb", "learn", str(folder), "--out", str(out), *options]
    peak = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while process.poll() is None:
            peak = max(peak, tree_memory(process.pid))
            time.sleep(0.01)
        assert process.stdout is not None
        text = process.stdout.read()
    assert process.returncode == 0
    return peak, text


@pytest.mark.parametrize(
    ("name", "used"), [("thin-grey.png", False), ("many-tiles.jp2", False), ("side-of-65500.png", True)]
)
def test_four_hostile_files_among_photographs(name: str, used: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for part in ("plain", "hostile"):
        (tmp_path / part).mkdir()
        for number in range(40):
            pixels = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / part / f"{number}.png")
    data = HOSTILE[name]()
    for number in range(4):
        (tmp_path / "hostile" / f"{5 * number}-{name}").write_bytes(data)
    without, _ = learn(tmp_path / "plain", tmp_path / "without")
    peak, text = learn(tmp_path / "hostile", tmp_path / "with")
    assert peak <= without + WORKERS * PER_THREAD
    learned = re.search(r"learned (\d+)", text)
    assert learned is not None
    assert int(learned[1]) == 40 + 4 * used
    passed_over = [int(count) for count in re.findall(r"passed over: (\d+)", text)]
    assert sum(passed_over) == 4 * (not used)
