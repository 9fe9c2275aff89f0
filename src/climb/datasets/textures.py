"""The textures of the synthetic classes.

A texture maps cell coordinates ``u, v`` to a signed distance in cell units, positive on the ink. A cell is one unit
wide and repeats. No texture is a rotation, a mirror image or a rescaled copy of another one, so turning or flipping an
image cannot change its class.
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

Texture = Callable[[Tensor, Tensor], Tensor]
"""``texture(u, v)`` takes floats (n, H, W) and gives the signed distance (n, H, W)."""

STENCIL_SIDE = 5
MAX_CLASSES = 10_000


def _centred(t: Tensor) -> Tensor:
    """Position inside the cell: -0.5 .. 0.5, zero at its centre."""
    return t - torch.floor(t) - 0.5


def _in_cell(distance: Texture) -> Texture:
    """The texture that repeats a shape, given by the distance at positions ``x, y`` inside the cell."""
    return lambda u, v: distance(_centred(u), _centred(v))


def _in_rows(distance: Texture) -> Texture:
    """As `_in_cell`, in rows of half a cell, every other one shifted by half a cell."""
    return lambda u, v: distance(_centred(u + 0.5 * (torch.floor(2 * v) % 2)), 0.5 * _centred(2 * v))


def _box(x: Tensor, y: Tensor, width: float, height: float) -> Tensor:
    return torch.minimum(width - x.abs(), height - y.abs())


def _disc(x: Tensor, y: Tensor, radius: float) -> Tensor:
    return radius - torch.hypot(x, y)


def _checks(x: Tensor, y: Tensor) -> Tensor:
    a, b = 0.25 - x.abs(), 0.25 - y.abs()
    return torch.sign(a * b) * torch.minimum(a.abs(), b.abs())


def _bullseyes(x: Tensor, y: Tensor) -> Tensor:
    radius = torch.hypot(x, y)
    return torch.maximum(0.15 - radius, 0.07 - (radius - 0.38).abs())


def _petals(x: Tensor, y: Tensor, count: int, radius: float, height: float) -> Tensor:
    return radius + height * torch.cos(count * torch.atan2(y, x)) - torch.hypot(x, y)


def _arrows(x: Tensor, y: Tensor) -> Tensor:
    head = torch.minimum(0.1 - (y + 0.3 - x.abs()).abs() * 0.7, 0.34 - x.abs())
    return torch.maximum(head, _box(x, y - 0.03, 0.07, 0.36))


def _weave(u: Tensor, v: Tensor) -> Tensor:
    x, y = _centred(u), _centred(v)
    lying = (torch.floor(u) + torch.floor(v)) % 2 == 0
    return torch.where(lying, _box(x, y, 0.42, 0.15), _box(x, y, 0.15, 0.42))


_DESIGNED: dict[str, Texture] = {
    "crosses": _in_cell(lambda x, y: torch.maximum(_box(x, y, 0.11, 0.43), _box(x, y, 0.43, 0.11))),
    "stripes": _in_cell(lambda x, y: 0.25 - x.abs()),
    "rings": _in_cell(lambda x, y: 0.09 - (torch.hypot(x, y) - 0.32).abs()),
    "checks": _in_cell(_checks),
    "triangles": _in_cell(lambda x, y: 0.21 - torch.maximum(0.866 * x.abs() + 0.5 * (y + 0.1), -(y + 0.1))),
    "zigzag": lambda u, v: 0.18 - 0.75 * _centred(u + _centred(v).abs()).abs(),
    "dots": _in_cell(lambda x, y: _disc(x, y, 0.28)),
    "bricks": _in_rows(lambda x, y: 0.06 - torch.minimum(0.5 - x.abs(), 0.25 - y.abs())),
    "crescents": _in_cell(lambda x, y: torch.minimum(_disc(x, y, 0.42), -_disc(x - 0.2, y, 0.32))),
    "weave": _weave,
    "ribbons": _in_cell(lambda x, y: torch.maximum(0.16 - (x + 0.2).abs(), 0.06 - (x - 0.25).abs())),
    "bullseyes": _in_cell(_bullseyes),
    "trefoils": _in_cell(lambda x, y: _petals(x, y, 3, 0.24, 0.18)),
    "dashes": lambda u, v: _in_rows(lambda y, x: _box(x, y, 0.11, 0.34))(v, u),  # in columns
    "corners": _in_cell(lambda x, y: torch.maximum(_box(x + 0.25, y, 0.1, 0.38), _box(x, y + 0.28, 0.36, 0.1))),
    "scales": _in_rows(lambda x, y: 0.07 - (torch.hypot(x, y + 0.25) - 0.45).abs()),
    "pairs": _in_cell(lambda x, y: torch.maximum(_disc(x + 0.22, y, 0.2), _disc(x - 0.25, y, 0.1))),
    "grid": _in_cell(lambda x, y: 0.09 - torch.minimum(x.abs(), y.abs())),
    "stars": _in_cell(lambda x, y: _petals(x, y, 5, 0.27, 0.13)),
    "half-discs": _in_cell(lambda x, y: torch.minimum(_disc(x, y, 0.4), y)),
    "tees": _in_cell(lambda x, y: torch.maximum(_box(x, y, 0.09, 0.38), _box(x, y + 0.28, 0.4, 0.1))),
    "arrows": _in_cell(_arrows),
}
"""The designed textures, in the order of the classes."""


def textures(count: int) -> dict[str, Texture]:
    """The first ``count`` textures by name: designed ones, then random stencils. A longer list extends a shorter one.

    >>> list(textures(3))
    ['crosses', 'stripes', 'rings']
    >>> list(textures(100))[-1]
    'stencil-78'
    """
    if not 1 <= count <= MAX_CLASSES:
        raise InputError(f"classes={count} is impossible for synthetic images; allowed: 1 to {MAX_CLASSES}")
    chosen = dict(list(_DESIGNED.items())[:count])
    for number, bits in enumerate(_stencils(count - len(chosen)), start=1):
        chosen[f"stencil-{number}"] = functools.partial(_stencil, bits)
    return chosen


def _stencil(bits: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """A repeated stencil. Bilinear interpolation between its bits smooths the edges."""
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
    """``count`` stencils that differ beyond rotation, reflection, shift and inversion."""
    side = STENCIL_SIDE
    generator = numpy_generator(0, "synthetic/stencils")
    symmetries = _symmetries()
    weights = 2 ** np.arange(side * side, dtype=np.int64)
    stencils: dict[int, Tensor] = {}
    while len(stencils) < count:
        bits = generator.permutation(side * side) < generator.integers(9, 14)
        codes = bits[symmetries] @ weights
        canonical = int(min(codes.min(), (weights.sum() - codes).min()))
        stencils.setdefault(canonical, torch.from_numpy(bits.reshape(side, side).astype(np.float32)))
    return tuple(stencils.values())


def _symmetries() -> npt.NDArray[np.int64]:
    """Index arrays (200, 25) of all rotations, reflections and cyclic shifts of a flat stencil."""
    side = STENCIL_SIDE
    cells = np.arange(side * side).reshape(side, side)
    turned = [np.rot90(face, k) for face in (cells, cells.T) for k in range(4)]
    return np.stack([np.roll(t, shift, (0, 1)).ravel() for t in turned for shift in np.ndindex(side, side)])
