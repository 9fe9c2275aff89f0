"""What may happen to an image, and how often."""

from __future__ import annotations

from dataclasses import dataclass, replace

from climb.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Ranges and probabilities of the random views; the defaults are SimCLR's for images of 32 and 64 pixels.

    >>> Policy(jitter=0.0, grayscale=0.0).flip
    0.5
    """

    crop_scale: tuple[float, float] = (0.2, 1.0)
    """Least and greatest share of the image's area that a crop takes."""

    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and greatest width of a crop, in heights."""

    flip: float = 0.5
    """Probability of a horizontal flip."""

    jitter: float = 0.8
    """Probability that brightness, contrast, saturation and hue change (all four, or none)."""

    brightness: float = 0.6
    """Greatest relative change of brightness."""

    contrast: float = 0.6
    """Greatest relative change of contrast."""

    saturation: float = 0.6
    """Greatest relative change of saturation."""

    hue: float = 0.2
    """Greatest shift of hue, in turns of the colour circle."""

    grayscale: float = 0.2
    """Probability that the colours are dropped."""

    blur: float = 0.0
    """Probability of a Gaussian blur; at 0 no work is spent on it."""

    blur_kernel: int = 5
    """Side of the blur's kernel in pixels, odd."""

    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Least and greatest standard deviation of the blur, in pixels."""

    def __post_init__(self) -> None:
        for name in ("flip", "jitter", "grayscale", "blur"):
            self._need(name, 0 <= getattr(self, name) <= 1, "a probability, 0 to 1")
        for name in ("brightness", "contrast", "saturation"):
            self._need(name, getattr(self, name) >= 0, "0 or more")
        self._need("hue", 0 <= self.hue <= 0.5, "0 to 0.5 turns")
        self._need("crop_scale", 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1, "0 < least <= greatest <= 1")
        self._need("crop_ratio", 0 < self.crop_ratio[0] <= self.crop_ratio[1], "0 < least <= greatest")
        self._need("blur_sigma", 0 < self.blur_sigma[0] <= self.blur_sigma[1], "0 < least <= greatest")
        self._need("blur_kernel", self.blur_kernel % 2 == 1 and self.blur_kernel > 0, "odd and positive")

    def _need(self, name: str, holds: bool, allowed: str) -> None:
        if not holds:
            raise InputError(f"augmentation {name} is {getattr(self, name)}; allowed: {allowed}")


def simclr(image_size: int) -> Policy:
    """SimCLR's views of images of ``image_size`` pixels: from 128 pixels on, smaller crops and a blur.

    >>> simclr(32).blur, simclr(224).blur
    (0.0, 0.2)
    """
    return Policy(crop_scale=(0.08, 1.0), blur=0.2) if image_size >= 128 else Policy()


def simsiam(image_size: int) -> Policy:
    """The views for SimSiam: weaker colours than SimCLR's. No blur and no smaller crops at any size, as in the code
    released with the paper; SimSiam's authors blur large images.

    >>> simsiam(32).brightness, simsiam(32).saturation, simsiam(32).hue
    (0.4, 0.4, 0.1)
    >>> simsiam(224) == simsiam(32)
    True
    """
    return Policy(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)


def common(image_size: int) -> Policy:
    """What the views of BYOL, Barlow Twins and VICReg share: as `simsiam`, with half its change of saturation.

    Their originals also solarise, and blur the two views unequally; here both views are drawn alike.

    >>> common(32).brightness, common(32).saturation, common(32).hue
    (0.4, 0.2, 0.1)
    """
    return replace(simsiam(image_size), saturation=0.2)


POLICIES = {"simclr": simclr, "simsiam": simsiam, "common": common}
"""The views by name."""
