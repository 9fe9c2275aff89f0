"""What all parts of the soak test share: arguments, the count of trials and failures, the exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


class Trials:
    """Counts trials by kind and prints failures as they happen."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.trials, self.failures = Counter[str](), Counter[str]()
        self.started = time.monotonic()

    def add(self, kind: str, *, ok: bool, detail: str = "") -> None:
        """Count a trial. ``detail`` explains a failure."""
        self.trials[kind] += 1
        if not ok:
            self.failures[kind] += 1
            print(f"FAILED {kind}: {detail}", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{self.title}: {self.trials.total()}", end="", file=sys.stderr)

    def finish(self, out: Path | None = None) -> None:
        """Print a line for each kind and the total; exit with 1 if a trial failed."""
        for kind, count in sorted(self.trials.items()):
            print(f"{kind:32} {count:6} trials {self.failures[kind]:4} failures")
        total, failed = self.trials.total(), self.failures.total()
        print(f"{self.title}: {total} trials, {failed} failures, {time.monotonic() - self.started:.0f} s", flush=True)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            content = {"title": self.title, "trials": dict(self.trials), "failures": dict(self.failures)}
            out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        raise SystemExit(1 if failed or not total else 0)


def parse_arguments(description: str | None, *, trials: int, subjects: Sequence[str] = ()) -> argparse.Namespace:
    """``--trials``, ``--seed`` and ``--out``, and ``--subjects`` for a part that has several."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="also write the counts here, as JSON")
    if subjects:
        parser.add_argument("--subjects", nargs="+", choices=subjects, default=subjects, help="run only these")
    return parser.parse_args()
