"""What a centroid memory can be built with; everything else is refused with the inequality spelled out."""

from __future__ import annotations

from typing import Literal

from climb.errors import InputError, unknown

PRUNING: tuple[Literal["anchor", "selective"], ...] = ("anchor", "selective")


def check_sizes(capacity: int, stm_centroids: int, ltm_centroids: int, images_per_centroid: int) -> None:
    """Refuse sizes for which the bound could not be kept by pruning the short-term memory alone."""
    if min(stm_centroids, ltm_centroids) < 1:
        raise InputError(
            "stm_centroids and ltm_centroids must be at least 1: "
            f"stm_centroids >= 1 and ltm_centroids >= 1; given {stm_centroids} and {ltm_centroids}"
        )
    if images_per_centroid < 2:
        raise InputError(f"images_per_centroid must be at least 2: M >= 2; given {images_per_centroid}")
    needed = ltm_centroids * images_per_centroid + stm_centroids
    if needed > capacity:
        raise InputError(
            "ltm_centroids * images_per_centroid + stm_centroids must not exceed capacity (K * M + L <= N): "
            f"{ltm_centroids} * {images_per_centroid} + {stm_centroids} = {needed} > {capacity}"
        )


def check_rules(window: int, prune: str, **fractions: float) -> None:
    """Refuse a window without room, an unknown pruning strategy, or a fraction outside 0..1."""
    if window < 1:
        raise InputError(f"window must be at least 1; given {window}")
    if prune not in PRUNING:
        raise unknown("pruning strategy", prune, PRUNING)
    check_fractions(**fractions)


def check_fractions(**fractions: float) -> None:
    """Refuse values outside 0..1.

    >>> check_fractions(stm_rate=0.1)
    """
    for name, value in fractions.items():
        if not 0 <= value <= 1:
            raise InputError(f"{name} must be in 0..1: 0 <= {name} <= 1; given {value}")
