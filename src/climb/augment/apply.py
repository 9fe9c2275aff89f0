"""Parameters to pixels."""

from __future__ import annotations

from torch import Tensor

from climb.augment.blur import blur
from climb.augment.colour import adjust_brightness, adjust_contrast, adjust_hue, adjust_saturation, to_gray
from climb.augment.crop import crop
from climb.augment.parameters import Parameters
from climb.augment.policy import Policy


def apply(images: Tensor, parameters: Parameters, policy: Policy) -> Tensor:
    """Images ``(n, 3, H, W)``, float32 in 0 to 1, to their views, alike.

    The order is fixed: crop and flip, brightness, contrast, saturation, hue, grayscale, blur.
    """
    images = crop(images, parameters.box, parameters.flip)
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
