"""Cost of the memory as centroids and images grow, and cost of a step as processes grow.

    python benchmarks/scale.py                       about three minutes on a core
    python benchmarks/scale.py --times 1 4 --json    smaller memories only, as JSON

Two tables. The first is measured on this machine's CPU: the time of a `CentroidMemory` for a mini-batch as its
capacity and its centroids grow, with all sizes alternating in one process, medians; the part of that time in
decisions, which stay on the host; and how evenly its images would be spread over R processes.

The second is a model of the time and the traffic of a step with R processes. It counts every byte that the code
sends. The rates are assumptions, each a flag, with defaults for an H200 with 400 Gb/s to its neighbours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from climb.memory import CentroidMemory
from climb.nets import Network, build_network

STREAM, REPLAY, PASSES = 10, 128, 3  # of one process, as in the paper
SHARES = (2, 8, 64)
RESNET18_NORMS = 23  # including its projector's
DECISIONS_ALONE = 16  # an embedding so small that matrix products take no time
WORKLOADS = {
    # "forward": operations of one forward pass of one view.
    "resnet18 at 32 px": {"backbone": "resnet18", "side": 32, "forward": 1.1e9},
    "resnet50 at 224 px": {"backbone": "resnet50", "side": 224, "forward": 8.2e9},
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "--times", type=int, nargs="+", default=[1, 8, 40, 80], help="multiples of the paper's sizes"
    )
    arguments.add_argument("--batches", type=int, default=60, help="timed mini-batches for each size")
    arguments.add_argument("--embedding-dim", type=int, default=2048)
    arguments.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8, 16, 64])
    arguments.add_argument("--flops", type=float, default=140e12, help="sustained operations per second of a device")
    arguments.add_argument("--launch-ms", type=float, default=20.7, help="launches of an eager step of ResNet-18")
    arguments.add_argument("--bandwidth", type=float, default=40e9, help="bytes per second into each process")
    arguments.add_argument(
        "--latency-us", type=float, default=25.0, help="latency of one exchange between all processes"
    )
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    torch.manual_seed(0)
    memories = measure_memories(given, given.embedding_dim)
    for memory, decided in zip(memories, measure_memories(given, DECISIONS_ALONE), strict=True):
        memory["decisions_ms_per_image"] = round(decided["insert_ms"] / STREAM, 4)
    host_ms = memories[0]["decisions_ms_per_image"]
    steps = [
        model_step(given, name, ranks, grows, host_ms)
        for name in WORKLOADS
        for grows in (False, True)
        for ranks in given.ranks
    ]
    if given.json:
        print(json.dumps({"memories": memories, "steps": steps}, indent=2))
        return
    for title, rows in (("measured: one mini-batch in memories of growing size", memories), ("model: one step", steps)):
        print(f"\n{title}\n")
        names = list(rows[0])
        cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
        for line in cells:
            print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


# -- measured ------------------------------------------------------------------------------------------------------


def measure_memories(given: argparse.Namespace, dim: int) -> list[dict[str, Any]]:
    sizes = [
        {"capacity": 2500 * times, "stm_centroids": 100 * times, "ltm_centroids": 60 * times} for times in given.times
    ]
    filled = [_filled(size, dim) for size in sizes]
    taken: list[dict[str, list[float]]] = [{"insert": [], "sample": [], "refresh": []} for _ in sizes]
    for _ in range(given.batches):
        for (memory, clusters), times in zip(filled, taken, strict=True):
            images, batch = torch.zeros(STREAM, 3, 32, 32, dtype=torch.uint8), _embeddings(clusters, STREAM)
            fresh = _embeddings(clusters, REPLAY)
            marks = [time.perf_counter()]
            memory.insert(images, batch)
            marks.append(time.perf_counter())
            replay = memory.sample(REPLAY)
            marks.append(time.perf_counter())
            assert replay is not None
            memory.refresh(replay.ids, fresh)
            marks.append(time.perf_counter())
            for name, seconds in zip(times, np.diff(marks), strict=True):
                times[name].append(1e3 * float(seconds))
    rows: list[dict[str, Any]] = []
    for size, (memory, _), times in zip(sizes, filled, taken, strict=True):
        ms = {name: statistics.median(values) for name, values in times.items()}
        total = ms["insert"] + PASSES * (ms["sample"] + ms["refresh"])
        first = rows[0]["ms_per_batch"] if rows else total
        rows.append(
            {
                "N": size["capacity"],
                "L": size["stm_centroids"],
                "K": size["ltm_centroids"],
                "stored": len(memory),
                **{f"{name}_ms": round(value, 3) for name, value in ms.items()},
                "ms_per_batch": round(total, 3),
                "ratio": round(total / first, 2),
                **{f"largest_of_{ranks}": _largest_share(memory, ranks) for ranks in SHARES},
            }
        )
    return rows


def _filled(size: dict[str, int], dim: int) -> tuple[CentroidMemory, torch.Tensor]:
    """A memory that was full of short-term centroids, and the centres of its clusters."""
    memory = CentroidMemory(size["capacity"], (3, 32, 32), dim, **{k: v for k, v in size.items() if k != "capacity"})
    clusters = torch.randn(2 * size["stm_centroids"], dim)
    images = torch.zeros(100, 3, 32, 32, dtype=torch.uint8)
    for _ in range(max(30, size["stm_centroids"] * 3 // 200)):
        memory.insert(images, _embeddings(clusters, 100))
    return memory, clusters


def _embeddings(clusters: torch.Tensor, n: int) -> torch.Tensor:
    return clusters[torch.randint(0, len(clusters), (n,))] + 0.8 * torch.randn(n, clusters.shape[1])


def _largest_share(memory: CentroidMemory, ranks: int) -> float:
    """Images of the fullest process relative to an even share, if process r keeps the ids that equal r modulo R."""
    ids = np.array([image for tier in (memory.stm, memory.ltm) for held in tier.ids for image in held])
    return round(float(np.bincount(ids % ranks, minlength=ranks).max() * ranks / len(ids)), 2)


# -- modelled ------------------------------------------------------------------------------------------------------


def model_step(given: argparse.Namespace, name: str, ranks: int, grows: bool, host_ms: float) -> dict[str, Any]:
    """One step of CLIMB with ``ranks`` processes, each with rows of its own if ``grows``."""
    workload = WORKLOADS[name]
    network = build_network(workload["backbone"], workload["side"], generator=torch.Generator().manual_seed(0))
    stream, replay = (STREAM * ranks, REPLAY * ranks) if grows else (STREAM, REPLAY)
    sent = traffic(network, ranks, stream=stream, replay=replay, side=workload["side"])
    dim, rows = network.embedding_dim, stream + replay
    forwards = 3 * 2 * rows + 2 * replay  # a backward costs two forwards
    split = forwards * workload["forward"] / ranks
    aligner = 2 * dim * network.bottleneck_dim
    whole = 3 * 2 * (2 * rows) ** 2 * dim + 3 * 2 * (2 * replay) * aligner  # similarities and the head on all rows
    launches = given.launch_ms / 1e3 * len(norms_of(network)) / RESNET18_NORMS  # independent of the number of rows
    compute = max((split + whole) / given.flops, launches)
    network_seconds = sum(sent.values()) / given.bandwidth + exchanges(network, ranks) * given.latency_us / 1e6
    decisions = host_ms / 1e3 * stream / PASSES
    step = compute + network_seconds + max(0.0, decisions - compute / 2)  # decisions overlap the backward
    return {
        "network": name,
        "rows": "grow" if grows else "shared",
        "R": ranks,
        "images": stream + replay,
        **{f"{kind}_MB": round(value / 1e6, 2) for kind, value in sent.items()},
        "compute_ms": round(1e3 * compute, 1),
        "network_ms": round(1e3 * network_seconds, 1),
        "decisions_ms": round(1e3 * decisions, 2),
        "step_ms": round(1e3 * step, 1),
        "stream_images_per_s": round(stream / PASSES / step),
    }


def traffic(network: Network, ranks: int, *, stream: int, replay: int, side: int) -> dict[str, float]:
    """Bytes that one process receives in a step, by kind, exactly as `climb.parallel` sends them."""
    others = (ranks - 1) / ranks
    dim, hidden = network.embedding_dim, network.bottleneck_dim
    aligner = 2 * dim * hidden + 2 * hidden + dim
    parameters = sum(parameter.numel() for parameter in network.parameters()) + aligner
    outputs = 2 * (stream + replay) * (network.feature_dim + dim)
    channels = [norm.num_features for norm in norms_of(network)]
    gathered = 2 * (ranks - 1) * sum(2 * count + 1 for count in channels)  # forwards of student and teacher
    return {
        "gradients": 2 * others * 4 * parameters,
        "embeddings": others * 4 * (outputs + 2 * replay * dim),
        "replay": others * replay / ranks * 3 * side * side,
        "statistics": 4 * (gathered + 2 * others * 2 * sum(channels)),
    }


def exchanges(network: Network, ranks: int) -> int:
    """Number of times that all processes wait for each other in a step."""
    if ranks == 1:
        return 0
    return 3 * len(norms_of(network)) + 4  # forward, backward and teacher; embeddings, teacher's, replay, gradients


def norms_of(network: Network) -> list[nn.modules.batchnorm._BatchNorm]:
    """Its batch norms. There is one per convolution, so their number also gives the number of launched kernels."""
    return [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


if __name__ == "__main__":
    main()
