from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import nn

from climb.datasets import Split, synthetic
from climb.datasets.textures import _stencils, _symmetries, textures
from climb.errors import InputError


def coarse(split: Split) -> torch.Tensor:
    return F.avg_pool2d(split.images.float() / 255, split.images.shape[-1] // 8).flatten(1)


def test_same_arguments_same_bytes_and_seed_matters() -> None:
    first, again = (synthetic(classes=3, train_per_class=4, test_per_class=2, seed=5) for _ in range(2))
    assert torch.equal(first.train.images, again.train.images)
    assert torch.equal(first.test.images, again.test.images)
    other = synthetic(classes=3, train_per_class=4, test_per_class=2, seed=6)
    assert not torch.equal(first.train.images, other.train.images)


def test_parts_have_their_own_images() -> None:
    data = synthetic(classes=2, train_per_class=3, test_per_class=3)
    assert not torch.equal(data.train.images, data.test.images)


def test_shapes_labels_and_statistics() -> None:
    data = synthetic(classes=5, train_per_class=7, test_per_class=2, image_size=24)
    assert data.train.images.shape == (35, 3, 24, 24)
    assert data.train.images.dtype == torch.uint8
    assert data.test.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    pixels = data.train.images.double() / 255
    assert data.mean == pytest.approx(pixels.mean(dim=(0, 2, 3)).tolist())
    assert data.std == pytest.approx(pixels.std(dim=(0, 2, 3), correction=0).tolist())


def test_images_of_a_class_do_not_depend_on_the_number_of_classes() -> None:
    few = synthetic(classes=2, train_per_class=4, test_per_class=1)
    many = synthetic(classes=40, train_per_class=4, test_per_class=1)
    assert torch.equal(few.train.images, many.train.images[:8])
    assert many.classes[:2] == few.classes
    assert len(set(many.classes)) == 40


def test_chunked_rendering_fills_every_image() -> None:
    data = synthetic(classes=1, train_per_class=9, test_per_class=0, image_size=512)
    assert (data.train.images.float().std(dim=(1, 2, 3)) > 1).all()
    assert len(data.test) == 0


def test_every_texture_has_ink_and_ground_and_repeats() -> None:
    # Not at round numbers, where rounding decides on which side of an edge a point lies.
    axis = torch.linspace(0, 2, 81)[:-1] + 0.00713
    v, u = torch.meshgrid(axis, axis, indexing="ij")
    for name, texture in textures(60).items():
        ink = texture(u[None], v[None]) > 0
        assert 0.05 < ink.float().mean() < 0.95, name
        # Alternating textures repeat after two cells, the others after one.
        again = texture(u[None] + 2, v[None] - 2) > 0
        assert (ink == again).float().mean() > 0.99, name


def test_no_stencil_is_a_turned_flipped_shifted_or_inverted_other() -> None:
    stencils = torch.stack(_stencils(80)).flatten(1)
    variants = stencils[:, torch.from_numpy(_symmetries())]
    for i, stencil in enumerate(stencils):
        for variant in (stencil, 1 - stencil):
            alike = (variants == variant).all(dim=2).any(dim=1).nonzero().flatten().tolist()
            assert set(alike) <= {i}


def test_coarse_pixels_do_not_give_the_class_away() -> None:
    data = synthetic()
    probe = LogisticRegression(max_iter=500).fit(coarse(data.train).numpy(), data.train.labels.numpy())
    assert probe.score(coarse(data.test).numpy(), data.test.labels.numpy()) < 0.35


def test_mean_colour_does_not_give_the_class_away() -> None:
    data = synthetic()
    train, test = (split.images.float().mean(dim=(2, 3)) / 255 for split in (data.train, data.test))
    probe = LogisticRegression().fit(train.numpy(), data.train.labels.numpy())
    assert probe.score(test.numpy(), data.test.labels.numpy()) < 0.2


@pytest.mark.slow(seconds=35)
def test_a_small_network_learns_the_classes() -> None:
    torch.manual_seed(0)
    data = synthetic()
    mean, std = (torch.tensor(t).view(3, 1, 1) for t in (data.mean, data.std))
    train, test = ((split.images / 255 - mean) / std for split in (data.train, data.test))
    widths = [3, 32, 64, 128, 128]
    layers: list[nn.Module] = []
    for i in range(4):
        stride = 1 if i == 0 else 2
        layers += [
            nn.Conv2d(widths[i], widths[i + 1], 3, stride, 1, bias=False),
            nn.BatchNorm2d(widths[i + 1]),
            nn.ReLU(),
        ]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    steps = 250
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    for step in range(steps):
        rows = torch.randint(len(train), (64,))
        images = train[rows].flip(-1) if step % 2 else train[rows]
        loss = F.cross_entropy(network(images), data.train.labels[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    network.eval()
    with torch.no_grad():
        accuracy = (network(test).argmax(1) == data.test.labels).float().mean()
    assert accuracy > 0.85


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 0}, "classes=0 is impossible for synthetic images; allowed: 1 to 10000"),
        ({"train_per_class": 0}, "train_per_class=0 is impossible for synthetic images; allowed: 1 or more"),
        ({"test_per_class": -1}, "test_per_class=-1 is impossible for synthetic images; allowed: 0 or more"),
        ({"image_size": 4}, "image_size=4 is impossible for synthetic images; allowed: 8 or more"),
    ],
)
def test_impossible_sizes(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        synthetic(**options)
