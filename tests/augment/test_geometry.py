from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.nn import functional

from climb.augment import Policy, draw
from climb.augment.geometry import crop


def photos(n: int, size: tuple[int, int], seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
def test_agrees_with_pil(size: tuple[int, int]) -> None:
    images = photos(40, size)
    parameters = draw(Policy(), 40, size, torch.Generator().manual_seed(1))
    ours = crop(images.float() / 255, parameters.box, parameters.flip)
    for image, box, flip, view in zip(images, parameters.box.tolist(), parameters.flip.tolist(), ours, strict=True):
        top, left, height, width = (int(value) for value in box)
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        picture = picture.crop((left, top, left + width, top + height))
        picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        picture = ImageOps.mirror(picture) if flip else picture
        expected = torch.from_numpy(np.array(picture)).permute(2, 0, 1)
        # PIL rounds after each of its two passes.
        torch.testing.assert_close(view * 255, expected.float(), atol=1.1, rtol=0)


def test_agrees_with_torch_resize() -> None:
    images = photos(20, (32, 32)).float() / 255
    parameters = draw(Policy(), 20, (32, 32), torch.Generator().manual_seed(2))
    ours = crop(images, parameters.box, parameters.flip)
    for index, box in enumerate(parameters.box.long().tolist()):
        top, left, height, width = box
        piece = images[index : index + 1, :, top : top + height, left : left + width]
        expected = functional.interpolate(piece, (32, 32), mode="bilinear", align_corners=False)[0]
        expected = expected.flip(-1) if parameters.flip[index] else expected
        torch.testing.assert_close(ours[index], expected, atol=1e-5, rtol=0)


def test_nothing_outside_the_box_is_seen() -> None:
    box = torch.tensor([[5.0, 7.0, 11.0, 9.0]])
    image = torch.zeros(1, 3, 32, 32)
    image[:, :, 5:16, 7:16] = 1
    torch.testing.assert_close(crop(image, box, torch.tensor([False])), torch.ones(1, 3, 32, 32), atol=1e-5, rtol=0)


def test_a_single_pixel_fills_the_view() -> None:
    image = photos(1, (16, 16)).float()
    view = crop(image, torch.tensor([[3.0, 9.0, 1.0, 1.0]]), torch.tensor([True]))
    torch.testing.assert_close(view, image[:, :, 3:4, 9:10].expand_as(view), atol=1e-2, rtol=0)


@pytest.mark.parametrize("size", [(32, 32), (224, 224), (17, 30)])
def test_the_whole_image_comes_back(size: tuple[int, int]) -> None:
    images = photos(2, size).float() / 255
    whole = torch.tensor([[0.0, 0.0, *size]] * 2)
    views = crop(images, whole, torch.tensor([False, True]))
    torch.testing.assert_close(views[0], images[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(views[1], images[1].flip(-1), atol=1e-4, rtol=0)


@pytest.mark.parametrize("size", [16, 17])
def test_flips_and_turns_are_those_of_torch(size: int) -> None:
    images = photos(16, (size, size)).float() / 255
    number = torch.arange(16)
    flip, vertical_flip, turns = number % 2 == 1, number // 2 % 2 == 1, number // 4
    whole = torch.tensor([[0.0, 0.0, size, size]] * 16)
    views = crop(images, whole, flip, vertical_flip=vertical_flip, turns=turns)
    for index, view in enumerate(views):
        expected = images[index].flip(2) if flip[index] else images[index]
        expected = expected.flip(1) if vertical_flip[index] else expected
        expected = torch.rot90(expected, int(turns[index]), (1, 2))
        torch.testing.assert_close(view, expected, atol=1e-4, rtol=0)


def test_a_turned_crop_is_the_crop_turned() -> None:
    images = photos(20, (32, 32)).float() / 255
    parameters = draw(Policy(turn=0.75, vertical_flip=0.5), 20, (32, 32), torch.Generator().manual_seed(3))
    plain = crop(images, parameters.box, parameters.flip)
    views = crop(
        images, parameters.box, parameters.flip, vertical_flip=parameters.vertical_flip, turns=parameters.turns
    )
    assert parameters.vertical_flip is not None
    assert parameters.turns is not None
    for view, before, upside, turns in zip(views, plain, parameters.vertical_flip, parameters.turns, strict=True):
        expected = torch.rot90(before.flip(1) if upside else before, int(turns), (1, 2))
        torch.testing.assert_close(view, expected, atol=1e-5, rtol=0)


def test_without_flips_and_turns_the_view_is_the_crop() -> None:
    images = photos(6, (20, 28)).float() / 255
    parameters = draw(Policy(), 6, (20, 28), torch.Generator().manual_seed(4))
    none, zero = torch.zeros(6, dtype=torch.bool), torch.zeros(6, dtype=torch.int64)
    plain = crop(images, parameters.box, parameters.flip)
    views = crop(images, parameters.box, parameters.flip, vertical_flip=none, turns=zero)
    torch.testing.assert_close(views, plain, atol=1e-5, rtol=0)
