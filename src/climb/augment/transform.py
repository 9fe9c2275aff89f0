"""Two random views of a batch of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from climb.augment.colour import adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation, blur, to_gray
from climb.augment.geometry import crop
from climb.augment.parameters import Parameters, interpret, uniform
from climb.augment.policy import Policy
from climb.errors import InputError


class Augment:
    """Makes two random, normalised views of a whole batch on its device.

    Args:
        policy: which views to draw.
        mean: per channel, of images in 0 to 1.
        std: likewise.
        per_batch: True draws once for all images of a view, as the released code of the CLIMB paper does. Otherwise
            every image has its own crop, flip, jitter, grayscale and blur.
        device: of the images and of the random generator.

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
        """Two independent views, float32 ``(2, n, 3, H, W)``, of uint8 images ``(n, 3, H, W)``.

        Equals `numbers` followed by `views`.
        """
        return self.views(images, self.numbers(images, generator))

    def numbers(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The random numbers of two views of ``images`` ``(n, 3, H, W)``. The only random call."""
        count = 2 if self.per_batch else 2 * len(images)
        return uniform(count, generator, self.device, turned=self.policy.is_turned)

    def numbers_of(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """The part of a batch's ``numbers`` that belongs to some of its ``rows`` ``(m,)``."""
        return numbers if self.per_batch else numbers.index_select(1, torch.cat([rows, rows + numbers.shape[1] // 2]))

    def views(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The views ``(2, n, 3, H, W)`` of uint8 images ``(n, 3, H, W)`` under ``numbers``.

        Draws nothing, so it can be compiled.
        """
        n, _, height, width = self._checked(images).shape
        of_each = numbers.repeat_interleave(n, 1) if self.per_batch else numbers
        return self.apply(images, interpret(self.policy, (height, width), of_each))

    def apply(self, images: Tensor, parameters: Parameters) -> Tensor:
        """The views ``(2, n, 3, H, W)`` of uint8 images ``(n, 3, H, W)`` under ``parameters``."""
        twice = (self._checked(images).float() / 255).repeat(2, 1, 1, 1)
        views = apply(twice, parameters, self.policy).sub_(self._mean).div_(self._std)
        return views.view(2, *images.shape)

    def plain(self, images: Tensor) -> Tensor:
        """Normalised float32 images of uint8 images ``(n, 3, H, W)``, not augmented."""
        return (self._checked(images).float() / 255).sub_(self._mean).div_(self._std)

    def _checked(self, images: Tensor) -> Tensor:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            actual = f"{images.dtype} of shape {tuple(images.shape)}"
            raise InputError(f"images are {actual}; they must be torch.uint8 of shape (n, 3, H, W)")
        return images


def apply(images: Tensor, parameters: Parameters, policy: Policy) -> Tensor:
    """Apply ``parameters``, drawn under ``policy``, to float32 images ``(n, 3, H, W)`` in 0 to 1.

    The order is fixed: crop, flip and turn; brightness, contrast, saturation, hue; grayscale; blur.
    """
    images = crop(images, parameters.box, parameters.flip, parameters.vertical_flip, parameters.turns)
    if policy.jitter > 0:
        images = adjust_brightness(images, parameters.brightness)
        images = adjust_contrast(images, parameters.contrast)
        images = adjust_saturation(images, parameters.saturation)
        images = adjust_hue(images, parameters.hue)
    if policy.grayscale > 0:
        images = to_gray(images, parameters.gray)
    if policy.blur > 0:
        images = blur(images, parameters.sigma, policy.blur_kernel)
    return images
