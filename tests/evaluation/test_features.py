from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from climb.errors import ClimbError, InputError
from climb.evaluation import extract_features
from climb.evaluation.features import check_label_range, check_labelled, check_pair


def make_encoder() -> nn.Sequential:
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    encoder[1].running_mean.normal_()
    encoder[1].running_var.uniform_(0.5, 2.0)
    return encoder


def make_images(rows: int) -> torch.Tensor:
    return torch.randint(256, (rows, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def prepare(batch: torch.Tensor) -> torch.Tensor:
    return batch.float() / 255 - 0.5


@pytest.mark.parametrize("batch_size", [1, 4, 10, 1024])
def test_features_are_those_of_evaluation_mode_for_any_batch_size(batch_size: int) -> None:
    encoder, images = make_encoder().train(), make_images(10)
    features = extract_features(encoder, images, prepare, batch_size=batch_size, device="cpu")
    with torch.no_grad():
        expected = copy.deepcopy(encoder).eval()(prepare(images))
    torch.testing.assert_close(features, expected)
    assert features.dtype == torch.float32
    assert not features.requires_grad


def test_the_encoder_comes_back_as_it_was() -> None:
    encoder = make_encoder().train()
    encoder[1].eval()  # a part kept frozen on purpose
    flags = [module.training for module in encoder.modules()]
    state = copy.deepcopy(encoder.state_dict())
    extract_features(encoder, make_images(6), prepare, device="cpu")
    assert [module.training for module in encoder.modules()] == flags
    assert all(torch.equal(value, state[name]) for name, value in encoder.state_dict().items())
    assert torch.is_grad_enabled()


def test_modes_are_restored_after_an_error() -> None:
    encoder = make_encoder().train()
    with pytest.raises(RuntimeError):
        extract_features(encoder, make_images(2), lambda batch: batch.float()[:, :1], device="cpu")
    assert encoder.training
    assert encoder[1].training


def test_images_may_be_memory_mapped(tmp_path: Path) -> None:
    images = make_images(7)
    np.save(tmp_path / "images.npy", images.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "images.npy", mmap_mode="c"))
    encoder = make_encoder()
    features = extract_features(encoder, mapped, prepare, batch_size=3, device="cpu")
    torch.testing.assert_close(features, extract_features(encoder, images, prepare, device="cpu"))


def test_half_precision_encoders_give_float32() -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).bfloat16()
    features = extract_features(encoder, make_images(3), lambda batch: batch.bfloat16(), device="cpu")
    assert features.dtype == torch.float32


def test_the_precision_argument_overrides_global_settings() -> None:
    seen: list[torch.dtype] = []
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    encoder.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        extract_features(encoder, make_images(3), prepare, device="cpu")
    extract_features(encoder, make_images(3), prepare, device="cpu", precision="bf16")
    assert seen == [torch.float32, torch.bfloat16]


@pytest.mark.parametrize(
    ("images", "batch_size", "message"),
    [
        (torch.zeros(2, 3, 8, 8), 1, r"images must be uint8 \(n, 3, H, W\), not torch.float32"),
        (torch.zeros(2, 8, 8, 3, dtype=torch.uint8), 1, r"not torch.uint8 \(2, 8, 8, 3\)"),
        (torch.zeros(0, 3, 8, 8, dtype=torch.uint8), 1, "no images"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), 0, "batch_size is 0"),
    ],
)
def test_bad_input_is_rejected(images: torch.Tensor, batch_size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        extract_features(make_encoder(), images, prepare, batch_size=batch_size, device="cpu")


def test_an_encoder_that_returns_maps_is_rejected() -> None:
    with pytest.raises(InputError, match=r"for 2 images it returned \(2, 6, 6, 6\)"):
        extract_features(make_encoder()[:3], make_images(2), prepare, device="cpu")


def zeros(rows: int) -> torch.Tensor:
    return torch.zeros(rows, dtype=torch.int64)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(3, 2, 2), zeros(3), r"features must be floating point \(n, f\), not torch.float32 \(3, 2, 2\)"),
        (torch.zeros(3, 2, dtype=torch.uint8), zeros(3), "not torch.uint8"),
        (torch.zeros(3, 0), zeros(3), r"not torch.float32 \(3, 0\)"),
        (torch.zeros(3, 2), torch.zeros(3), r"labels must be int64 \(n,\), not torch.float32 \(3,\)"),
        (torch.zeros(3, 2), zeros(4), "3 rows of features but 4 labels"),
        (torch.zeros(0, 2), zeros(0), "no rows"),
        (torch.zeros(3, 2), zeros(3).to("meta"), r"features are on cpu but labels on meta.*labels.to\('cpu'\)"),
    ],
)
def test_invalid_input_is_rejected_and_named(features: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=f"^some part: .*{message}"):
        check_labelled("some part", features, labels)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_encoder_is_called_that(value: float) -> None:
    features = torch.zeros(4, 3)
    features[1:3, 0] = value
    with pytest.raises(ClimbError, match=r"2 of 4 rows of features are not finite\. The encoder has diverged"):
        check_labelled("train", features, zeros(4))


@pytest.mark.parametrize("labels", [[0, 3], [-1, 2]])
def test_labels_outside_the_classes_are_rejected(labels: list[int]) -> None:
    with pytest.raises(InputError, match="with 3 classes, 0 to 2 is allowed"):
        check_label_range("train", torch.tensor(labels), 3)


def test_parts_must_fit_together() -> None:
    with pytest.raises(InputError, match="train features have 2 columns but test features 3"):
        check_pair(torch.zeros(4, 2), zeros(4), torch.zeros(4, 3), zeros(4))
    with pytest.raises(InputError, match="labels run from -1"):
        check_pair(torch.zeros(4, 2), zeros(4) - 1, torch.zeros(4, 2), zeros(4))
    with pytest.raises(InputError, match=r"^test: 4 rows of features but 5 labels"):
        check_pair(torch.zeros(4, 2), zeros(4), torch.zeros(4, 2), zeros(5))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_smaller_batches_on_a_cpu_change_no_bit(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, images, sizes = make_encoder(), make_images(50), list[int]()
    encoder.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    whole = extract_features(encoder, images, prepare, device="cpu", precision=precision)
    monkeypatch.setattr("climb.evaluation.features.CACHED_PIXELS", 20 * 64)
    parts = extract_features(encoder, images, prepare, device="cpu", precision=precision)
    assert sizes == [50, 20, 20, 10]
    assert torch.equal(whole, parts)
