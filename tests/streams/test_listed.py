"""Scenarios that list their images: by domain, recurring, long-tailed, natural and custom."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.errors import InputError
from climb.streams import SCENARIOS, Images, Manifest, Stream, list_images, make_manifest, scenario, takes_tasks

LISTED = ("domain", "recurring", "long-tailed", "natural", "custom")


def labels(per_class: int, classes: int = 4, seed: int = 0) -> torch.Tensor:
    own = torch.arange(classes).repeat_interleave(per_class)
    return own[torch.randperm(len(own), generator=torch.Generator().manual_seed(seed))]


@pytest.fixture
def images() -> Images:
    """160 training and 40 test images of 4 classes in 2 domains, in files numbered by time."""
    return Images(
        train_labels=labels(40),
        test_labels=labels(10, seed=1),
        classes=4,
        train_names=tuple(f"some/frame-{5 * n // 4}.jpg" for n in range(160)),
        test_names=tuple(f"some/frame-{5 * n + 4}.jpg" for n in range(40)),
        domains=("photo", "sketch"),
        train_domains=torch.arange(160) % 2,
        test_domains=torch.arange(40) % 2,
    )


def build(kind: str, images: Images, *, tasks: int = 2, seed: int = 0, **options: Any) -> Manifest:
    if kind == "custom":
        options.setdefault("order", [list(range(160))])
    return make_manifest(kind, images, tasks=tasks, seed=seed, options=options)


def arrived(stream: Stream, size: int = 1) -> list[int]:
    return [index for batch in stream.batches(size) for index in batch.indices.tolist()]


def test_all_scenarios_are_listed() -> None:
    assert set(SCENARIOS) == {"regular", "irregular", "blurred", "iid", *LISTED}
    assert [kind for kind in SCENARIOS if not takes_tasks(kind)] == ["domain"]


@pytest.mark.parametrize("kind", LISTED)
def test_groups_and_segments_keep_the_rules(kind: str, images: Images) -> None:
    stream = Stream(build(kind, images), images.train_labels, images.test_labels)
    order, trained = arrived(stream), torch.cat([group.train for group in stream.groups]).tolist()
    assert len(set(order)) == len(order)
    assert sorted(order) == sorted(trained)
    held_out = torch.cat([group.validation for group in stream.groups]).tolist()
    assert not {*held_out} & {*order}
    assert held_out
    tests = torch.cat([group.test for group in stream.groups]).tolist()
    assert sorted(tests) == list(range(40))
    ends = [batch.ends_segment for batch in stream.batches(8) if batch.ends_segment is not None]
    assert ends == list(range(len(stream.shown)))
    assert list(dict.fromkeys(group for shown in stream.shown for group in shown)) == list(range(len(stream.groups)))


@pytest.mark.parametrize("kind", LISTED)
def test_a_saved_manifest_replays_the_stream(kind: str, images: Images, tmp_path: Path) -> None:
    manifest = build(kind, images, seed=3)
    manifest.save(tmp_path / "scenario.json")
    again = Manifest.load(tmp_path / "scenario.json")
    assert again == manifest
    one, other = (Stream(each, images.train_labels, images.test_labels) for each in (manifest, again))
    assert arrived(one) == arrived(other)
    assert one.shown == other.shown
    for mine, theirs in zip(one.groups, other.groups, strict=True):
        assert mine.name == theirs.name
        for part in ("train", "validation", "test"):
            assert torch.equal(getattr(mine, part), getattr(theirs, part))


def test_domains_arrive_in_the_given_order(images: Images) -> None:
    assert [group.name for group in build("domain", images).groups] == ["photo", "sketch"]
    manifest = build("domain", images, domains="sketch,photo")
    assert [group.name for group in manifest.groups] == ["sketch", "photo"]
    assert images.train_domains is not None
    assert images.test_domains is not None
    for segment, domain in zip(manifest.segments, (1, 0), strict=True):
        assert set(images.train_domains[list(segment.images)].tolist()) == {domain}
        assert set(images.train_labels[list(segment.images)].tolist()) == {0, 1, 2, 3}
    assert set(images.test_domains[list(manifest.groups[0].test)].tolist()) == {1}
    # A tenth of each class in each domain, rounded down.
    counts = torch.bincount(2 * images.train_labels + images.train_domains).tolist()
    held_out = [sum(n // 10 for n in counts[1::2]), sum(n // 10 for n in counts[::2])]
    assert [len(group.validation) for group in manifest.groups] == held_out
    only = build("domain", images, domains="sketch")
    assert sum(len(segment.images) for segment in only.segments) == 80 - held_out[0]


def test_tasks_recur_after_others_with_new_images(images: Images) -> None:
    manifest = build("recurring", images, tasks=4, returns=2, return_share=0.5)
    shown = [segment.groups for segment in manifest.segments]
    assert shown[:4] == [(0,), (1,), (2,), (3,)]
    assert [sorted(shown[start : start + 4]) for start in (4, 8)] == [[(0,), (1,), (2,), (3,)]] * 2
    assert all(one != other for one, other in pairwise(shown))
    assert sum(len(segment.images) for segment in manifest.segments) == 144  # as long as a regular stream
    first, second = len(manifest.segments[0].images), len(manifest.segments[4].images)
    assert first > 1.5 * second
    by_domain = build("recurring", images, tasks_by="domain")
    assert [group.name for group in by_domain.groups] == ["photo", "sketch"]
    assert [segment.groups for segment in by_domain.segments] == [(0,), (1,), (0,), (1,)]


def test_class_sizes_decay_exponentially() -> None:
    many = Images(train_labels=labels(1000), test_labels=labels(10), classes=4)
    manifest = build("long-tailed", many, tasks=2, imbalance=100)
    kept = [*(image for group in manifest.groups for image in (*group.train, *group.validation))]
    counts = sorted(torch.bincount(many.train_labels[kept]).tolist(), reverse=True)
    assert counts == [1000, 215, 46, 10]
    assert sum(len(group.test) for group in manifest.groups) == 40
    assert len(build("long-tailed", many, imbalance=1).segments) == 2


def test_the_natural_order_is_that_of_the_file_names() -> None:
    names = tuple(f"{'ab'[n % 2]}/IMG_{n}.jpg" for n in (10, 2, 33, 1, 7, 21))
    late = Images(
        train_labels=torch.zeros(6, dtype=torch.int64),
        test_labels=torch.zeros(2, dtype=torch.int64),
        classes=1,
        train_names=names,
        test_names=("b/IMG_30.jpg", "a/IMG_3.jpg"),
    )
    manifest = make_manifest("natural", late, tasks=2, seed=0, validation=0)
    assert [segment.images for segment in manifest.segments] == [(3, 1, 4), (0, 5, 2)]
    assert [group.test for group in manifest.groups] == [(1,), (0,)]


def test_a_dataset_without_files_keeps_its_own_order() -> None:
    frames = Images(train_labels=labels(10), test_labels=labels(5), classes=4)
    manifest = make_manifest("natural", frames, tasks=4, seed=0, validation=0)
    assert [image for segment in manifest.segments for image in segment.images] == list(range(40))
    assert manifest.groups[1].test == (5, 6, 7, 8, 9)


def test_a_custom_order_is_kept_by_index_and_by_name(images: Images) -> None:
    order = torch.randperm(160, generator=torch.Generator().manual_seed(5)).tolist()
    whole = build("custom", images, order=[order], tasks=4)
    assert len(whole.segments) == 4
    stream = [image for segment in whole.segments for image in segment.images]
    assert stream == [image for image in order if image in set(stream)]
    assert 140 < len(stream) < 160
    pieces = [
        [images.train_names[n] for n in order[:50]] + ["some/frame-4.jpg"],
        [images.train_names[n] for n in order[50:]],
    ]
    named = build("custom", images, order=pieces)
    assert len(named.segments[0].images) <= 50
    # A domain belongs to the segment in which most of its images arrive.
    evens = [[n for n in range(160) if n % 2 == 0], [n for n in range(160) if n % 2]]
    assert images.test_domains is not None
    groups = build("custom", images, order=evens).groups
    assert [set(images.test_domains[list(group.test)].tolist()) for group in groups] == [{0}, {1}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: build("domain", i, domains="photo,skech"), "unknown domain 'skech'; did you mean 'sketch'"),
        (lambda i: build("domain", i, domains="photo,photo"), "named twice"),
        (lambda i: build("domain", Images(train_labels=i.train_labels, test_labels=i.test_labels, classes=4)),
         "scenario 'domain' needs images by domain; give --dataset domains --data FOLDER"),
        (lambda i: build("recurring", i, returns=0), "returns must be 1 or more"),
        (lambda i: build("recurring", i, return_share=1.0), "return_share must be above 0 and below 1; given 1.0"),
        (lambda i: build("recurring", i, tasks_by="clas"), "unknown tasks_by 'clas'; did you mean 'class'"),
        (lambda i: build("recurring", i, tasks=1), "use at least 2 tasks"),
        (lambda i: build("recurring", i, tasks=5), "4 classes cannot be cut into 5 tasks"),
        (lambda i: build("long-tailed", i, imbalance=0.5), "imbalance must be at least 1; given 0.5"),
        (lambda i: build("long-tailed", i, blur=3), "only 'blurred' has it"),
        (lambda i: build("natural", i, tasks=100), "160 training and 40 test images cannot be cut into 100 tasks"),
        (lambda i: build("natural", i, returns=2), "only 'recurring' has it"),
        (lambda i: build("custom", i, order=[]), "needs an order: --order FILE"),
        (lambda i: build("custom", i, order=[[0, 160]]), "the order names image 160; the dataset has images 0 to 159"),
        (lambda i: build("custom", i, order=[[0, 1, 0]]), "more than once in the order: some/frame-0.jpg"),
        (lambda i: build("custom", i, order=[["some/frame-1.jpeg"]]), "did you mean 'some/frame-1.jpg'"),
        (lambda i: build("custom", i, order=[[0, 1]], tasks=3), "an order of 2 images cannot be cut into 3 tasks"),
        (lambda i: build("recuring", i), "unknown scenario 'recuring'; did you mean 'recurring'"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call: Callable[[Images], object], message: str, images: Images) -> None:
    with pytest.raises(InputError, match=message):
        call(images)


PLAIN: dict[str, Any] = {
    "kind": "mine",
    "seed": 0,
    "groups": [{"name": "a", "train": [0, 1], "test": [0]}, {"name": "b", "train": [2], "test": [1]}],
    "segments": [{"groups": [0], "images": [0, 1]}, {"groups": [1], "images": [2]}],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segments": [{"groups": [0], "images": [0, 1]}, {"groups": [1], "images": [1]}]}, "more than once: 1"),
        ({"segments": [{"groups": [1], "images": [2]}, {"groups": [0], "images": [0]}]}, "first group 0, then group 1"),
        ({"segments": [{"groups": [0], "images": [0]}]}, "segments must show every group"),
        ({"segments": [{"groups": [0], "images": []}]}, "segment 0 shows 0 images"),
        ({"segments": [{"groups": [0], "image": [0]}]}, "unknown key of a segment 'image'; did you mean 'images'"),
        ({"segments": [{"groups": [0]}]}, "a segment of the stream lacks images"),
        ({"segments": [[0]]}, "a segment of a stream must be a JSON object"),
        ({"segments": [{"groups": [0], "images": "01"}]}, "images of a segment must be a list of indices, not str"),
        ({"segments": [{"groups": [0], "images": [-1]}]}, "an index in images of a segment must be 0 or more, not -1"),
        ({"groups": [{"name": "a", "train": [0], "test": []}]}, "group 'a' has no test images"),
        ({"groups": [{"name": "", "train": [0], "test": [0]}]}, "a group needs a name"),
        ({"kind": "regular"}, "has tasks, or groups and segments; not both"),
    ],
)
def test_a_wrong_manifest_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Manifest.from_json(json.dumps(PLAIN | change))


def test_a_manifest_of_another_dataset_is_refused() -> None:
    manifest = Manifest.from_json(json.dumps(PLAIN))
    with pytest.raises(InputError, match=r"lists training image 2, .* images 0 to 1; use a manifest made for this"):
        Stream(manifest, torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match="lists test image 1"):
        Stream(manifest, torch.zeros(3, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))


def test_a_scenario_of_ones_own(registries: None, images: Images) -> None:
    @scenario("by-class")
    def by_class(images: Images, *, seed: int, validation: float = 0.1, backwards: bool = False) -> Manifest:
        """Class after class."""
        of_train, of_test = images.train_labels.numpy(), images.test_labels.numpy()
        if backwards:
            of_train, of_test = images.classes - 1 - of_train, images.classes - 1 - of_test
        return list_images("by-class", images, of_train, of_test, ["a", "b", "c", "d"], seed=seed)

    manifest = make_manifest("by-class", images, tasks=9, seed=0, options={"backwards": True})
    assert [set(images.train_labels[list(s.images)].tolist()) for s in manifest.segments] == [{3}, {2}, {1}, {0}]
    with pytest.raises(InputError, match="only 'irregular' has it"):
        make_manifest("by-class", images, tasks=9, seed=0, options={"cap": 3})
    with pytest.raises(InputError, match="it must be a function"):
        scenario("no-function")(3)  # type: ignore[type-var]
