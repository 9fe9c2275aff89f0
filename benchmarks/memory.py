"""Time of the memory alone.

    python benchmarks/memory.py                      the paper's sizes, on the CPU
    python benchmarks/memory.py --scale              also K 6,000, L 10,000, N 200,000, and the ratio
    python benchmarks/memory.py --device cuda

Fills a `CentroidMemory` with clustered random embeddings, then inserts mini-batches of 10, and after each one draws
and refreshes 128 images. Medians in milliseconds; mini-batches with a merge of centroids are counted separately.
--scale also times one merge among K 6,000 long-term centroids, 100 refreshes after the previous one: by
`ClosestPair`, and by comparing all pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

from climb.memory import CentroidMemory
from climb.memory.pairs import ClosestPair

PAPER = {"capacity": 2500, "stm_centroids": 100, "ltm_centroids": 60, "images_per_centroid": 30}
SCALED = {"capacity": 200_000, "stm_centroids": 10_000, "ltm_centroids": 6_000, "images_per_centroid": 30}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--embedding-dim", type=int, default=2048)
    arguments.add_argument("--image-size", type=int, default=32)
    arguments.add_argument("--batches", type=int, default=300, help="mini-batches timed")
    arguments.add_argument("--scale", action="store_true", help="also a memory a hundred times as large")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    rows = {"paper": measure(given, PAPER, fill=3000)}
    if given.scale:
        rows["scaled"] = measure(given, SCALED, fill=12_000)
        rows["merge"] = measure_merge(given, SCALED["ltm_centroids"])
        both = {
            name: sum(rows[name][part] for part in ("insert_ms", "sample_ms", "refresh_ms"))
            for name in ("paper", "scaled")
        }
        # The scaled memory has no long-term centroids yet, so their part of a refresh is added here.
        full = both["scaled"] + rows["merge"]["refresh_adds_ms"]
        rows["scaled"]["ratio_to_paper"] = round(full / both["paper"], 1)
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        for name, row in rows.items():
            print(name, "  ".join(f"{key} {value}" for key, value in row.items()))


def measure(given: argparse.Namespace, sizes: dict[str, int], *, fill: int) -> dict[str, Any]:
    side, dim, device = given.image_size, given.embedding_dim, given.device
    memory = CentroidMemory(sizes["capacity"], (3, side, side), dim, **_without_capacity(sizes), device=device)
    generator = torch.Generator().manual_seed(0)
    clusters = torch.randn(2 * sizes["stm_centroids"], dim, generator=generator)
    images = torch.zeros(10, 3, side, side, dtype=torch.uint8, device=device)

    def embeddings(n: int) -> torch.Tensor:
        which = torch.randint(0, len(clusters), (n,), generator=generator)
        return (clusters[which] + 0.8 * torch.randn(n, dim, generator=generator)).to(device)

    for _ in range(fill // 10):
        memory.insert(images, embeddings(10))
    times: dict[str, list[float]] = {"insert": [], "merge": [], "sample": [], "refresh": []}
    for _ in range(given.batches):
        batch = embeddings(10)
        seconds, report = _timed(device, lambda batch=batch: memory.insert(images, batch))
        times["merge" if report.merged else "insert"].append(seconds)
        seconds, replay = _timed(device, lambda: memory.sample(128))
        times["sample"].append(seconds)
        fresh = embeddings(128)
        seconds, _ = _timed(device, lambda replay=replay, fresh=fresh: memory.refresh(replay.ids, fresh))
        times["refresh"].append(seconds)
    ms = {name: 1e3 * statistics.median(values) if values else float("nan") for name, values in times.items()}
    return {
        "insert_ms": round(ms["insert"], 3),
        "insert_ms_per_image": round(ms["insert"] / 10, 4),
        "sample_ms": round(ms["sample"], 3),
        "refresh_ms": round(ms["refresh"], 3),
        "merges": len(times["merge"]),
        "insert_with_merge_ms": round(ms["merge"], 3) if times["merge"] else None,
        "stored": len(memory),
    }


def measure_merge(given: argparse.Namespace, centroids: int, merges: int = 10, refreshes: int = 100) -> dict[str, Any]:
    """Merges without the rest of the memory: to fill one of that size would take an hour."""
    dim, device = given.embedding_dim, given.device
    generator = torch.Generator().manual_seed(0)
    clusters = torch.randn(2 * centroids, dim, generator=generator)
    own = torch.randint(0, len(clusters), (centroids + 1,), generator=generator)
    # A long-term centroid is a mean of about thirty embeddings.
    values = (clusters[own] + 0.8 / 30**0.5 * torch.randn(centroids + 1, dim, generator=generator)).to(device)
    pairs = ClosestPair(centroids + 1, dim, device)
    pairs.put(range(centroids + 1), values)
    pairs.closest()
    times: dict[str, list[float]] = {"merge": [], "all_pairs": [], "move": []}
    for _ in range(merges):
        for _ in range(refreshes):
            rows = torch.randperm(centroids + 1, generator=generator)[:64]
            fresh = (clusters[own[rows]] + 0.8 * torch.randn(64, dim, generator=generator)).to(device)
            values[rows] += (fresh - values[rows]) / 60
            times["move"].append(_timed(device, lambda rows=rows: pairs.put(rows.tolist(), values[rows]))[0])
        seconds, (one, other) = _timed(device, pairs.closest)
        times["merge"].append(seconds)
        seconds, best = _timed(device, lambda: _closest_of_all(values))
        times["all_pairs"].append(seconds)
        found = float(torch.nn.functional.cosine_similarity(values[one], values[other], dim=0))
        assert abs(found - best) < 1e-5, (found, best)
        values[one] = (values[one] + values[other]) / 2
        own[other] = torch.randint(0, len(clusters), (), generator=generator)
        values[other] = clusters[own[other]]
        pairs.put([one, other], values[[one, other]])
    ms = {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}
    return {
        "centroids": centroids,
        "merge_ms": round(ms["merge"], 3),
        "all_pairs_ms": round(ms["all_pairs"], 3),
        "refresh_adds_ms": round(ms["move"], 3),
    }


def _closest_of_all(values: torch.Tensor) -> float:
    unit = torch.nn.functional.normalize(values, dim=1)
    return float((unit @ unit.T).fill_diagonal_(-2.0).max())


def _without_capacity(sizes: dict[str, int]) -> dict[str, Any]:
    return {name: value for name, value in sizes.items() if name != "capacity"}


def _timed(device: str, work: Any) -> tuple[float, Any]:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    began = time.perf_counter()
    result = work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - began, result


if __name__ == "__main__":
    main()
