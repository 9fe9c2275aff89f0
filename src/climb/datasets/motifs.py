"""The patterns of the synthetic classes: what one cell of each texture looks like.

A motif maps cell coordinates ``u, v`` (one cell is one unit, the pattern repeats in every cell) to a signed
distance in cell units, positive on the ink. No motif is a rotation, a mirror image or a change of scale of
another one: turning or flipping an image cannot change its class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from climb.errors import InputError
from climb.seeds import numpy_generator

Motif = Callable[[Tensor, Tensor], Tensor]
"""``motif(u, v)`` with u and v float (n, H, W) gives the signed distance (n, H, W)."""

STENCIL_SIDE = 5
MOST_CLASSES = 10_000


def _centred(t: Tensor) -> Tensor:
    """Position inside the cell, in -0.5 .. 0.5, zero at the cell's centre."""
    return t - torch.floor(t) - 0.5


def _box(x: Tensor, y: Tensor, width: float, height: float) -> Tensor:
    return torch.minimum(width - x.abs(), height - y.abs())


def _stripes(u: Tensor, v: Tensor) -> Tensor:
    return 0.25 - _centred(u).abs()


def _dots(u: Tensor, v: Tensor) -> Tensor:
    return 0.28 - torch.hypot(_centred(u), _centred(v))


def _checks(u: Tensor, v: Tensor) -> Tensor:
    a, b = 0.25 - _centred(u).abs(), 0.25 - _centred(v).abs()
    return torch.sign(a * b) * torch.minimum(a.abs(), b.abs())


def _rings(u: Tensor, v: Tensor) -> Tensor:
    return 0.09 - (torch.hypot(_centred(u), _centred(v)) - 0.32).abs()


def _crosses(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return torch.maximum(_box(x, y, 0.11, 0.43), _box(x, y, 0.43, 0.11))


def _zigzag(u: Tensor, v: Tensor) -> Tensor:
    return 0.18 - 0.75 * _centred(u + _centred(v).abs()).abs()


def _triangles(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v) + 0.1
    return 0.21 - torch.maximum(0.866 * x.abs() + 0.5 * y, -y)


def _bricks(u: Tensor, v: Tensor) -> Tensor:
    row = torch.floor(2 * v)
    x, y = _centred(u + 0.5 * (row % 2)), 0.5 * _centred(2 * v)
    return 0.06 - torch.minimum(0.5 - x.abs(), 0.25 - y.abs())


def _crescents(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return torch.minimum(0.42 - torch.hypot(x, y), torch.hypot(x - 0.2, y) - 0.32)


def _weave(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    lying = (torch.floor(u) + torch.floor(v)) % 2 == 0
    return torch.where(lying, _box(x, y, 0.42, 0.15), _box(x, y, 0.15, 0.42))


def _bullseyes(u: Tensor, v: Tensor) -> Tensor:
    radius = torch.hypot(_centred(u), _centred(v))
    return torch.maximum(0.15 - radius, 0.07 - (radius - 0.38).abs())


def _ribbons(u: Tensor, v: Tensor) -> Tensor:
    x = _centred(u)
    return torch.maximum(0.16 - (x + 0.2).abs(), 0.06 - (x - 0.25).abs())


def _corners(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return torch.maximum(_box(x + 0.25, y, 0.1, 0.38), _box(x, y + 0.28, 0.36, 0.1))


def _tees(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return torch.maximum(_box(x, y, 0.09, 0.38), _box(x, y + 0.28, 0.4, 0.1))


def _stars(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return 0.27 + 0.13 * torch.cos(5 * torch.atan2(y, x)) - torch.hypot(x, y)


def _trefoils(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return 0.24 + 0.18 * torch.cos(3 * torch.atan2(y, x)) - torch.hypot(x, y)


def _dashes(u: Tensor, v: Tensor) -> Tensor:
    column = torch.floor(2 * u)
    return _box(0.5 * _centred(2 * u), _centred(v + 0.5 * (column % 2)), 0.11, 0.34)


def _pairs(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return torch.maximum(0.2 - torch.hypot(x + 0.22, y), 0.1 - torch.hypot(x - 0.25, y))


def _scales(u: Tensor, v: Tensor) -> Tensor:
    row = torch.floor(2 * v)
    x, y = _centred(u + 0.5 * (row % 2)), 0.5 * (_centred(2 * v) + 0.5)
    return 0.07 - (torch.hypot(x, y) - 0.45).abs()


def _grid(u: Tensor, v: Tensor) -> Tensor:
    return 0.09 - torch.minimum(_centred(u).abs(), _centred(v).abs())


def _half_discs(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    return torch.minimum(0.4 - torch.hypot(x, y), y)


def _arrows(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    head = torch.minimum(0.1 - (y + 0.3 - x.abs()).abs() * 0.7, 0.34 - x.abs())
    return torch.maximum(head, _box(x, y - 0.03, 0.07, 0.36))


_DRAWN: dict[str, Motif] = {
    "crosses": _crosses,
    "stripes": _stripes,
    "rings": _rings,
    "checks": _checks,
    "triangles": _triangles,
    "zigzag": _zigzag,
    "dots": _dots,
    "bricks": _bricks,
    "crescents": _crescents,
    "weave": _weave,
    "ribbons": _ribbons,
    "bullseyes": _bullseyes,
    "trefoils": _trefoils,
    "dashes": _dashes,
    "corners": _corners,
    "scales": _scales,
    "pairs": _pairs,
    "grid": _grid,
    "stars": _stars,
    "half-discs": _half_discs,
    "tees": _tees,
    "arrows": _arrows,
}


def motifs(count: int) -> dict[str, Motif]:
    """The first ``count`` motifs by name: drawn ones, then random stencils. A longer list begins like a shorter.

    >>> list(motifs(3))
    ['crosses', 'stripes', 'rings']
    >>> list(motifs(100))[-1]
    'stencil-78'
    """
    if not 1 <= count <= MOST_CLASSES:
        raise InputError(f"classes={count} is impossible for synthetic images; allowed: 1 to {MOST_CLASSES}")
    chosen = dict(list(_DRAWN.items())[:count])
    for number, bits in enumerate(_stencils(count - len(chosen)), start=1):
        chosen[f"stencil-{number}"] = functools.partial(_stencil, bits)
    return chosen


def _stencil(bits: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """A repeated stencil, its bits joined by bilinear interpolation so that edges are smooth."""
    side = STENCIL_SIDE
    x, y = u * side, v * side
    left, top = torch.floor(x), torch.floor(y)
    fx, fy = x - left, y - top
    i, j = left.long() % side, top.long() % side
    right, below = (i + 1) % side, (j + 1) % side
    upper = bits[j, i] * (1 - fx) + bits[j, right] * fx
    lower = bits[below, i] * (1 - fx) + bits[below, right] * fx
    return (upper * (1 - fy) + lower * fy - 0.5) / side


@functools.lru_cache(maxsize=8)
def _stencils(count: int) -> tuple[Tensor, ...]:
    """``count`` stencils, no two alike up to rotation, mirror image, shift and inversion."""
    side = STENCIL_SIDE
    draws = numpy_generator(0, "synthetic/stencils")
    alike = _symmetries()
    weights = 2 ** np.arange(side * side, dtype=np.int64)
    found: dict[int, Tensor] = {}
    while len(found) < count:
        bits = draws.permutation(side * side) < draws.integers(9, 14)
        codes = bits[alike] @ weights
        canonical = int(min(codes.min(), (weights.sum() - codes).min()))
        found.setdefault(canonical, torch.from_numpy(bits.reshape(side, side).astype(np.float32)))
    return tuple(found.values())


def _symmetries() -> npt.NDArray[np.int64]:
    """Index arrays (200, 25) of all rotations, mirror images and cyclic shifts of a flat stencil."""
    side = STENCIL_SIDE
    cells = np.arange(side * side).reshape(side, side)
    turned = [np.rot90(face, k) for face in (cells, cells.T) for k in range(4)]
    shifts = [(i, j) for i in range(side) for j in range(side)]
    return np.stack([np.roll(t, shift, (0, 1)).ravel() for t in turned for shift in shifts])
