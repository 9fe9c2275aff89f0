from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from climb.augment import POLICIES, Policy, common, microscope, satellite, simclr, simsiam, views
from climb.errors import InputError


@pytest.mark.parametrize("image_size", [32, 64])
def test_small_images_have_no_blur(image_size: int) -> None:
    policy = simclr(image_size)
    assert policy == Policy()
    assert (policy.crop_scale, policy.crop_ratio, policy.flip) == ((0.2, 1.0), (3 / 4, 4 / 3), 0.5)
    assert (policy.jitter, policy.brightness, policy.contrast) == (0.8, 0.6, 0.6)
    assert (policy.saturation, policy.hue, policy.grayscale, policy.blur) == (0.6, 0.2, 0.2, 0.0)


@pytest.mark.parametrize("image_size", [128, 224])
def test_large_images_have_smaller_crops_and_a_blur(image_size: int) -> None:
    policy = simclr(image_size)
    assert policy.crop_scale == (0.08, 1.0)
    assert (policy.blur, policy.blur_kernel, policy.blur_sigma) == (0.2, 5, (0.1, 2.0))


@pytest.mark.parametrize("image_size", [32, 224])
def test_other_views_have_weaker_colours_and_are_equal_at_every_size(image_size: int) -> None:
    weaker = {"brightness": 0.4, "contrast": 0.4, "hue": 0.1}
    assert simsiam(image_size) == Policy(**weaker, saturation=0.4)
    assert common(image_size) == Policy(**weaker, saturation=0.2)


@pytest.mark.parametrize("policy", [satellite, microscope])
@pytest.mark.parametrize("image_size", [32, 224])
def test_images_without_an_orientation_are_flipped_and_turned(policy: Callable[[int], Policy], image_size: int) -> None:
    views = policy(image_size)
    assert (views.flip, views.vertical_flip, views.turn) == (0.5, 0.5, 0.75)
    assert views.hue < simsiam(image_size).hue
    assert views.grayscale < simsiam(image_size).grayscale


def test_microscope_views_keep_the_hue() -> None:
    assert (microscope(64).hue, microscope(64).grayscale) == (0.0, 0.0)


@pytest.mark.parametrize("policy", [simclr, simsiam, common])
def test_photographs_stay_upright(policy: Callable[[int], Policy]) -> None:
    assert not policy(32).is_turned


def test_a_policy_of_ones_own_is_registered_by_name() -> None:
    with POLICIES.scoped():

        @views("drone")
        def drone(image_size: int) -> Policy:
            return Policy(turn=1.0)

        assert POLICIES.find("drone")(32).turn == 1.0
        with pytest.raises(InputError, match="there is an augmentation policy 'simclr' already"):
            views("simclr")(drone)
    assert sorted(POLICIES) == ["adapt", "common", "microscope", "satellite", "simclr", "simsiam"]


def test_the_ends_of_every_range_are_allowed() -> None:
    never = {"flip": 0.0, "vertical_flip": 0.0, "turn": 0.0, "jitter": 0.0, "grayscale": 0.0, "blur": 0.0}
    Policy(**never, brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, blur_kernel=1)
    Policy(**dict.fromkeys(never, 1.0), hue=0.5, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), blur_sigma=(1.0, 1.0))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"flip": 1.5}, "flip is 1.5; allowed: a probability"),
        ({"vertical_flip": -0.1}, "vertical_flip is -0.1; allowed: a probability"),
        ({"turn": 1.1}, "turn is 1.1; allowed: a probability"),
        ({"jitter": -0.1}, "jitter is -0.1"),
        ({"grayscale": 2.0}, "grayscale is 2.0; allowed: a probability"),
        ({"blur": -0.5}, "blur is -0.5; allowed: a probability"),
        ({"brightness": -1.0}, "brightness is -1.0; allowed: 0 or more"),
        ({"contrast": -0.1}, "contrast is -0.1; allowed: 0 or more"),
        ({"saturation": -0.1}, "saturation is -0.1; allowed: 0 or more"),
        ({"hue": -0.1}, "hue is -0.1; allowed: 0 to 0.5"),
        ({"hue": 0.6}, "hue is 0.6; allowed: 0 to 0.5"),
        ({"crop_scale": (0.0, 1.0)}, "crop_scale"),
        ({"crop_scale": (0.5, 1.2)}, "crop_scale"),
        ({"crop_ratio": (2.0, 1.0)}, "crop_ratio"),
        ({"blur_kernel": 4}, "blur_kernel is 4; allowed: odd"),
        ({"blur_kernel": -1}, "blur_kernel is -1; allowed: odd and positive"),
        ({"blur_sigma": (0.0, 1.0)}, "blur_sigma"),
    ],
)
def test_impossible_values_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Policy(**wrong)
