from __future__ import annotations

import kornia
import pytest
import torch

from climb.augment.blur import blur


@pytest.mark.parametrize("kernel", [3, 5, 9])
def test_agrees_with_kornia(kernel: int) -> None:
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
