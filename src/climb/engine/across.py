"""What it takes for parts to be trained across processes."""

from __future__ import annotations

from climb.engine.batch import BatchRule
from climb.engine.parts import Parts
from climb.engine.rules import MixUp
from climb.errors import InputError
from climb.nets import Network
from climb.parallel import Group, share_statistics


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
