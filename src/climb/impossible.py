"""Settings that no engine could be built from: refused before any work."""

from __future__ import annotations

from dataclasses import replace

from climb.config import LearnerConfig, MemoryConfig, check_learner
from climb.errors import InputError
from climb.memory import CentroidMemory, ReferenceMemory
from climb.memory.limits import check_rules, check_sizes
from climb.methods import find_method, kind_of_memory, own_objective, small_parts
from climb.nets import check_backbone
from climb.workshop import find_objective


def check_config(config: LearnerConfig) -> None:
    """Refuse, before any work, what no engine could be built from."""
    check_learner(config)
    method = find_method(config.method)
    find_objective(config.objective)
    if method.own_loop and config.views != LearnerConfig.views:
        raise InputError(f"method '{config.method}' makes its own views; leave --views out")
    if config.objective != LearnerConfig.objective:
        _check_objective(config.method, config.objective)
    check_backbone(config.backbone, config.image_size)
    _check_rules(config.memory)
    if issubclass(kind_of_memory(method), CentroidMemory | ReferenceMemory):
        _check_centroids(config.memory)


def _check_objective(method: str, name: str) -> None:
    """Refuse an objective that the method would pass over, or could not learn by."""
    for configured in (LearnerConfig.objective, name):
        own = own_objective(small_parts(method, objective=configured), configured)
        if own is not None:
            # Nothing would come of it but other views and another projector under the same loss.
            raise InputError(f"method '{method}' brings its own objective ({own}); leave --objective out")


def _check_rules(memory: MemoryConfig) -> None:
    """Of any method: a memory that does not look at them is not told apart here, and no value outside is meant."""
    check_rules(
        memory.window,
        memory.prune,
        novelty_percentile=memory.novelty_percentile,
        stm_rate=memory.stm_rate,
        ltm_accept=memory.ltm_accept,
    )


def _check_centroids(memory: MemoryConfig) -> None:
    scaled = memory.stm_centroids is None and memory.ltm_centroids is None
    if scaled and min(memory.short_term, memory.long_term) < 1:
        least = _least_capacity(memory)
        raise InputError(
            f"capacity {memory.capacity} is too small for centroids of {memory.images_per_centroid} images; "
            + ("give stm_centroids and ltm_centroids, too" if least is None else f"give at least {least}")
        )
    check_sizes(memory.capacity, memory.short_term, memory.long_term, memory.images_per_centroid)


def _least_capacity(memory: MemoryConfig) -> int | None:
    """The fewest images that have room for a centroid of either kind, where both scale with the capacity.

    >>> _least_capacity(MemoryConfig()), _least_capacity(MemoryConfig(images_per_centroid=5))
    (31, 21)
    """
    for capacity in range(1, 100):  # with more there are several long-term centroids
        scaled = replace(memory, capacity=capacity)
        short, long = scaled.short_term, scaled.long_term
        if min(short, long) >= 1 and long * memory.images_per_centroid + short <= capacity:
            return capacity
    return None
