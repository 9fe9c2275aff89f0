"""What it takes for parts to be trained across processes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from climb.engine.batch import BatchRule, StreamAndReplay
from climb.engine.parts import Parts
from climb.engine.rules import MemoryOnly, MixUp
from climb.errors import InputError
from climb.nets import Network
from climb.parallel import Group, own_share_only, share_statistics


def prepare_across(parts: Parts, group: Group) -> None:
    """Ready the parts for processes that share each batch; for one process, leave them as they are.

    Networks see the rows of one process, so their batch norms exchange statistics. The heads of objectives and
    alignments see all rows in every process, and stay as they are.
    """
    if group.size == 1:
        return
    if type(parts.batch).mix not in (BatchRule.mix, MixUp.mix):
        raise InputError(
            f"{type(parts.batch).__name__} mixes rows in a way of its own, and processes that each have some of the "
            "rows cannot follow it: train it in one process"
        )
    for part in (parts.network, parts.objective, parts.alignment):
        for module in list(part.modules()) if part is not None else []:
            if isinstance(module, Network):
                share_statistics(module, group)


def fetching(rule: BatchRule, group: Group) -> AbstractContextManager[None]:
    """Around a call of the rule: what it draws from the memory comes to each process whole, or only its own rows.

    Our rules take a draw into the batch as it is, all of it and in its order, so that it is known who will train on
    which image. A rule that someone else wrote may look at the images or shuffle them.
    """
    ours = type(rule).__call__ in (StreamAndReplay.__call__, MemoryOnly.__call__, MixUp.__call__)
    return own_share_only() if ours and group.size > 1 else nullcontext()
