from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch

from climb.augment import Augment, Parameters, Policy, apply, draw, microscope, satellite, simclr
from climb.augment.colour import adjust_hue, adjust_saturation, blur
from climb.augment.parameters import interpret
from climb.errors import InputError

MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photos(n: int = 6, size: int = 32) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=generator(9))


def augment(*, per_batch: bool = False, policy: Policy | None = None) -> Augment:
    return Augment(policy or Policy(), MEAN, STD, per_batch=per_batch)


def parameters_of(views: Augment, images: torch.Tensor) -> Parameters:
    return interpret(views.policy, (images.shape[2], images.shape[3]), views.numbers(images, generator()))


def only(n: int, size: int, **changed: torch.Tensor) -> Parameters:
    """Neutral parameters of n images, except for ``changed``."""
    nothing = Policy(flip=0, jitter=0, grayscale=0, crop_scale=(1, 1), crop_ratio=(1, 1))
    return replace(draw(nothing, n, (size, size), generator()), **changed)


@pytest.mark.parametrize(("n", "size"), [(1, 16), (6, 32), (3, 64), (2, 224)])
def test_shape_and_range(n: int, size: int) -> None:
    views = augment(policy=simclr(size))(photos(n, size), generator())
    assert views.shape == (2, n, 3, size, size)
    assert views.dtype == torch.float32
    assert views.isfinite().all()
    pixels = views * torch.tensor(STD).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    assert pixels.min() >= -1e-5
    assert pixels.max() <= 1 + 1e-5


def test_identical_images_get_different_views() -> None:
    same = photos(1).expand(8, -1, -1, -1)
    views = augment()(same, generator()).flatten(0, 1)
    assert len({view.numpy().tobytes() for view in views}) == 16


@pytest.mark.parametrize("policy", [satellite(32), microscope(32)])
def test_views_of_images_without_an_orientation(policy: Policy) -> None:
    """Every orientation occurs, image by image, and the same seed gives the same views."""
    still = replace(policy, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), jitter=0.0, grayscale=0.0)
    same = photos(1).expand(200, -1, -1, -1)
    views = augment(policy=still)(same, generator()).flatten(0, 1)
    corners = views[:, 0, [0, 0, -1, -1], [0, -1, -1, 0]]  # clockwise: the orientation permutes them
    assert len({tuple((row * 1e4).round().tolist()) for row in (corners * 1e-2)}) == 8
    assert torch.equal(views, augment(policy=still)(same, generator()).flatten(0, 1))


@pytest.mark.parametrize("policy", [Policy(), Policy(turn=0.75)])
def test_per_batch_gives_identical_images_identical_views(policy: Policy) -> None:
    same = photos(1).expand(8, -1, -1, -1)
    views = augment(per_batch=True, policy=policy)(same, generator())
    assert (views == views[:, :1]).all()
    assert not torch.equal(views[0], views[1])


def test_same_generator_state_same_views() -> None:
    images = photos()
    assert torch.equal(augment()(images, generator(3)), augment()(images, generator(3)))
    numbers = generator(3)
    assert not torch.equal(augment()(images, numbers), augment()(images, numbers))


def test_only_the_given_generator_is_used_and_the_images_are_left_alone() -> None:
    images = photos()
    before, copy = torch.get_rng_state(), images.clone()
    augment(policy=simclr(224))(images, generator())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(images, copy)


@pytest.mark.parametrize("per_batch", [False, True])
def test_some_rows_of_a_batch_get_the_views_that_they_get_in_it(per_batch: bool) -> None:
    """Several processes can share one batch."""
    images, views = photos(), augment(per_batch=per_batch)
    numbers, rows = views.numbers(images, generator()), torch.tensor([4, 0, 3])
    own = views.views(images[rows], views.numbers_of(rows, numbers))
    assert torch.equal(own, views.views(images, numbers)[:, rows])


def test_a_view_depends_on_its_own_image_only() -> None:
    images, other = photos(), photos()
    other[1:] = 255 - other[1:]
    first, second = (augment(policy=simclr(224))(batch, generator()) for batch in (images, other))
    assert torch.equal(first[:, 0], second[:, 0])
    assert not torch.equal(first[:, 1], second[:, 1])


def test_boxes_fit_images_that_are_wider_than_high() -> None:
    images = torch.zeros(50, 3, 8, 24, dtype=torch.uint8)
    top, left, height, width = parameters_of(augment(), images).box.unbind(1)
    assert (top + height <= 8).all()
    assert (left + width <= 24).all()
    assert (left + width).max() > 8


def test_call_is_numbers_then_parameters_then_apply() -> None:
    images, views = photos(), augment()
    parameters = parameters_of(views, images)
    assert parameters.box.shape == (12, 4)
    assert torch.equal(views.apply(images, parameters), views(images, generator()))


def test_neutral_parameters_give_the_plain_image() -> None:
    images = photos()
    policy = Policy(
        crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip=0, brightness=0, contrast=0, saturation=0, hue=0,
        grayscale=0, blur=1.0, blur_sigma=(1e-3, 1e-3),
    )  # fmt: skip
    views = augment(policy=policy)
    torch.testing.assert_close(views(images, generator())[0], views.plain(images), atol=1e-4, rtol=0)


def test_plain_normalises() -> None:
    images = photos()
    plain = augment().plain(images)
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        expected = (images[:, channel].double() / 255 - mean) / std
        torch.testing.assert_close(plain[:, channel].double(), expected, atol=1e-5, rtol=0)


def test_steps_follow_the_documented_order() -> None:
    """Contrast after brightness, gray after colour: fixed parameters for which another order differs."""
    image = torch.tensor([0.9, 0.5, 0.2]).view(1, 3, 1, 1).expand(1, 3, 4, 4).contiguous()
    image[..., :2] = torch.tensor([0.1, 0.3, 0.6]).view(1, 3, 1, 1)
    one = torch.ones(1)
    parameters = only(1, 4, brightness=1.5 * one, contrast=0.5 * one, gray=one.bool())
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    bright = (image * 1.5).clamp(0, 1)
    mixed = 0.5 * bright + 0.5 * (bright * weights).sum(1, keepdim=True).mean()
    expected = (mixed * weights).sum(1, keepdim=True).expand(1, 3, 4, 4)
    torch.testing.assert_close(apply(image, parameters, Policy()), expected, atol=1e-5, rtol=0)


def test_saturation_comes_before_hue() -> None:
    images = photos(2) / 255
    saturation, hue = torch.tensor([0.4, 1.5]), torch.tensor([0.2, -0.1])
    changed = apply(images, only(2, 32, saturation=saturation, hue=hue), Policy())
    torch.testing.assert_close(changed, adjust_hue(adjust_saturation(images, saturation), hue), atol=1e-5, rtol=0)
    assert (changed - adjust_saturation(adjust_hue(images, hue), saturation)).abs().max() > 0.01


@pytest.mark.parametrize("kernel", [3, 9])
def test_the_blur_has_the_policys_window(kernel: int) -> None:
    images, sigma = photos(2) / 255, torch.tensor([2.0, 1.0])
    blurred = apply(images, only(2, 32, sigma=sigma), Policy(blur=1.0, blur_kernel=kernel))
    torch.testing.assert_close(blurred, blur(images, sigma, kernel), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "amount", "step"),
    [
        ("saturation", 0.3, adjust_saturation),
        ("hue", 0.2, adjust_hue),
        ("sigma", 1.5, partial(blur, kernel=5)),
    ],
)
def test_what_a_policy_allows_happens(name: str, amount: float, step: Callable[..., torch.Tensor]) -> None:
    images = photos(2) / 255
    amounts = torch.tensor([amount, amount / 2])
    changed = apply(images, only(2, 32, **{name: amounts}), Policy(blur=0.1))
    torch.testing.assert_close(changed, step(images, amounts), atol=1e-5, rtol=0)
    assert (changed - images).abs().max() > 0.01


def test_apply_is_one_graph() -> None:
    """Nothing in it looks at values, so it can be compiled or captured whole."""
    images, views = photos(), augment(policy=simclr(224))
    parameters = parameters_of(views, images)
    whole = torch.compile(views.apply, backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(images, parameters), views.apply(images, parameters))


@pytest.mark.parametrize(
    "wrong",
    [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(2, 8, 8, 3, dtype=torch.uint8)],
)
def test_wrong_images_are_rejected(wrong: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"must be torch.uint8 of shape \(n, 3, H, W\)"):
        augment()(wrong, generator())
    with pytest.raises(InputError, match=r"must be torch.uint8"):
        augment().plain(wrong)


@pytest.mark.parametrize(("mean", "std"), [((0.5,), STD), (MEAN, (0.2, 0.2)), (MEAN, (0.2, 0.0, 0.2))])
def test_wrong_statistics_are_rejected(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="three numbers each, std above 0"):
        Augment(Policy(), mean, std)


@pytest.mark.gpu
def test_the_device_agrees_with_the_cpu_and_can_be_captured() -> None:
    images = photos(16)
    here, there = augment(), Augment(Policy(), MEAN, STD, device="cuda")
    parameters = parameters_of(here, images)
    moved = Parameters(**{name: None if value is None else value.cuda() for name, value in vars(parameters).items()})
    torch.testing.assert_close(
        there.apply(images.cuda(), moved).cpu(), here.apply(images, parameters), atol=1e-4, rtol=0
    )

    numbers, still = torch.Generator("cuda").manual_seed(0), images.cuda()
    there(still, numbers)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(numbers)
    with torch.cuda.graph(graph):
        captured = there(still, numbers)
    graph.replay()
    first = captured.clone()
    graph.replay()
    assert not torch.equal(first, captured)
