"""One of several processes that train together; the tests start them and read what each has saved.

python worker.py FOLDER CASE...        with the environment that torchrun would set
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from climb.engine import Engine, Parts, StreamAndReplay, TrainingBatch
from climb.errors import ClimbError, InputError
from climb.methods import METHODS, OBJECTIVES, PartFactory, choose_method, method, with_replay
from climb.methods.build import build_engine
from climb.parallel import SINGLE, Group, chunk, collect, joined, share_statistics
from climb.parallel.shards import ShardedStore
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import apply_preset

MEMORY = MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=100)
SIDE = 16


class Reversed(StreamAndReplay):
    """As someone else may write it: looks at the images that were drawn, and puts them in another order."""

    def __call__(self, stream: torch.Tensor, memory: Any, config: LearnerConfig, pass_number: int) -> TrainingBatch:
        batch = super().__call__(stream, memory, config, pass_number)
        rows = torch.cat([torch.arange(len(stream)), batch.is_replay.nonzero().flatten().flip(0)])
        bright = batch.images[batch.is_replay].float().mean((1, 2, 3)) > 0
        assert bright.all(), "every process has every image"
        return replace(batch, images=batch.images[rows], ids=batch.ids.flip(0))


@method("reversed", paper="a test", lr=0.1)
def reversed_method(factory: PartFactory) -> Parts:
    """A method with a batch rule that is not ours."""
    return replace(with_replay(factory, factory.centroid(), factory.ema_teacher()), batch=Reversed())


def images(n: int, seed: int) -> torch.Tensor:
    coarse = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return (255 * nn.functional.interpolate(coarse, SIDE, mode="bilinear")).to(torch.uint8)


def make_engine(group: Group, method: str = "climb", preset: str = "default", **changes: Any) -> Engine:
    config = LearnerConfig(backbone="micro", image_size=SIDE, replay_batch=8, memory=MEMORY)
    return build_engine(
        replace(choose_method(apply_preset(config, preset), method), **changes),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        seed=0,
        device=torch.device("cpu"),
        precision="float32",
        kind="eager",
        group=group,
    )


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested dicts and lists, with its place."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if pairs is None:
        yield name, tree
    else:
        for key, value in pairs:
            yield from leaves(value, f"{name}/{key}")


# -- cases ---------------------------------------------------------------------------------------------------------


def batch_norm(group: Group) -> Any:
    """Outputs, gradients and running statistics of batch norms over rows that the processes share unevenly."""
    found = {}
    for name, shape in {"1d": (7, 5), "2d": (7, 5, 3, 2), "one row": (1, 5, 3, 2)}.items():
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(shape, generator=generator, dtype=torch.float64) * 3 + 100
        weights = torch.randn(shape, generator=generator, dtype=torch.float64)
        norm = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(5).double()
        with torch.no_grad():
            norm.weight.uniform_(0.5, 2, generator=generator)
            norm.bias.uniform_(-1, 1, generator=generator)
        network = nn.Sequential(norm)
        share_statistics(network, group)
        mine = chunk(len(rows), group.rank, group.size)
        counts = [len(rows[chunk(len(rows), rank, group.size)]) for rank in range(group.size)]
        own = rows[mine].clone().requires_grad_()
        output = collect(network(own), counts, group)
        (output * weights).square().sum().backward()
        found[name] = {
            "rows": rows,
            "weights": weights,
            "output": output.detach(),
            "own": mine,
            "of_rows": own.grad,
            "of_weight": group.all_reduce(network[0].weight.grad.clone()),
            "of_bias": group.all_reduce(network[0].bias.grad.clone()),
            "state": network.state_dict(),
        }
    return found


def twenty_steps(group: Group) -> Any:
    """The same twenty steps by one process and by all: losses and whole states.

    At a low rate: training is chaotic. At 0.01, weights changed by a ten-millionth are as far off after twenty steps.
    """
    found = {}
    for name, processes in (("one", SINGLE), ("all", group)):
        engine = make_engine(processes, lr=0.001, passes=1, replay_batch=16)
        seen = [engine.observe(images(10, number)) for number in range(20)]
        state = engine.state_dict()
        found[name] = {
            "losses": [(float(step.objective), float(step.alignment)) for step in seen],
            "reports": [vars(step.report) for step in seen],
            "state": state,
        }
    kept = engine.parts.memory._images
    store, slots = kept.store, kept.slot_of
    assert isinstance(store, ShardedStore)
    found["share"] = {
        "ids": [image for image, slot in slots.items() if store._place[slot] >= 0],
        "kept": int((store._place >= 0).sum()),
        "images": {image: store._kept[store._place[slot]] for image, slot in slots.items() if store._place[slot] >= 0},
        "nbytes": store.nbytes,
        "stored": len(engine.parts.memory),
    }
    return found


def every_method(group: Group) -> Any:
    """One mini-batch at a time, from the same state, by one process and by all: how far apart they end."""
    cases: list[tuple[str, str, dict[str, Any]]] = [
        (name, "default", {}) for name in METHODS if not METHODS[name].custom_engine
    ]
    cases += [("climb", "paper", {}), ("climb", "reference", {})]
    cases += [("climb", "default", {"refresh_mode": "updated", "embed_mode": "eval"})]
    cases += [("climb", "default", {"objective": name}) for name in OBJECTIVES if name != "simclr"]
    found = {}
    for chosen, preset, changes in cases:
        settings = {"passes": 1, "lr": 0.001, **changes}
        one = make_engine(SINGLE, chosen, preset, **settings)
        worst, different = 0.0, []
        # Fewer images than processes, where there is replay beside them: batch norm of one image alone is but noise.
        for number, n in enumerate((10, 10 if chosen in ("finetune", "cla-b", "climb-none", "lump") else 1)):
            shared = make_engine(group, chosen, preset, **settings)
            shared.load_state_dict(one.state_dict())
            batch = images(18 if chosen == "iid" else n, number)
            alone_saw = one.observe(batch)
            together_saw = shared.observe(batch)
            after = dict(leaves(shared.state_dict()))
            for name, value in leaves(one.state_dict()):
                if not isinstance(value, torch.Tensor):
                    continue
                if not value.is_floating_point():
                    different += [] if torch.equal(value, after[name]) else [name]
                elif value.numel():
                    close = (value.nan_to_num() - after[name].nan_to_num()).abs() / (value.nan_to_num().abs().max() + 1)
                    worst = max(worst, float(close.max()))
            worst = max(worst, abs(float(alone_saw.objective) - float(together_saw.objective)))
        found[f"{chosen} {preset} {changes}"] = (worst, different)
    return found


def refusals(group: Group) -> Any:
    """What is said of what cannot be trained across processes."""

    def said(attempt: Callable[[], object]) -> str:
        try:
            attempt()
        except (InputError, ClimbError) as error:
            return str(error)
        return ""

    from climb.engine import BatchRule, resolve_engine
    from climb.engine.parts import prepare_across

    class Shuffled(BatchRule):
        def mix(self, views: Any, stream_rows: Any, replay_rows: Any, *, drawn: Any) -> Any:
            return super().mix(views.flip(1), stream_rows, replay_rows, drawn=drawn)

    parts = replace(make_engine(group, "finetune").parts, batch=Shuffled())
    return {
        "pcmc": said(lambda: make_engine(group, "pcmc")),
        "captured": said(lambda: resolve_engine("captured", torch.device("cuda"), group)),
        "auto": resolve_engine("auto", torch.device("cuda"), group),
        "mix": said(lambda: prepare_across(parts, group)),
        "agree": said(lambda: group.check_agreement(1, 2)),
        "disagree": said(lambda: group.check_agreement(1, group.rank)),
    }


def traffic(group: Group) -> Any:
    """What the numbers behind the page on scaling say that a step sends, and what it sends."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import scale

    engine = make_engine(group, passes=1)
    for number in range(3):
        engine.observe(images(10, number))
    network = engine.parts.network
    counted = {"bytes": 0, "exchanges": 0}
    gather, reduce, exchange = dist.all_gather, dist.all_reduce, dist.all_to_all_single

    def count(received: float) -> None:
        counted["bytes"] += round(received)
        counted["exchanges"] += 1

    def counting_gather(out: list[torch.Tensor], own: torch.Tensor) -> None:
        count((group.size - 1) * own.nbytes)
        gather(out, own)

    def counting_reduce(tensor: torch.Tensor) -> None:
        count(2 * (group.size - 1) / group.size * tensor.nbytes)
        reduce(tensor)

    def counting_exchange(out: torch.Tensor, own: torch.Tensor, received: list[int], sent: list[int]) -> None:
        count((len(out) - received[group.rank]) * own[:1].nbytes)
        exchange(out, own, received, sent)

    dist.all_gather, dist.all_reduce, dist.all_to_all_single = counting_gather, counting_reduce, counting_exchange
    try:
        engine.observe(images(10, 3))
    finally:
        dist.all_gather, dist.all_reduce, dist.all_to_all_single = gather, reduce, exchange
    return {
        "sent": counted,
        "said": scale.traffic(network, group.size, stream=10, replay=8, side=SIDE),
        "exchanges": scale.exchanges(network, group.size),
        "image": 3 * SIDE * SIDE,
    }


def growth(group: Group) -> Any:
    """A store whose images all happen to belong to the first process; what comes back, and room made."""
    store = ShardedStore(9, (3, 2, 2), "cpu", group)
    shades = torch.arange(9, dtype=torch.uint8).view(9, 1, 1, 1).expand(9, 3, 2, 2)
    room = [store.nbytes // 12]
    slots = store.put(shades, [group.size * number for number in range(9)])
    room.append(store.nbytes // 12)
    store.release(slots[:3])
    again = store.put(shades[:2] + 100, [0, 1])
    kept = [*again, *slots[3:]]
    with group.own_share_only():
        own = store.get(kept)[:, 0, 0, 0].tolist()
    return {
        "room": room,
        "kept": int((store._place >= 0).sum()),
        "got": store.get(kept)[:, 0, 0, 0].tolist(),
        "own": own,
        "none": tuple(store.get([]).shape),
        "stored": len(store),
    }


CASES = {
    "batch_norm": batch_norm,
    "twenty_steps": twenty_steps,
    "every_method": every_method,
    "refusals": refusals,
    "growth": growth,
    "traffic": traffic,
}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    with joined(torch.device("cpu")) as group:
        for case in sys.argv[2:]:
            torch.save(CASES[case](group), folder / f"{case}-{group.rank}.pt")


if __name__ == "__main__":
    main()
