from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from climb.augment.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    blur,
    luminance,
    to_gray,
)

N = 24


def photos() -> torch.Tensor:
    """Smooth random images: colours of every hue, dark and light, none of them constant."""
    coarse = torch.rand(N, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    fine = torch.nn.functional.interpolate(coarse, (16, 16), mode="bilinear")
    return (fine * 255).round() / 255


def amounts(least: float, greatest: float) -> torch.Tensor:
    return torch.linspace(least, greatest, N)


@pytest.mark.parametrize(
    ("ours", "enhance"),
    [
        (adjust_brightness, ImageEnhance.Brightness),
        (adjust_contrast, ImageEnhance.Contrast),
        (adjust_saturation, ImageEnhance.Color),
    ],
)
def test_agrees_with_pil(ours: object, enhance: type[ImageEnhance.Contrast]) -> None:
    images, factors = photos(), amounts(0.4, 1.6)
    changed = ours(images, factors)  # type: ignore[operator]
    for image, factor, view in zip(images, factors.tolist(), changed, strict=True):
        picture = Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())
        expected = torch.from_numpy(np.array(enhance(picture).enhance(factor))).permute(2, 0, 1)
        # PIL rounds its grays and its result.
        torch.testing.assert_close(view * 255, expected.float(), atol=2.0, rtol=0)


def test_agrees_with_kornia() -> None:
    kornia = pytest.importorskip("kornia")
    images, factors, turns = photos(), amounts(0.4, 1.6), amounts(-0.5, 0.5)
    enhance = kornia.enhance
    close = {"atol": 2e-5, "rtol": 0}
    torch.testing.assert_close(luminance(images), kornia.color.rgb_to_grayscale(images), **close)
    torch.testing.assert_close(
        adjust_brightness(images, factors), enhance.adjust_brightness_accumulative(images, factors), **close
    )
    torch.testing.assert_close(
        adjust_contrast(images, factors), enhance.adjust_contrast_with_mean_subtraction(images, factors), **close
    )
    torch.testing.assert_close(
        adjust_saturation(images, factors),
        enhance.adjust_saturation_with_gray_subtraction(images, factors),
        **close,
    )
    torch.testing.assert_close(adjust_hue(images, turns), enhance.adjust_hue(images, turns * 2 * torch.pi), **close)


def test_neutral_amounts_change_nothing() -> None:
    images, one, zero = photos(), torch.ones(N), torch.zeros(N)
    for same in (
        adjust_brightness(images, one),
        adjust_contrast(images, one),
        adjust_saturation(images, one),
        adjust_hue(images, zero),
        to_gray(images, zero.bool()),
    ):
        torch.testing.assert_close(same, images, atol=1e-6, rtol=0)


def test_zero_factors() -> None:
    images, zero = photos(), torch.zeros(N)
    assert (adjust_brightness(images, zero) == 0).all()
    flat = adjust_contrast(images, zero)
    torch.testing.assert_close(flat, luminance(images).mean((1, 2, 3), True).expand_as(flat), atol=1e-6, rtol=0)
    torch.testing.assert_close(adjust_saturation(images, zero), luminance(images).expand_as(images))


def test_values_stay_in_range() -> None:
    images, strong = photos(), torch.full((N,), 3.0)
    for change in (adjust_brightness, adjust_contrast, adjust_saturation):
        changed = change(images, strong)
        assert changed.min() >= 0
        assert changed.max() <= 1
    shifted = adjust_hue(images, amounts(-0.5, 0.5))
    assert shifted.min() >= 0
    assert shifted.max() <= 1


def test_hue_of_gray_and_black_and_white_pixels_is_left_alone() -> None:
    levels = torch.linspace(0, 1, N).view(N, 1, 1, 1).expand(N, 3, 2, 2)
    assert torch.equal(adjust_hue(levels, amounts(-0.5, 0.5)), levels)


def test_hue_goes_round_the_circle() -> None:
    colours = torch.eye(3).view(3, 3, 1, 1)
    third = torch.full((3,), 1 / 3)
    torch.testing.assert_close(adjust_hue(colours, third), colours[[1, 2, 0]], atol=1e-5, rtol=0)
    torch.testing.assert_close(adjust_hue(colours, -third), colours[[2, 0, 1]], atol=1e-5, rtol=0)
    half = torch.full((N,), 0.5)
    torch.testing.assert_close(adjust_hue(adjust_hue(photos(), half), half), photos(), atol=1e-5, rtol=0)


def test_only_selected_images_become_gray() -> None:
    images, gray = photos(), torch.arange(N) % 2 == 0
    changed = to_gray(images, gray)
    assert torch.equal(changed[~gray], images[~gray])
    assert torch.equal(changed[gray], luminance(images)[gray].expand(-1, 3, -1, -1))


@pytest.mark.parametrize("kernel", [3, 5, 9])
def test_blur_agrees_with_kornia(kernel: int) -> None:
    kornia = pytest.importorskip("kornia")
    images = torch.rand(8, 3, 20, 28, generator=torch.Generator().manual_seed(0))
    sigma = torch.linspace(0.1, 2.0, 8)
    expected = kornia.filters.gaussian_blur2d(images, (kernel, kernel), torch.stack((sigma, sigma), 1), "reflect")
    torch.testing.assert_close(blur(images, sigma, kernel), expected, atol=1e-5, rtol=0)


def test_sigma_zero_gives_the_image_back() -> None:
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    blurred = blur(images, torch.tensor([0.0, 1.0]), 5)
    assert torch.equal(blurred[0], images[0])
    assert not torch.allclose(blurred[1], images[1], atol=0.01)


def test_a_constant_image_stays() -> None:
    flat = torch.full((1, 3, 8, 8), 0.7)
    torch.testing.assert_close(blur(flat, torch.tensor([1.5]), 5), flat)
