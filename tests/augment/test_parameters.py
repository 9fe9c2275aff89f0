from __future__ import annotations

import math

import pytest
import torch

from climb.augment import Parameters, Policy, draw
from climb.augment.parameters import interpret, uniform

MANY = 20_000


def drawn(policy: Policy, n: int = MANY, size: tuple[int, int] = (32, 32), seed: int = 0) -> Parameters:
    return draw(policy, n, size, torch.Generator().manual_seed(seed))


def test_same_state_same_parameters() -> None:
    policy = Policy(blur=0.5, vertical_flip=0.5, turn=0.75)
    first, again, other = (vars(drawn(policy, 50, seed=seed)) for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_parameters_of_some_images_then_of_others() -> None:
    one, other = drawn(Policy(), 3, seed=1), drawn(Policy(flip=1.0), 2, seed=2)
    both = vars(one.followed_by(other))
    assert both.pop("vertical_flip") is None
    assert both.pop("turns") is None
    for name, values in both.items():
        assert torch.equal(values[:3], vars(one)[name])
        assert torch.equal(values[3:], vars(other)[name])
    assert len(both) == 8


def test_boxes_are_whole_and_inside_the_image() -> None:
    for size in ((32, 32), (20, 48), (64, 40)):
        top, left, height, width = drawn(Policy(crop_scale=(0.05, 1.0)), size=size).box.unbind(1)
        for values in (top, left, height, width):
            assert torch.equal(values, values.round())
        assert (top >= 0).all()
        assert (left >= 0).all()
        assert (height >= 1).all()
        assert (width >= 1).all()
        assert (top + height <= size[0]).all()
        assert (left + width <= size[1]).all()


def test_area_and_ratio_stay_in_range() -> None:
    size = 224  # large, so that rounding to whole pixels hardly matters
    _, _, height, width = drawn(Policy(), size=(size, size)).box.unbind(1)
    area, ratio = height * width / size**2, width / height
    assert area.min() > 0.2 - 0.01
    assert area.min() < 0.21
    assert area.max() <= 1
    assert area.max() > 0.98
    assert ratio.min() > 3 / 4 - 0.01
    assert ratio.max() < 4 / 3 + 0.02
    assert ratio.log().mean().abs() < 0.01


def test_crop_distribution_is_that_of_sequential_rejection() -> None:
    """Against torchvision's rule stated image by image: draw until a box fits, ten times at most."""
    numbers = torch.Generator().manual_seed(5)
    areas, ratios = [], []
    for _ in range(4000):
        for _ in range(10):
            u, v = torch.rand(2, generator=numbers, dtype=torch.float64).tolist()
            area = 32 * 32 * (0.2 + 0.8 * u)
            ratio = math.exp(math.log(3 / 4) + v * (math.log(4 / 3) - math.log(3 / 4)))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width <= 32 and 0 < height <= 32:
                break
        else:
            width, height = 32, 32
        areas.append(width * height / 1024)
        ratios.append(width / height)
    _, _, height, width = drawn(Policy()).box.unbind(1)
    for ours, theirs in ((height * width / 1024, areas), (width / height, ratios)):
        points = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9])
        torch.testing.assert_close(ours.quantile(points), torch.tensor(theirs).quantile(points), atol=0.03, rtol=0)


def test_every_position_is_as_likely() -> None:
    top, left, height, width = drawn(Policy()).box.unbind(1)
    for start, length in ((top, height), (left, width)):
        free = 32 - length
        fixed = start[free == 8]
        counts = fixed.long().bincount(minlength=9)
        assert len(counts) == 9
        assert counts.min() > 0.7 * len(fixed) / 9
        assert counts.max() < 1.3 * len(fixed) / 9


@pytest.mark.parametrize(
    ("size", "box"), [((32, 32), [0, 0, 32, 32]), ((10, 40), [0, 13, 10, 13]), ((40, 10), [13, 0, 13, 10])]
)
def test_the_central_crop_when_nothing_fits(size: tuple[int, int], box: list[int]) -> None:
    # The full area at a ratio other than the image's never fits, unless that ratio is the image's own.
    policy = Policy(crop_scale=(1.0, 1.0), crop_ratio=(1.2, 4 / 3) if size == (32, 32) else (3 / 4, 4 / 3))
    if size == (32, 32):
        box = [2, 0, 27, 32]  # 32 wide, the least allowed ratio: 32 / 1.2 rounds to 27 high
    assert drawn(policy, 50, size).box.tolist() == [box] * 50


@pytest.mark.parametrize("ratio", [0.01, 100.0])
@pytest.mark.parametrize("scale", [1e-6, 1 / 256, 1.0])
def test_a_crop_is_never_less_than_a_pixel_high_or_wide(ratio: float, scale: float) -> None:
    """At such a ratio one side rounds to nothing, drawn or central, while the other may well fit."""
    box = drawn(Policy(crop_scale=(scale, scale), crop_ratio=(ratio, ratio)), 3, (16, 16)).box
    assert (box[:, 2:] >= 1).all()
    assert (box[:, :2] + box[:, 2:] <= 16).all()


def test_a_ratio_is_width_by_height() -> None:
    box = drawn(Policy(crop_scale=(0.1, 0.4), crop_ratio=(2.0, 2.0)), 100, (64, 64)).box
    torch.testing.assert_close(box[:, 3], 2 * box[:, 2], atol=1.5, rtol=0)


def test_ten_boxes_are_tried() -> None:
    numbers = torch.full((uniform(1, torch.Generator()).shape[0], 11), 0.5)
    areas, ratios = numbers[:10], numbers[10:20]
    areas[:], ratios[:] = 1.0, 0.0  # the whole area, twice as high as wide, which does not fit
    areas[range(10), range(10)] = 0.0  # for all images but the last, one attempt does: a quarter of the area
    boxes = interpret(Policy(crop_scale=(0.25, 1.0), crop_ratio=(0.5, 2.0)), (32, 32), numbers).box
    assert boxes[:, 2:].tolist() == [[23.0, 11.0]] * 10 + [[32.0, 32.0]]


def test_rates() -> None:
    parameters = drawn(Policy(blur=0.3))
    jittered = parameters.brightness != 1
    for happened, rate in (
        (parameters.flip, 0.5),
        (parameters.gray, 0.2),
        (jittered, 0.8),
        (parameters.sigma > 0, 0.3),
    ):
        assert happened.float().mean().item() == pytest.approx(rate, abs=0.015)
    for other in (parameters.contrast != 1, parameters.saturation != 1, parameters.hue != 0):
        assert (other == jittered).float().mean() > 0.999  # one decision for the four; a draw may be neutral


def test_rates_of_vertical_flips_and_turns() -> None:
    parameters = drawn(Policy(vertical_flip=0.3, turn=0.6))
    assert parameters.vertical_flip is not None
    assert parameters.turns is not None
    assert parameters.vertical_flip.float().mean().item() == pytest.approx(0.3, abs=0.015)
    shares = parameters.turns.bincount() / MANY
    assert shares.tolist() == pytest.approx([0.4, 0.2, 0.2, 0.2], abs=0.015)
    table = torch.stack([parameters.flip, parameters.vertical_flip, parameters.turns > 0, parameters.gray]).float()
    assert (torch.corrcoef(table) - torch.eye(4)).abs().max() < 0.04


@pytest.mark.parametrize("policy", [Policy(vertical_flip=1.0), Policy(turn=1.0)])
def test_turns_leave_the_other_parameters_as_they_are(policy: Policy) -> None:
    """The further random numbers follow those of the other parameters, for one image."""
    turned, plain = drawn(policy, 1), drawn(Policy(), 1)
    for name in ("box", "flip", "brightness", "contrast", "saturation", "hue", "gray", "sigma"):
        assert torch.equal(getattr(turned, name), getattr(plain, name))
    assert plain.turns is None
    assert turned.turns is not None
    assert (turned.turns > 0).item() == (policy.turn > 0)


def test_ranges_and_independence() -> None:
    policy = Policy(jitter=1.0, brightness=0.6, contrast=1.5, saturation=0.3, hue=0.2, blur=1.0)
    parameters = drawn(policy)
    columns = [
        (parameters.brightness, 0.4, 1.6),
        (parameters.contrast, 0.0, 2.5),
        (parameters.saturation, 0.7, 1.3),
        (parameters.hue, -0.2, 0.2),
        (parameters.sigma, 0.1, 2.0),
    ]
    for values, least, greatest in columns:
        slack = 0.01 * (greatest - least)
        assert least <= values.min() < least + slack
        assert greatest - slack < values.max() <= greatest
        assert values.mean().item() == pytest.approx((least + greatest) / 2, abs=slack)
    table = torch.stack([values for values, _, _ in columns] + list(parameters.box[:, :2].T) + [parameters.flip])
    correlation = torch.corrcoef(table) - torch.eye(len(table))
    # top and left share their crop's size, which is why their own pair is left out.
    correlation[5, 6] = correlation[6, 5] = 0
    assert correlation.abs().max() < 0.04


def test_operations_are_independent() -> None:
    parameters = drawn(Policy(flip=0.5, jitter=0.5, grayscale=0.5, blur=0.5))
    jittered = parameters.brightness != 1
    happened = torch.stack([parameters.flip, jittered, parameters.gray, parameters.sigma > 0]).float()
    assert (torch.corrcoef(happened) - torch.eye(4)).abs().max() < 0.04


def test_nothing_happens_at_probability_zero() -> None:
    parameters = drawn(Policy(flip=0.0, jitter=0.0, grayscale=0.0, blur=0.0), 100)
    assert not parameters.flip.any()
    assert not parameters.gray.any()
    assert (parameters.sigma == 0).all()
    assert (parameters.hue == 0).all()
    for factor in (parameters.brightness, parameters.contrast, parameters.saturation):
        assert (factor == 1).all()


NEVER, ALWAYS = (dict.fromkeys(("flip", "jitter", "grayscale", "blur"), rate) for rate in (0.0, 1.0))


@pytest.mark.parametrize("number", [0.0, 1 - 2**-24])
def test_turns_are_valid_at_the_limits_of_the_random_numbers(number: float) -> None:
    numbers = torch.full((uniform(1, torch.Generator(), turned=True).shape[0], 1), number)
    for rate in (0.25, 0.75, 1.0):
        turns = interpret(Policy(turn=rate), (32, 32), numbers).turns
        assert turns is not None
        assert turns.item() == (1 if number == 0.0 else 3 if rate == 1.0 else 0)


def test_probability_zero_is_never_and_one_is_always_at_the_limits_of_the_random_numbers() -> None:
    count = uniform(1, torch.Generator()).shape[0]
    for number in (0.0, 1 - 2**-24):  # the least and the greatest that are ever drawn
        numbers = torch.full((count, 1), number)
        never, always = (interpret(Policy(**rates), (32, 32), numbers) for rates in (NEVER, ALWAYS))
        assert [never.flip.item(), never.gray.item(), never.brightness.item(), never.sigma.item()] == [
            False,
            False,
            1,
            0,
        ]
        assert always.flip.item()
        assert always.gray.item()
        assert always.brightness.item() != 1
        assert always.sigma.item() > 0
        top, left, height, width = always.box[0].tolist()
        assert (top + height <= 32, left + width <= 32) == (True, True)


def test_a_crop_may_be_a_single_pixel() -> None:
    numbers = torch.zeros(uniform(1, torch.Generator()).shape[0], 1)  # the smallest of all crops
    assert interpret(Policy(), (2, 2), numbers).box.tolist() == [[0, 0, 1, 1]]
