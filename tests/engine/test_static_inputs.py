"""What a captured step reads is what it was given, whether or not it had to be copied."""

from __future__ import annotations

import pytest
import torch

from climb.engine.captured import StaticInputs


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the number of elements with every copy."""
    made: list[int] = []
    copy = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda into, given: made.append(given.numel()) or copy(into, given))
    return made


def test_what_is_given_again_unchanged_is_not_copied(copies: list[int]) -> None:
    images, rows = torch.arange(4.0), torch.arange(2)
    held = StaticInputs((images, rows))
    addresses = [tensor.data_ptr() for tensor in held.tensors]
    held.take((images, rows))
    assert copies == [4, 2]
    held.take((images, rows))
    assert copies == [4, 2]
    held.take((torch.ones(4), rows))
    assert copies == [4, 2, 4]
    assert held.tensors[0].tolist() == [1.0] * 4
    held.take((images, rows))
    assert copies == [4, 2, 4, 4]
    assert held.tensors[0].tolist() == images.tolist()
    assert [tensor.data_ptr() for tensor in held.tensors] == addresses


def test_a_tensor_that_was_changed_in_place_is_copied_again() -> None:
    images = torch.zeros(4)
    held = StaticInputs((images,))
    for change in (lambda: images.add_(1), lambda: images[1:3].zero_(), lambda: images.view(2, 2).fill_(7)):
        held.take((images,))
        change()
        held.take((images,))
        assert torch.equal(held.tensors[0], images)


def test_another_tensor_at_the_address_of_the_last_is_copied() -> None:
    held = StaticInputs((torch.zeros(1000),))
    for value in range(50):
        held.take((torch.full((1000,), float(value)),))  # freed at once: the next may get its place
        assert held.tensors[0][0].item() == value


def test_tensors_of_inference_mode_are_always_copied(copies: list[int]) -> None:
    with torch.inference_mode():
        images = torch.zeros(4)
        held = StaticInputs((images,))
        held.take((images,))
        images.add_(1)
        held.take((images,))
    assert copies == [4, 4]
    assert held.tensors[0].tolist() == [1.0] * 4
