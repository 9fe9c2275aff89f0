"""Two random views of a batch of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from climb.augment.apply import apply
from climb.augment.parameters import Parameters, interpret, uniform
from climb.augment.policy import Policy
from climb.errors import InputError


class Augment:
    """Makes two random, normalised views of a whole batch at once, on the device the images are on.

    ``mean`` and ``std`` are per channel, of images in 0 to 1. Every image has its own crop, flip, jitter,
    grayscale and blur; with ``per_batch`` all images of a view share one draw, as in the code released with the
    CLIMB paper.

    >>> views = Augment(Policy(), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    >>> images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    >>> views(images, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 4, 3, 32, 32])
    """

    def __init__(
        self,
        policy: Policy,
        mean: Sequence[float],
        std: Sequence[float],
        *,
        per_batch: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
            raise InputError(f"mean {mean} and std {std} must be three numbers each, std above 0")
        self.policy = policy
        self.per_batch = per_batch
        self.device = torch.device(device)
        self._mean = torch.tensor(mean, dtype=torch.float32, device=device).view(3, 1, 1)
        self._std = torch.tensor(std, dtype=torch.float32, device=device).view(3, 1, 1)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Images ``(n, 3, H, W)``, uint8, to views ``(2, n, 3, H, W)``, float32, drawn independently.

        ``images`` and ``generator`` are on the device of this object. The same as ``draw`` then ``apply``.
        """
        return self.views(images, self.numbers(images, generator))

    def numbers(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The random numbers that decide on two views of ``images`` ``(n, 3, H, W)``: the one call that is random."""
        return uniform(2 if self.per_batch else 2 * len(images), generator, self.device)

    def numbers_of(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """Of the ``numbers`` of a batch, those that decide on the views of some of its ``rows`` ``(m,)``."""
        return numbers if self.per_batch else numbers.index_select(1, torch.cat([rows, rows + numbers.shape[1] // 2]))

    def views(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Images ``(n, 3, H, W)``, uint8, to the views ``(2, n, 3, H, W)`` that ``numbers`` decide on.

        Draws nothing, so it can be compiled.
        """
        return self.apply(images, self.interpret(images, numbers))

    def draw(self, images: Tensor, generator: torch.Generator) -> Parameters:
        """The parameters of two views of ``images`` ``(n, 3, H, W)``: those of view one, then those of view two."""
        return self.interpret(images, self.numbers(images, generator))

    def interpret(self, images: Tensor, numbers: Tensor) -> Parameters:
        """The parameters that ``numbers`` stand for."""
        n, _, height, width = self._checked(images).shape
        drawn = interpret(self.policy, (height, width), numbers)
        return drawn.repeat(n) if self.per_batch else drawn

    def apply(self, images: Tensor, parameters: Parameters) -> Tensor:
        """Images ``(n, 3, H, W)``, uint8, to the views ``(2, n, 3, H, W)`` that ``parameters`` describe."""
        twice = (self._checked(images).float() / 255).repeat(2, 1, 1, 1)
        views = self._normalised(apply(twice, parameters, self.policy))
        return views.view(2, *images.shape)

    def plain(self, images: Tensor) -> Tensor:
        """Images ``(n, 3, H, W)``, uint8, normalised and otherwise as they are: ``(n, 3, H, W)``, float32."""
        return self._normalised(self._checked(images).float() / 255)

    def _normalised(self, images: Tensor) -> Tensor:
        return (images - self._mean) / self._std

    def _checked(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise InputError(
                f"images are {images.dtype} of shape {tuple(images.shape)}; "
                "they must be torch.uint8 of shape (n, 3, H, W)"
            )
        return images
