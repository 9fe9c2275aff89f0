"""The random numbers of a batch of views, drawn before anything is done with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from climb.augment.policy import Policy

ATTEMPTS = 10
"""Crop boxes tried per image; when none of them fits into the image, the central one is taken."""

_NUMBERS = 2 * ATTEMPTS + 11


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What happens to each of n images; what does not happen to an image has its neutral value."""

    box: Tensor
    """(n, 4) crop: top, left, height, width in whole pixels, as float32."""

    flip: Tensor
    """(n,) bool: mirrored left to right."""

    brightness: Tensor
    """(n,) factor; 1 changes nothing."""

    contrast: Tensor
    """(n,) factor; 1 changes nothing."""

    saturation: Tensor
    """(n,) factor; 1 changes nothing."""

    hue: Tensor
    """(n,) shift in turns; 0 changes nothing."""

    gray: Tensor
    """(n,) bool: colours dropped."""

    sigma: Tensor
    """(n,) standard deviation of the blur in pixels; 0 is no blur."""

    def repeat(self, times: int) -> Parameters:
        """The parameters of every image ``times`` times in a row."""
        return Parameters(**{name: getattr(self, name).repeat_interleave(times, 0) for name in NAMES})

    def followed_by(self, other: Parameters) -> Parameters:
        """The parameters of these images, then those of others."""
        return Parameters(**{name: torch.cat([getattr(self, name), getattr(other, name)]) for name in NAMES})


NAMES = tuple(field.name for field in fields(Parameters))
"""What all parameters are called; not asked of an object, which torch 2.11 cannot compile."""


def draw(
    policy: Policy,
    n: int,
    size: tuple[int, int],
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> Parameters:
    """Parameters for n images of ``size`` (height, width), drawn on ``device`` from its ``generator``.

    >>> drawn = draw(Policy(), 4, (32, 32), torch.Generator().manual_seed(0))
    >>> drawn.box.shape, drawn.hue.shape
    (torch.Size([4, 4]), torch.Size([4]))
    """
    return interpret(policy, size, uniform(n, generator, device))


def uniform(n: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
    """The numbers behind the parameters of n images, uniform in 0 to 1: one call, whatever the policy."""
    return torch.rand((_NUMBERS, n), generator=generator, device=device)


def interpret(policy: Policy, size: tuple[int, int], numbers: Tensor) -> Parameters:
    """What `uniform` numbers mean for images of ``size`` (height, width). Nothing is random here or waits for it."""
    area, ratio, rest = numbers[:ATTEMPTS], numbers[ATTEMPTS : 2 * ATTEMPTS], numbers[2 * ATTEMPTS :]
    top, left, flip, jitter, brightness, contrast, saturation, hue, gray, blur, sigma = rest.unbind()
    jittered = jitter < policy.jitter
    return Parameters(
        box=_box(policy, size, area, ratio, top, left),
        flip=flip < policy.flip,
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
    first = fits.int().argmax(0, keepdim=True)  # of equal ones argmax takes the first
    found = fits.any(0)
    central = _central(policy, size)
    heights = heights.gather(0, first)[0].where(found, central[0])
    widths = widths.gather(0, first)[0].where(found, central[1])
    free_down, free_right = height - heights, width - widths
    # The number drawn may be so close to 1 that its product rounds up to one place too many.
    tops = (top * (free_down + 1)).floor().minimum(free_down).where(found, (free_down / 2).floor())
    lefts = (left * (free_right + 1)).floor().minimum(free_right).where(found, (free_right / 2).floor())
    return torch.stack((tops, lefts, heights, widths), dim=1)


def _central(policy: Policy, size: tuple[int, int]) -> tuple[float, float]:
    """Height and width of the largest crop whose ratio is allowed: the whole image where its own ratio is."""
    height, width = size
    least, greatest = policy.crop_ratio
    if width / height < least:
        return float(min(height, max(1, round(width / least)))), float(width)
    if width / height > greatest:
        return float(height), float(min(width, max(1, round(height * greatest))))
    return float(height), float(width)
