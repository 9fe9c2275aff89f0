"""Adapt a pretrained encoder to a stream of domains, and compare it with its start.

    python benchmarks/adapt.py --images pacs --size 112 --subset 0.4 --part validation lr=0.0005,0.001,0.002
    python benchmarks/adapt.py --images pacs --size 112 --subset 0.4 method=climb,climb-fifo,climb-reservoir,climb-none
    python benchmarks/adapt.py --images pacs --size 128 --seeds 5 --json results/adapt-pacs/headline.jsonl

``--images`` is a folder DOMAIN/CLASS/IMAGE. Every fifth image of each class and domain is a test image and never
learned. With ``--subset``, so large a share of the others is learned; validation images come from the rest. Each
SETTING=VALUES, as in climb tune, is varied alone. Start, student and averages between them are probed: ridge, cosine
neighbours, and three labels per class and domain (mean of ten draws). ``--clips`` makes a redundant stream: so many
images, twenty frames each, with slow pans, zooms and changes of light. A line of JSON per run; finished ones are not
repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from climb.datasets import Dataset, load
from climb.engine import Engine, choose, resolve_device
from climb.evaluation.audit import audit
from climb.evaluation.features import extract_features
from climb.evaluation.measured import Measured
from climb.evaluation.three_probes import Rows, quick_predictions, quick_probes
from climb.methods.build import build_engine
from climb.nets import StartAverage, weights_of
from climb.precision import threads
from climb.resolve import resolve, with_settings
from climb.seeds import torch_generator
from climb.settings.config import LearnerConfig, MemoryConfig, RunConfig

FRAMES = 20
SHOTS, DRAWS = 3, 10
MOST_VALIDATION = 2000
AUDITED = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="SETTING=VALUE,VALUE")
    parser.add_argument("--images", required=True)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--subset", type=float, default=1.0, help="share of the training images that is learned")
    parser.add_argument("--part", choices=["validation", "test"], default="test")
    parser.add_argument("--order", default="photo,art_painting,cartoon,sketch")
    parser.add_argument("--clips", type=int, default=0)
    parser.add_argument("--audit", action="store_true")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--shares", type=float, nargs="*", default=[0.0, 0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", default=None)
    asked = parser.parse_args()
    data = load("domains", root=asked.images, image_size=asked.size, seed=0)
    learned, probed = parts_of(data, asked.subset, asked.part)
    done = [json.loads(line)["run"] for line in read_lines(asked.json)]
    varied: list[dict[str, Any]] = [{}]
    if asked.settings:
        pairs = [setting.split("=", 1) for setting in asked.settings]
        varied = [{name: json_value(value)} for name, values in pairs for value in values.split(",")]
    for seed in range(asked.seeds):
        for changes in varied:
            keys = ("backbone", "size", "subset", "part", "order", "clips", "audit", "shares")
            run = {**{key: getattr(asked, key) for key in keys}, "seed": seed, "settings": changes}
            if run in done:
                continue
            with threads(asked.threads):
                line = json.dumps({"run": run, **one_run(asked, data, learned, probed, changes, seed)})
            print(line, flush=True)
            if asked.json:
                with open(asked.json, "a") as file:
                    file.write(line + "\n")


def one_run(
    asked: argparse.Namespace,
    data: Dataset,
    learned: torch.Tensor,
    probed: tuple[torch.Tensor, torch.Tensor],
    changes: dict[str, Any],
    seed: int,
) -> dict[str, Any]:
    """Adapt once, and probe."""
    base = LearnerConfig(
        backbone=asked.backbone, image_size=asked.size, weights="pretrained", replay_batch=32, passes=1,
        memory=MemoryConfig(capacity=1000),
    )  # fmt: skip
    options = {name: value for name, value in changes.items() if name in ("method", "preset")}
    config = with_settings(resolve(RunConfig(learner=base), options), changes).learner
    start = weights_of(config)
    assert start is not None
    assert start.mean is not None
    assert start.std is not None
    device = resolve_device(asked.device)
    choices = choose(device=device)
    engine = build_engine(
        replace(config, student_share=0.5), mean=start.mean, std=start.std, seed=seed, device=device,
        precision=choices.precision, kind="eager", layout=choices.layout,
    )  # fmt: skip
    average = engine.parts.average
    assert average is not None
    began = time.monotonic()
    for batch in stream(data, learned, asked.order.split(","), clips=asked.clips, seed=seed):
        engine.observe(batch)
    seconds = time.monotonic() - began
    result = {
        "train_seconds": round(seconds, 1),
        "precision": choices.precision,
        "guard": 0 if engine.guard is None else engine.guard.failures,
        "shares": {},
    }
    for share in asked.shares:
        result["shares"][f"{share:g}"] = accuracies(engine, average, share, data, learned, probed, audited=asked.audit)
    return result


def accuracies(
    engine: Engine,
    average: StartAverage,
    share: float,
    data: Dataset,
    learned: torch.Tensor,
    probed: tuple[torch.Tensor, torch.Tensor],
    *,
    audited: bool,
) -> dict[str, Any]:
    """The probes of the average with a share of the student."""
    average.share = share
    average.update(engine.parts.network)

    def encode(images: torch.Tensor) -> torch.Tensor:
        encoder = average.network.encoder
        plain = engine.augment.plain
        return extract_features(encoder, images, plain, device=engine.device, precision=engine.precision).cpu()

    images, labels, domains = probed_part(data, probed)
    train: Rows = (encode(data.train.images[learned]), data.train.labels[learned])
    test: Rows = (encode(images), labels)
    found = {name: round(each.accuracy, 2) for name, each in quick_probes(train, test, seed=0).items()}
    answers = quick_predictions(train, test[0], seed=0)["ridge"] == labels
    assert data.train.domains is not None
    found["shots"] = round(few_shot(train, data.train.domains[learned], test).accuracy, 2)
    found["domains"] = {
        name: round(100 * float(answers[domains == number].float().mean()), 2)
        for number, name in enumerate(data.domains)
    }
    if audited:
        some = learned[torch.linspace(0, len(learned) - 1, min(AUDITED, len(learned))).long()]
        rows = audit({"encoder": encode}, data.train.images[some], seed=0)
        found["audit"] = {row.name: round(row.measured["encoder"].accuracy, 2) for row in rows}
    return found


def few_shot(train: Rows, domains: torch.Tensor, test: Rows) -> Measured:
    """Ridge accuracy from three labels per class and domain, one value per draw."""
    strata = train[1] * (int(domains.max()) + 1) + domains
    values = []
    for draw in range(DRAWS):
        order = torch.randperm(len(strata), generator=torch_generator(draw, "shots"))
        rows = torch.cat([order[strata[order] == stratum][:SHOTS] for stratum in torch.unique(strata)])
        predicted = quick_predictions((train[0][rows], train[1][rows]), test[0], seed=draw)["ridge"]
        values.append(Measured.of_answers(predicted == test[1]).accuracy)
    return Measured(values=torch.tensor(values, dtype=torch.float64).numpy())


# -- data ----------------------------------------------------------------------------------------------------------


def parts_of(data: Dataset, subset: float, part: str) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Rows of the training images to learn; and rows of the training and of the test images to probe on."""
    assert data.train.domains is not None
    strata = data.train.labels * len(data.domains) + data.train.domains
    learned, rest = [], []
    for stratum in torch.unique(strata):
        rows = torch.nonzero(strata == stratum).flatten()
        rows = rows[torch.randperm(len(rows), generator=torch_generator(0, f"subset/{stratum}"))]
        count = round(subset * len(rows))
        learned.append(rows[:count])
        rest.append(rows[count:])
    none = torch.zeros(0, dtype=torch.int64)
    if part == "test":
        return torch.cat(learned), (none, torch.arange(len(data.test.labels)))
    validation = torch.cat(rest)
    if len(validation) == 0:
        raise SystemExit("validation images are training images that are not learned: give a --subset below 1")
    order = torch.randperm(len(validation), generator=torch_generator(0, "validation"))
    return torch.cat(learned), (validation[order[:MOST_VALIDATION]], none)


def probed_part(data: Dataset, probed: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Images, labels and domains to probe on."""
    part, rows = (data.train, probed[0]) if len(probed[0]) else (data.test, probed[1])
    assert part.domains is not None
    return part.images[rows], part.labels[rows], part.domains[rows]


def stream(data: Dataset, learned: torch.Tensor, order: list[str], *, clips: int, seed: int) -> Iterator[torch.Tensor]:
    """Mini-batches of ten images: one domain after another, shuffled within each."""
    assert data.train.domains is not None
    generator = torch_generator(seed, "stream")
    rows = []
    for name in order:
        own = learned[data.train.domains[learned] == data.domains.index(name)]
        rows.append(own[torch.randperm(len(own), generator=generator)])
    arrival = torch.cat(rows)
    if clips:
        for row in arrival[torch.linspace(0, len(arrival) - 1, clips).long()]:
            yield from torch.split(frames(data.train.images[row], generator), 10)
        return
    yield from torch.split(data.train.images[arrival], 10)


def frames(image: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Twenty frames of an image (3, S, S): a slow pan, a zoom and a change of light."""

    def path(low: float, high: float) -> torch.Tensor:
        ends = low + (high - low) * torch.rand(2, generator=generator)
        return torch.linspace(float(ends[0]), float(ends[1]), FRAMES)

    zoom, light = path(0.7, 1.0), path(0.8, 1.2)
    matrix = torch.zeros(FRAMES, 2, 3)
    matrix[:, 0, 0] = matrix[:, 1, 1] = zoom
    matrix[:, 0, 2], matrix[:, 1, 2] = path(-1.0, 1.0) * (1 - zoom), path(-1.0, 1.0) * (1 - zoom)
    many = image.float().expand(FRAMES, -1, -1, -1)
    grid = F.affine_grid(matrix, list(many.shape), align_corners=False)
    shown = F.grid_sample(many, grid, padding_mode="reflection", align_corners=False)
    return (shown * light.view(-1, 1, 1, 1)).clamp(0, 255).round().to(torch.uint8)


def read_lines(path: str | None) -> list[str]:
    file = Path(path) if path else None
    return file.read_text().splitlines() if file is not None and file.exists() else []


def json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
