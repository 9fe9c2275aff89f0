"""What parts need to be trained across processes; nothing here exchanges anything, so one process can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from climb.engine import BatchRule, Engine, MemoryOnly, MixUp, StreamAndReplay
from climb.engine.parts import fetching, prepare_across
from climb.errors import InputError
from climb.methods import METHODS
from climb.nets import Network
from climb.parallel import GlobalBatchNorm, Group

Make = Callable[..., Engine]
TWO = Group(rank=0, size=2)


def norms(module: nn.Module | None) -> list[nn.Module]:
    return [found for found in module.modules() if isinstance(found, _BatchNorm)] if module is not None else []


@pytest.mark.parametrize(
    ("method", "changes"),
    [*((method, {}) for method in sorted(METHODS.keys() - {"pcmc"})), ("climb", {"objective": "byol"})],
)
def test_networks_share_statistics_in_whatever_part_they_are_and_heads_do_not(
    method: str, changes: dict[str, Any], make_engine: Make
) -> None:
    parts = make_engine(method, **changes).parts
    prepare_across(parts, Group())
    pieces = [piece for piece in (parts.network, parts.objective, parts.alignment) if piece is not None]
    assert not any(isinstance(norm, GlobalBatchNorm) for piece in pieces for norm in norms(piece))
    prepare_across(parts, TWO)
    networks = [module for piece in pieces for module in piece.modules() if isinstance(module, Network)]
    split = {id(norm) for network in networks for norm in norms(network)}
    assert split
    for norm in (norm for piece in pieces for norm in norms(piece)):
        assert isinstance(norm, GlobalBatchNorm) == (id(norm) in split)


class Doubled(StreamAndReplay):
    """Someone's own rule, which mixes rows in a way that a process with some of them cannot follow."""

    def mix(self, views: torch.Tensor, *rows: Any, drawn: Any) -> Any:
        return super().mix(views + views.flip(1), *rows, drawn=drawn)


def test_a_rule_that_mixes_in_a_way_of_its_own_is_for_one_process(make_engine: Make) -> None:
    parts = replace(make_engine().parts, batch=Doubled())
    prepare_across(parts, Group())
    with pytest.raises(InputError, match="Doubled mixes rows in a way of its own"):
        prepare_across(parts, TWO)
    assert not any(isinstance(norm, GlobalBatchNorm) for norm in norms(parts.network))


class Reversed(StreamAndReplay):
    """Someone's own rule, which does not take a draw into the batch as it is."""

    def __call__(self, *arguments: Any) -> Any:
        batch = super().__call__(*arguments)
        return type(batch)(**{**vars(batch), "images": batch.images.flip(0)})


@pytest.mark.parametrize(
    ("rule", "size", "own"),
    [
        (StreamAndReplay(), 2, True),
        (MemoryOnly(), 2, True),
        (MixUp(), 2, True),
        (Reversed(), 2, False),
        (BatchRule(), 2, False),  # draws nothing
        (StreamAndReplay(), 1, False),
    ],
)
def test_only_for_rules_that_keep_its_order_a_draw_comes_in_parts(rule: BatchRule, size: int, own: bool) -> None:
    group = Group(size=size)
    with fetching(rule, group):
        assert group.fetches_own_share == own
    assert not group.fetches_own_share
