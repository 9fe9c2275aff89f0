"""Policies: ranges and probabilities of random views, and the named policies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from climb.errors import InputError
from climb.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Ranges and probabilities of random views. The defaults are SimCLR's for images of 32 and 64 pixels.

    >>> Policy(jitter=0.0, grayscale=0.0).flip
    0.5
    """

    crop_scale: tuple[float, float] = (0.2, 1.0)
    """Smallest and largest crop, as a share of the image's area."""

    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest ratio of a crop's width to its height."""

    flip: float = 0.5
    """Probability of a horizontal flip."""

    vertical_flip: float = 0.0
    """Probability of a vertical flip."""

    turn: float = 0.0
    """Probability of a rotation by 90, 180 or 270 degrees, equally likely. At 0.75 all four orientations are."""

    jitter: float = 0.8
    """Probability that brightness, contrast, saturation and hue change, all four together."""

    brightness: float = 0.6
    """Largest relative change of brightness."""

    contrast: float = 0.6
    """Largest relative change of contrast."""

    saturation: float = 0.6
    """Largest relative change of saturation."""

    hue: float = 0.2
    """Largest shift of hue, in turns of the colour circle."""

    grayscale: float = 0.2
    """Probability of a conversion to grayscale."""

    blur: float = 0.0
    """Probability of a Gaussian blur. At 0 the blur costs nothing."""

    blur_kernel: int = 5
    """Side of the blur's kernel in pixels; odd."""

    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """Smallest and largest standard deviation of the blur, in pixels."""

    def __post_init__(self) -> None:
        for name in ("flip", "vertical_flip", "turn", "jitter", "grayscale", "blur"):
            self._need(name, 0 <= getattr(self, name) <= 1, "a probability, 0 to 1")
        for name in ("brightness", "contrast", "saturation"):
            self._need(name, getattr(self, name) >= 0, "0 or more")
        self._need("hue", 0 <= self.hue <= 0.5, "0 to 0.5 turns")
        self._need("crop_scale", 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1, "0 < smallest <= largest <= 1")
        self._need("crop_ratio", 0 < self.crop_ratio[0] <= self.crop_ratio[1], "0 < smallest <= largest")
        self._need("blur_sigma", 0 < self.blur_sigma[0] <= self.blur_sigma[1], "0 < smallest <= largest")
        self._need("blur_kernel", self.blur_kernel % 2 == 1 and self.blur_kernel > 0, "odd and positive")

    @property
    def is_turned(self) -> bool:
        """Whether views may be flipped vertically or turned. Such policies draw two more random numbers per view."""
        return self.vertical_flip > 0 or self.turn > 0

    def _need(self, name: str, valid: bool, allowed: str) -> None:
        if not valid:
            raise InputError(f"augmentation {name} is {getattr(self, name)}; allowed: {allowed}")


POLICIES = Registry[Callable[[int], Policy]](
    "augmentation policy", expects="a function from a side in pixels to a Policy"
)
"""The policies by name: each a function from the side of the images in pixels to a `Policy`."""

views = POLICIES.register
"""Decorator ``@views("name")`` that registers such a function; the name is then a value of ``--views``."""


@views("simclr")
def simclr(image_size: int) -> Policy:
    """SimCLR's views for images of ``image_size`` pixels. From 128 pixels on: smaller crops, and a blur.

    >>> simclr(32).blur, simclr(224).blur
    (0.0, 0.2)
    """
    return Policy(crop_scale=(0.08, 1.0), blur=0.2) if image_size >= 128 else Policy()


@views("simsiam")
def simsiam(image_size: int) -> Policy:
    """Views for SimSiam: weaker colour changes than SimCLR's.

    No blur and no smaller crops at any size, as in the released code of the CLIMB paper. SimSiam's authors blur large
    images.

    >>> simsiam(32).brightness, simsiam(32).saturation, simsiam(32).hue
    (0.4, 0.4, 0.1)
    >>> simsiam(224) == simsiam(32)
    True
    """
    return Policy(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)


@views("common")
def common(image_size: int) -> Policy:
    """Views for BYOL, Barlow Twins and VICReg: those of `simsiam` with half the change of saturation.

    The original methods also solarise, and blur the two views differently. Here both views follow one policy.

    >>> common(32).brightness, common(32).saturation, common(32).hue
    (0.4, 0.2, 0.1)
    """
    return replace(simsiam(image_size), saturation=0.2)


@views("adapt")
def adapt(image_size: int) -> Policy:
    """Views that keep what a pretrained encoder knows: almost no change of hue and no grayscale, so that colour stays
    a feature; light and saturation vary as in `simsiam`.

    >>> adapt(128).hue, adapt(128).grayscale, adapt(128).saturation
    (0.02, 0.0, 0.4)
    """
    return replace(simsiam(image_size), hue=0.02, grayscale=0.0)


@views("satellite")
def satellite(image_size: int) -> Policy:
    """Views of images from above, which have no canonical orientation: any flip and turn, small changes of hue.

    Hue tells crops, soil and water apart, so views keep most of it, and only one in ten is gray.

    >>> satellite(64).vertical_flip, satellite(64).turn, satellite(64).hue
    (0.5, 0.75, 0.05)
    """
    return replace(simsiam(image_size), vertical_flip=0.5, turn=0.75, saturation=0.2, hue=0.05, grayscale=0.1)


@views("microscope")
def microscope(image_size: int) -> Policy:
    """Views of microscope images: any flip and turn, and neither a change of hue nor grayscale.

    The colour of a stain is a measurement. Only its strength varies between slides: brightness, contrast, saturation.

    >>> microscope(64).turn, microscope(64).hue, microscope(64).grayscale
    (0.75, 0.0, 0.0)
    """
    return replace(simsiam(image_size), vertical_flip=0.5, turn=0.75, saturation=0.2, hue=0.0, grayscale=0.0)
