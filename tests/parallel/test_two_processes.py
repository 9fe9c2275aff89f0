"""Two real processes against one: the same numbers, the same memory, half of it each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from climb.parallel import GlobalBatchNorm, Group, ShardedStore

Found = dict[str, list[Any]]


@pytest.mark.parametrize("name", ["1d", "2d", "one row"])
def test_batch_norm_is_that_of_the_whole_batch(name: str, two: Found) -> None:
    for seen in (rank[name] for rank in two["batch_norm"]):
        rows = seen["rows"].clone().requires_grad_()
        norm = (nn.BatchNorm1d if rows.ndim == 2 else nn.BatchNorm2d)(5).double()
        norm.load_state_dict(_plain(seen["state"]))
        norm.reset_running_stats()
        output = norm(rows)
        (output * seen["weights"]).square().sum().backward()
        assert torch.allclose(seen["output"], output, atol=1e-9)
        assert torch.allclose(seen["of_rows"], rows.grad[seen["own"]], atol=1e-8)
        assert torch.allclose(seen["of_weight"], norm.weight.grad, atol=1e-8)
        assert torch.allclose(seen["of_bias"], norm.bias.grad, atol=1e-8)
        for key, value in norm.state_dict().items():
            assert torch.allclose(_plain(seen["state"])[key], value, atol=1e-9), key


def _plain(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix("0."): value for name, value in state.items()}


def test_batch_norm_in_eval_mode_is_the_one_it_was_and_asks_no_other_process() -> None:
    norm = nn.BatchNorm1d(5)
    norm(3.0 + torch.randn(20, 5, generator=torch.Generator().manual_seed(0)))
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    expected = norm.eval()(rows)
    before = norm.running_mean.clone()
    shared = GlobalBatchNorm(norm, Group(rank=0, size=2))  # whose other process does not exist
    assert torch.equal(shared(rows), expected)
    assert torch.equal(shared.running_mean, before)


def test_twenty_steps_are_those_of_one_process(two: Found) -> None:
    for rank in two["twenty_steps"]:
        one, both = rank["one"], rank["all"]
        for before, after in zip(one["losses"], both["losses"], strict=True):
            assert after == pytest.approx(before, abs=1e-4, nan_ok=True)
        for room in ("network", "alignment", "optimizer"):
            assert one["state"][room].keys() == both["state"][room].keys()
            for name, value in one["state"][room].items():
                assert torch.allclose(both["state"][room][name].double(), value.double(), atol=1e-4, rtol=1e-4), name
        assert one["state"]["budget"] == both["state"]["budget"]


def test_the_memory_is_that_of_one_process_image_for_image(two: Found) -> None:
    for rank in two["twenty_steps"]:
        one, both = rank["one"]["state"]["memory"], rank["all"]["state"]["memory"]
        assert rank["one"]["reports"] == rank["all"]["reports"]
        assert sum(report["promoted"] for report in rank["one"]["reports"]) > 0
        for name, value in one.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                assert torch.allclose(both[name], value, atol=1e-4), name
            elif isinstance(value, torch.Tensor):
                assert torch.equal(both[name], value), name
            else:
                assert both[name] == value, name


def test_processes_stay_alike_to_the_bit(two: Found) -> None:
    first, second = (rank["all"]["state"] for rank in two["twenty_steps"])
    for room in ("network", "alignment", "optimizer"):
        for name, value in first[room].items():
            assert torch.equal(value, second[room][name]), name
    assert torch.equal(first["memory"]["values"], second["memory"]["values"])


def test_each_keeps_the_images_whose_number_is_its_own(two: Found) -> None:
    shares = [rank["share"] for rank in two["twenty_steps"]]
    state = two["twenty_steps"][0]["one"]["state"]["memory"]
    ids = torch.cat([state["stm_pool"], state["ltm_pool"]]).tolist()
    for rank, share in enumerate(shares):
        assert all(image % 2 == rank for image in share["ids"])
        assert share["kept"] == len(share["ids"]) <= share["stored"] == len(ids)
        assert share["nbytes"] < 60 * 3 * 16 * 16  # not room for all of them
        for image, kept in share["images"].items():
            assert torch.equal(kept, state["images"][ids.index(image)])
    assert sorted(shares[0]["ids"] + shares[1]["ids"]) == sorted(ids)


def test_room_grows_for_a_process_that_owns_more_than_its_share(two: Found) -> None:
    first, second = two["growth"]
    assert first["got"] == second["got"] == [100, 101, 3, 4, 5, 6, 7, 8]
    assert first["own"] == [100, 101, 3, 4, 0, 0, 0, 0]
    assert second["own"] == [0, 0, 0, 0, 5, 6, 7, 8]
    assert first["none"] == (0, 3, 2, 2)
    assert (first["kept"], second["kept"]) == (7, 1)
    assert first["room"] == [5, 9]
    assert second["room"] == [5, 5]
    assert first["stored"] == second["stored"] == 8


def test_room_never_grows_beyond_the_capacity() -> None:
    store = ShardedStore(6, (3, 1, 1), "cpu", Group(rank=0, size=2))
    images = torch.arange(18, dtype=torch.uint8).view(6, 3, 1, 1)
    rooms = []
    for number in range(6):
        store.put(images[number : number + 1], [2 * number])  # all of them its own
        rooms.append(store.nbytes // 3)
    assert rooms == [3, 3, 3, 5, 5, 6]


def test_what_cannot_be_shared_is_refused(two: Found) -> None:
    for said in two["refusals"]:
        assert "pcmc" in said["pcmc"]
        assert "one process" in said["pcmc"]
        assert "--engine eager" in said["captured"]
        assert said["auto"] == "eager"
        assert "Shuffled" in said["mix"]
        assert said["agree"] == ""
        assert "no longer agree" in said["disagree"]


def test_a_step_sends_what_the_page_on_scaling_says(two: Found) -> None:
    for rank in two["traffic"]:
        agreement = 3 * 8  # once per mini-batch, of which this one has a single step
        replay = rank["said"].pop("replay")
        rest = rank["sent"]["bytes"] - agreement - sum(rank["said"].values())
        assert rest % rank["image"] == pytest.approx(0, abs=1)
        # Who keeps the images that were drawn is chance; the page tells what is expected.
        assert abs(rest - replay) <= 2 * rank["image"]
        assert rank["sent"]["exchanges"] == rank["exchanges"] + 1


@pytest.mark.slow(seconds=20)
def test_three_processes_share_what_three_do_not_divide(start: Callable[..., Found], two: Found) -> None:
    found = start(3, "twenty_steps")
    test_twenty_steps_are_those_of_one_process(found)
    test_the_memory_is_that_of_one_process_image_for_image(found)
    held = [image for rank in found["twenty_steps"] for image in rank["share"]["ids"]]
    assert sorted(held) == sorted(image for rank in two["twenty_steps"] for image in rank["share"]["ids"])
    assert [{image % 3 for image in rank["share"]["ids"]} for rank in found["twenty_steps"]] == [{0}, {1}, {2}]


@pytest.mark.slow(seconds=20)
def test_every_method_takes_the_step_of_one_process(start: Callable[..., Found]) -> None:
    for rank in start(2, "every_method")["every_method"]:
        assert len(rank) == 30
        for case, (worst, different) in rank.items():
            assert worst < 1e-4, case
            assert not different, case
