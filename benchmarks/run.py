"""Time of a whole run, from the command to `result.json`, alone and with others on the same device.

    python benchmarks/run.py --recipe cifar100-20 --data FOLDER --together 1 4
    python benchmarks/run.py --recipe cifar100-100 --data FOLDER --together 1
    python benchmarks/run.py --together 1 2                                     the demo, on the CPU

Each run is a process of its own with the command of a user, in a fresh folder. "ratio" is the time of n runs together
over n times the time of the first row. A first run, which does not count, fills the cache of compiled kernels; --cold
omits it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--recipe", default="demo")
    arguments.add_argument("--data", default=None)
    arguments.add_argument("--preset", default="default")
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--engine", default="auto")
    arguments.add_argument("--together", type=int, nargs="+", default=[1], help="numbers of runs at a time")
    arguments.add_argument("--cold", action="store_true", help="compile within the measurement")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="climb-run-") as folder:
        if not given.cold:
            time_runs(given, Path(folder) / "uncounted", 1)
        for runs in given.together:
            row = time_runs(given, Path(folder) / str(runs), runs)
            row["ratio"] = round(row["seconds"] / runs / (rows or [row])[0]["seconds"] * (rows or [row])[0]["runs"], 3)
            rows.append(row)
            if not given.json:
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))


def time_runs(given: argparse.Namespace, folder: Path, runs: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "climb", "run", given.recipe, "--preset", given.preset]
    command += ["--device", given.device, "--engine", given.engine, "--checkpoint-seconds", "100000"]
    command += [] if given.data is None else ["--data", given.data]
    began = time.perf_counter()
    processes = [
        subprocess.Popen(
            [*command, "--seed", str(seed), "--out", str(folder / str(seed))],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for seed in range(runs)
    ]
    for process in processes:
        _, errors = process.communicate()
        if process.returncode:
            raise SystemExit(errors.decode())
    seconds = time.perf_counter() - began
    results = [json.loads((folder / str(seed) / "result.json").read_text()) for seed in range(runs)]
    return {
        "recipe": given.recipe,
        "preset": given.preset,
        "runs": runs,
        "seconds": round(seconds, 1),
        "train": [round(result["seconds"]["train"], 1) for result in results],
        "evaluate": [round(result["seconds"]["evaluate"], 1) for result in results],
        "final_accuracy": [round(result["final_accuracy"], 2) for result in results],
    }


if __name__ == "__main__":
    main()
