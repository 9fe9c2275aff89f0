"""The audit finds what an encoder keeps and what it lost, on images whose attributes are known."""

from __future__ import annotations

import colorsys

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from climb.evaluation.audit import audit, brightness, dominant_hue, flipped, sharpness, turned

SIDE = 16


def scenes(count: int, *, grey: bool = False) -> Tensor:
    """Coloured pictures, brighter at the top and darker on the right, with grain of random strength."""
    generator = torch.Generator().manual_seed(0)
    hues = torch.rand(count, generator=generator).tolist()
    colours = torch.tensor([(0.5,) * 3 if grey else colorsys.hsv_to_rgb(hue, 0.8, 0.8) for hue in hues])
    light = 0.3 + 0.7 * torch.rand(count, 1, 1, 1, generator=generator)
    fade = torch.linspace(1.0, 0.5, SIDE).view(1, 1, SIDE, 1) * torch.linspace(1.0, 0.8, SIDE).view(1, 1, 1, SIDE)
    grain = torch.rand(count, 1, 1, 1, generator=generator) * torch.rand(count, 1, SIDE, SIDE, generator=generator)
    return (200 * colours.view(count, 3, 1, 1) * light * fade + 30 * grain).clamp(0, 255).byte()


def colour(images: Tensor) -> Tensor:
    """Means and ratios of the channels: colour and light, nothing of the layout."""
    means = images.float().mean(dim=(2, 3)) + 1.0
    shares = means / means.sum(dim=1, keepdim=True)
    return torch.cat([means, shares, shares.square(), shares.max(dim=1, keepdim=True).values], dim=1)


def light(images: Tensor) -> Tensor:
    """Powers of the mean luma, which a linear probe can cut into quartiles."""
    values = brightness(images).unsqueeze(1) / 255
    return torch.cat([values**power for power in range(1, 6)], dim=1)


def layout(images: Tensor) -> Tensor:
    """A 4 x 4 thumbnail relative to its mean: which side is bright."""
    small = functional.adaptive_avg_pool2d(images.float().mean(dim=1, keepdim=True), 4).flatten(1)
    return small / small.mean(dim=1, keepdim=True)


def test_what_an_encoder_lost_shows_and_what_it_kept_does_not() -> None:
    rows = {row.name: row for row in audit({"encoder": light, "start": colour, "layout": layout}, scenes(600), seed=0)}
    assert list(rows) == ["hue", "brightness", "sharpness", "rotation", "mirror"]
    gain = {name: row.measured["encoder"] - row.measured["start"] for name, row in rows.items()}
    assert gain["hue"].standard_error is not None
    assert gain["hue"].accuracy < -20 < -5 * gain["hue"].standard_error  # only the start knows colours
    assert rows["brightness"].measured["encoder"].accuracy > 80  # of four
    for name, chance in (("rotation", 25), ("mirror", 50)):
        assert rows[name].measured["layout"].accuracy > 95
        for blind in ("encoder", "start"):
            assert rows[name].measured[blind].accuracy == pytest.approx(chance, abs=12)
        assert rows[name].majority.accuracy == pytest.approx(chance, abs=8)
    assert {row.test_images for row in rows.values()} == {300}


def test_an_attribute_that_the_images_do_not_have_is_left_out() -> None:
    rows = audit({"start": light}, scenes(100, grey=True), seed=0)
    assert [row.name for row in rows] == ["brightness", "sharpness", "rotation", "mirror"]
    black = torch.zeros(100, 3, SIDE, SIDE, dtype=torch.uint8)
    assert [row.name for row in audit({"start": light}, black, seed=0)] == ["rotation", "mirror"]


def test_the_seed_decides() -> None:
    first, same, other = (
        [row.measured["start"].accuracy for row in audit({"start": colour}, scenes(120), seed=seed)]
        for seed in (0, 0, 1)
    )
    assert first == same != other


def test_hues_are_centred_on_the_primary_colours() -> None:
    wheel = [colorsys.hsv_to_rgb((number / 8 + shift) % 1, 1.0, 1.0) for number in range(8) for shift in (-0.05, 0.05)]
    images = (255 * torch.tensor(wheel)).byte().view(16, 3, 1, 1).expand(16, 3, 4, 4)
    assert dominant_hue(images).tolist() == [number for number in range(8) for _ in range(2)]
    half = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    half[:, 2] = 255
    half[:, :, :1] = torch.tensor([255, 0, 0]).view(3, 1, 1)
    assert dominant_hue(half).item() == 5  # a quarter is red, the rest blue


def test_brightness_and_sharpness_are_what_they_say() -> None:
    dark, bright = torch.full((1, 3, 8, 8), 10).byte(), torch.full((1, 3, 8, 8), 200).byte()
    assert brightness(torch.cat([dark, bright])).tolist() == pytest.approx([10.0, 200.0])
    board = ((torch.arange(8).view(8, 1) + torch.arange(8)) % 2 * 200).byte().expand(1, 3, 8, 8)
    ramp = (torch.arange(8) * 25).byte().expand(1, 3, 8, 8)
    values = sharpness(torch.cat([board, ramp, dark]))
    assert values[0] > 100 * values[1].clamp(min=1e-3)
    assert values[2] == pytest.approx(0.0, abs=1e-4)


def test_turns_and_flips_are_those_asked_for() -> None:
    corner = torch.zeros(4, 3, 6, 6, dtype=torch.uint8)
    corner[:, :, 0, 0] = 255
    places = [tuple(each[0].nonzero()[0].tolist()) for each in turned(corner, torch.arange(4))]
    assert places == [(0, 0), (5, 0), (5, 5), (0, 5)]  # counterclockwise
    mirrored = flipped(corner, torch.tensor([0, 1, 0, 1]))
    assert [tuple(each[0].nonzero()[0].tolist()) for each in mirrored] == [(0, 0), (0, 5)] * 2
