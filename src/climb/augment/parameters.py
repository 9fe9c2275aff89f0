"""The random parameters of a batch of views, drawn before any image changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from climb.augment.policy import Policy

ATTEMPTS = 10
"""Crop boxes tried per image. If none fits into the image, the central box is used."""

_NUMBERS = 2 * ATTEMPTS + 11
"""Random numbers per view, without flips top to bottom and turns."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What happens to each of n images. An operation that leaves an image unchanged has its neutral value."""

    box: Tensor
    """(n, 4) crop: top, left, height, width in whole pixels, as float32."""

    flip: Tensor
    """(n,) bool: mirrored left to right."""

    vertical_flip: Tensor | None = None
    """(n,) bool: mirrored top to bottom. None under a policy that neither flips vertically nor turns."""

    turns: Tensor | None = None
    """(n,) int64: rotated by so many times 90 degrees. None like ``vertical_flip``."""

    brightness: Tensor
    """(n,) factor; 1 is neutral."""

    contrast: Tensor
    """(n,) factor; 1 is neutral."""

    saturation: Tensor
    """(n,) factor; 1 is neutral."""

    hue: Tensor
    """(n,) shift in turns of the colour circle; 0 is neutral."""

    gray: Tensor
    """(n,) bool: converted to grayscale."""

    sigma: Tensor
    """(n,) standard deviation of the blur in pixels; 0 is no blur."""

    def followed_by(self, other: Parameters) -> Parameters:
        """The parameters of these images, then those of ``other``. Both come from policies that turn, or from none."""
        values: dict[str, Any] = {}
        for name in NAMES:
            pair = getattr(self, name), getattr(other, name)
            values[name] = None if pair[0] is None else torch.cat(pair)
        return Parameters(**values)


NAMES = tuple(field.name for field in fields(Parameters))
"""The names of all parameters. A constant, because torch 2.11 cannot compile `dataclasses.fields`."""


def draw(
    policy: Policy, n: int, size: tuple[int, int], generator: torch.Generator, device: torch.device | str = "cpu"
) -> Parameters:
    """Draw parameters for n images of ``size`` (height, width) from ``generator``, which lives on ``device``.

    >>> drawn = draw(Policy(), 4, (32, 32), torch.Generator().manual_seed(0))
    >>> drawn.box.shape, drawn.hue.shape
    (torch.Size([4, 4]), torch.Size([4]))
    """
    return interpret(policy, size, uniform(n, generator, device, turned=policy.is_turned))


def uniform(n: int, generator: torch.Generator, device: torch.device | str = "cpu", *, turned: bool = False) -> Tensor:
    """Random numbers for the parameters of n images, uniform in 0 to 1, in one call.

    ``turned`` is the policy's `is_turned`. Such policies draw two more numbers per view; all others draw the same.
    """
    return torch.rand((_NUMBERS + 2 * turned, n), generator=generator, device=device)


def interpret(policy: Policy, size: tuple[int, int], numbers: Tensor) -> Parameters:
    """Map `uniform` numbers to parameters for images of ``size`` (height, width). Draws nothing; no host sync."""
    area, ratio, rest = numbers[:ATTEMPTS], numbers[ATTEMPTS : 2 * ATTEMPTS], numbers[2 * ATTEMPTS :]
    top, left, flip, jitter, brightness, contrast, saturation, hue, gray, blur, sigma, *turned = rest.unbind()
    jittered = jitter < policy.jitter
    vertical_flip = turns = None
    if policy.is_turned:
        vertical_flip = turned[0] < policy.vertical_flip
        quarter = (3 * turned[1] / max(policy.turn, 1e-9)).floor().clamp(max=2).long() + 1  # 1, 2 or 3
        turns = quarter.where(turned[1] < policy.turn, 0)
    return Parameters(
        box=_box(policy, size, area, ratio, top, left),
        flip=flip < policy.flip,
        vertical_flip=vertical_flip,
        turns=turns,
        brightness=_factor(brightness, policy.brightness).where(jittered, 1.0),
        contrast=_factor(contrast, policy.contrast).where(jittered, 1.0),
        saturation=_factor(saturation, policy.saturation).where(jittered, 1.0),
        hue=_between(hue, -policy.hue, policy.hue).where(jittered, 0.0),
        gray=gray < policy.grayscale,
        sigma=_between(sigma, *policy.blur_sigma).where(blur < policy.blur, 0.0),
    )


def _between(uniform: Tensor, least: float, greatest: float) -> Tensor:
    return least + (greatest - least) * uniform


def _factor(uniform: Tensor, strength: float) -> Tensor:
    return _between(uniform, max(0.0, 1 - strength), 1 + strength)


def _box(policy: Policy, size: tuple[int, int], area: Tensor, ratio: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """(n, 4) boxes from uniform numbers: area and ratio (attempts, n), top and left (n,)."""
    height, width = size
    areas = height * width * _between(area, *policy.crop_scale)
    ratios = _between(ratio, *map(math.log, policy.crop_ratio)).exp()
    heights, widths = (areas / ratios).sqrt().round(), (areas * ratios).sqrt().round()
    fits = (heights >= 1) & (heights <= height) & (widths >= 1) & (widths <= width)
    first = fits.int().argmax(0, keepdim=True)  # argmax returns the first of equal values
    any_fits = fits.any(0)
    central = _central(policy, size)
    heights = heights.gather(0, first)[0].where(any_fits, central[0])
    widths = widths.gather(0, first)[0].where(any_fits, central[1])
    free_down, free_right = height - heights, width - widths
    # A number close to 1 may round up to one position too many.
    tops = (top * (free_down + 1)).floor().minimum(free_down).where(any_fits, (free_down / 2).floor())
    lefts = (left * (free_right + 1)).floor().minimum(free_right).where(any_fits, (free_right / 2).floor())
    return torch.stack((tops, lefts, heights, widths), dim=1)


def _central(policy: Policy, size: tuple[int, int]) -> tuple[float, float]:
    """Height and width of the largest crop with an allowed ratio: the whole image, if its own ratio is allowed."""
    height, width = size
    ratio = min(max(width / height, policy.crop_ratio[0]), policy.crop_ratio[1])
    return float(min(height, max(1, round(width / ratio)))), float(min(width, max(1, round(height * ratio))))
