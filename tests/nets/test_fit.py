from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from climb.errors import InputError
from climb.nets import resnet18
from climb.nets.fit import fitted


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)


def state_of(encoder: nn.Module, prefix: str = "") -> dict[str, Tensor]:
    return {prefix + name: torch.full_like(value, 2) for name, value in encoder.state_dict().items()}


@pytest.mark.parametrize("prefix", ["", "module.", "backbone.", "encoder.", "module.encoder_q.backbone."])
def test_a_prefix_is_removed_and_classifier_and_other_parts_are_dropped(prefix: str) -> None:
    encoder = Small()
    other = {"projector.weight": torch.ones(2)} if prefix else {}
    found = fitted({**state_of(encoder, prefix), f"{prefix}fc.bias": torch.ones(9), **other}, encoder, source="x.pth")
    assert list(found) == list(encoder.state_dict())
    assert all((value == 2).all() for value in found.values())


def test_batch_counters_may_be_missing_and_types_are_the_encoders() -> None:
    encoder = Small()
    state = {name: value.half() for name, value in state_of(encoder).items() if "num_batches" not in name}
    found = fitted(state, encoder, source="x.pth")
    assert found["conv.weight"].dtype == torch.float32
    assert found["norm.num_batches_tracked"] == 0


def test_all_that_does_not_fit_is_listed_with_counts() -> None:
    encoder = Small()
    state = {**state_of(encoder), "extra.weight": torch.ones(1)}
    del state["conv.bias"]
    state["norm.bias"] = torch.ones(5)
    with pytest.raises(InputError) as raised:
        fitted(state, encoder, source="x.pth", network="'small' at 8 px")
    assert str(raised.value) == (
        "x.pth does not fit 'small' at 8 px: 1 missing (conv.bias); 1 unexpected (extra.weight); "
        "1 of another shape (norm.bias is (5,), expected (4,))"
    )


def test_another_architecture_is_named_as_such() -> None:
    with pytest.raises(InputError, match=r"x.pth holds weights of another architecture than this network: 6 missing"):
        fitted(resnet18(224, generator=torch.Generator()).state_dict(), Small(), source="x.pth")


def test_of_two_encoders_none_is_guessed() -> None:
    encoder = Small()
    both = {**state_of(encoder, "student."), **state_of(encoder, "teacher.")}
    with pytest.raises(InputError, match=r"x.pth holds several encoders: 'student\.', 'teacher\.'; save one of them"):
        fitted(both, encoder, source="x.pth")
