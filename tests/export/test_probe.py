"""Probes of a labelled folder: better than chance, and equal to scikit-learn on the same features."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler, normalize

from climb import Climb
from climb.datasets.folder import domains
from climb.errors import InputError
from climb.evaluation.tuned_ridge import choose_penalty
from climb.export import OpenModel, embed, images_of, open_model, probe
from climb.session import execute
from climb.session.labelled_folder import labelled_folder
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
)

Coloured = Callable[..., Path]


@pytest.fixture
def model(encoder_file: Callable[..., Path]) -> OpenModel:
    return open_model(encoder_file(), device="cpu")


def features_of(model: OpenModel, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    batches = list(embed(model, images_of(folder, 16)))
    labels = [int(Path(path).parent.name[-1]) for batch in batches for path in batch.paths]
    return np.concatenate([batch.features for batch in batches]), np.array(labels)


def cosine_vote(k: int) -> KNeighborsClassifier:
    return KNeighborsClassifier(k, metric="cosine", weights=lambda gaps: np.exp((1 - gaps) / 0.1))


def test_it_finds_what_scikit_learn_finds(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"train": 9, "test": 40})  # of nine images none is held out
    found = probe(model, folder)
    assert (found["classes"], found["train_images"], found["test_images"]) == (3, 27, 120)
    (train, train_labels), (test, test_labels) = (features_of(model, folder / part) for part in ("train", "test"))
    scaler = StandardScaler().fit(train)
    penalty = 27 * choose_penalty(torch.from_numpy(train), torch.from_numpy(train_labels), seed=0)
    ridge = RidgeClassifier(alpha=penalty).fit(scaler.transform(train), train_labels)
    assert found["ridge_accuracy"] == pytest.approx(100 * ridge.score(scaler.transform(test), test_labels))
    neighbours = cosine_vote(9).fit(normalize(train), train_labels)
    assert found["knn_accuracy"] == pytest.approx(100 * neighbours.score(normalize(test), test_labels), abs=1)
    linear = LogisticRegression(C=1e4, max_iter=5000).fit(normalize(train), train_labels)
    assert found["linear_accuracy"] == pytest.approx(100 * linear.score(normalize(test), test_labels), abs=12)
    assert found["majority_accuracy"] == pytest.approx(100 / 3)
    assert found["ridge_error"] == pytest.approx(
        100 * np.sqrt(found["ridge_accuracy"] / 100 * (1 - found["ridge_accuracy"] / 100) / 119)
    )
    assert min(found["linear_accuracy"], found["ridge_accuracy"]) > 55
    assert max(found["linear_accuracy"], found["ridge_accuracy"]) < 100  # or the comparison would say little


def test_a_class_with_fewer_images_than_shots_is_named(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"train": 4, "test": 3})
    scarce, *others = sorted((folder / "train").iterdir())
    first, second, *_ = sorted(scarce.iterdir())
    first.unlink()
    said = f"shots is 4, but class '{scarce.name}' has 3 training images; give --shots 3 or fewer"
    with pytest.raises(InputError, match=said):
        probe(model, folder, shots=4)
    second.write_bytes(second.read_bytes()[:60])  # damaged, as only reading it tells
    with pytest.raises(
        InputError, match=said.replace("is 4", "is 3").replace("3 tr", "2 tr").replace("s 3 o", "s 2 o")
    ):
        probe(model, folder, shots=3)
    assert others


def test_every_kind_of_image_counts(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"train": 4, "test": 3})
    for file in sorted(folder.rglob("*.png"))[::2]:
        Image.open(file).convert("RGB").save(file.with_suffix(".ppm"))
        file.unlink()
    assert probe(model, folder)["train_images"] == 12


def test_few_shots_are_the_mean_of_draws(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"train": 3, "test": 40})
    found = probe(model, folder, shots=3, draws=2)  # both draws take all
    (train, train_labels), (test, test_labels) = (features_of(model, folder / part) for part in ("train", "test"))
    neighbours = cosine_vote(3).fit(normalize(train), train_labels)
    assert found["knn_accuracy"] == pytest.approx(100 * neighbours.score(normalize(test), test_labels), abs=1)
    assert found["knn_error"] == found["ridge_error"] == 0
    assert probe(model, folder, shots=3, draws=1)["knn_error"] is None
    few = probe(model, folder, shots=1, draws=6)
    assert few["ridge_error"] > 0
    assert 100 / 3 < few["ridge_accuracy"] <= found["ridge_accuracy"] + 5
    assert probe(model, folder, shots=1, draws=6) == few
    assert probe(model, folder, shots=1, draws=6, seed=1) != few


def test_without_a_test_part_a_fifth_of_each_class_is_one(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"": 40})
    found = probe(model, folder)
    assert (found["train_images"], found["test_images"], found["seed"]) == (96, 24, 0)
    assert min(found["linear_accuracy"], found["knn_accuracy"], found["ridge_accuracy"]) > 50
    assert probe(model, folder, seed=0) == found != probe(model, folder, seed=1)


@pytest.mark.parametrize("prefix", ["", "train"])
def test_on_the_images_of_a_run_its_own_test_images_and_scenario_are_used(
    prefix: str, coloured: Coloured, tmp_path: Path
) -> None:
    """Otherwise the probe would test on images that the run was trained on."""
    folder = coloured({prefix: 40})
    config = RunConfig(
        seed=3,
        data=DataConfig(dataset="folder", image_size=16),
        stream=StreamConfig(tasks=3),
        learner=LearnerConfig(backbone="micro", image_size=16, replay_batch=8, memory=MemoryConfig(capacity=100)),
        evaluation=EvaluationConfig(ridge=True),
    )
    result = execute(config, Execution(device="cpu", data_root=str(folder)), tmp_path / "run")
    model = open_model(tmp_path / "run", device="cpu", precision="float32")
    found = probe(model, folder)
    assert (found["train_images"], found["test_images"]) == (96, 24)
    assert found["linear_accuracy"] == pytest.approx(result["final_accuracy"])
    assert found["seed"] == 3
    # The split is the run's with any seed, also at another place, and of its encoder's file.
    other = shutil.copytree(folder, tmp_path / "elsewhere")
    assert (
        probe(open_model(model.file, device="cpu", precision="float32"), other, seed=5)["ridge_accuracy"]
        == found["ridge_accuracy"]
    )
    (other / prefix / "class0" / "000.png").unlink()  # other images than the run's
    assert probe(model, other)["seed"] == 0


def test_train_alone_is_split_and_val_is_a_test_part(model: OpenModel, coloured: Coloured) -> None:
    assert probe(model, coloured({"train": 10}))["test_images"] == 6
    assert probe(model, coloured({"train": 10, "val": 4}))["test_images"] == 12


def test_an_unreadable_image_is_left_out(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"train": 9, "test": 5})
    (folder / "train/class0/003.png").write_bytes(b"no image")
    assert probe(model, folder)["train_images"] == 26
    for file in (folder / "test/class2").iterdir():
        file.write_bytes(b"no image")
    with pytest.raises(InputError, match="class 'class2' has no readable test image"):
        probe(model, folder)


def test_folders_that_cannot_be_probed(model: OpenModel, coloured: Coloured, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; give a folder of images"):
        probe(model, tmp_path / "nowhere")
    with pytest.raises(InputError, match="is a file; give a folder"):
        probe(model, model.file)
    with pytest.raises(InputError, match="1 class; a probe needs at least two"):
        probe(model, coloured({"": 4}, classes=1))
    (tmp_path / "coloured/class9").mkdir()
    with pytest.raises(InputError, match="class 'class9' has no image"):
        probe(model, tmp_path / "coloured")
    for part in ("train", "test"):  # "train" and "test" are no classes
        (tmp_path / "flat" / part).mkdir(parents=True)
        shutil.copy(tmp_path / "coloured/class0/000.png", tmp_path / "flat" / part)
    with pytest.raises(InputError, match=r"holds test, train without class folders inside; expected train/<class>/"):
        probe(model, tmp_path / "flat")
    with pytest.raises(InputError, match="shots is 0; it must be at least 1"):
        probe(model, tmp_path, shots=0)
    with pytest.raises(InputError, match="draws is 0; it must be at least 1"):
        probe(model, tmp_path, draws=0)


def test_a_class_of_one_and_a_class_unknown_to_training(model: OpenModel, coloured: Coloured) -> None:
    folder = coloured({"train": 2, "test": 2})
    (folder / "test/class7").mkdir()
    with pytest.raises(InputError, match=r"has classes that .*train lacks: class7"):
        probe(model, folder)
    (folder / "train/class1/001.png").unlink()
    with pytest.raises(InputError, match="class 'class1' has 1 image"):
        probe(model, folder / "train")


# -- beside the encoder ------------------------------------------------------------------------------------------------


def test_the_start_is_the_network_before_its_first_step(learned: tuple[Climb, Path], coloured: Coloured) -> None:
    """A learner that has learned nothing is its own start; one that has is not."""
    folder = coloured({"train": 9, "test": 10})
    _, file = learned
    found = probe(open_model(file, device="cpu", precision="float32"), folder)
    assert found["start"]["name"] == "micro, random weights of seed 0"
    assert found["gain"]["ridge_accuracy"] == pytest.approx(found["ridge_accuracy"] - found["start"]["ridge_accuracy"])
    untrained = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32")
    untrained._begin(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))  # builds the engine, and takes no step
    untrained.save(file)
    same = probe(open_model(file, device="cpu", precision="float32"), folder)
    assert same["ridge_accuracy"] == same["start"]["ridge_accuracy"] == found["start"]["ridge_accuracy"]
    assert same["gain"]["ridge_accuracy"] == same["gain"]["ridge_error"] == 0


def test_weights_alone_have_no_start(model: OpenModel, coloured: Coloured) -> None:
    found = probe(model, coloured({"train": 9, "test": 10}))
    assert found["gain"] == {}
    assert "does not say what it started from" in found["start"]["missing"]


def test_thumbnails_are_what_their_pixels_tell(model: OpenModel, coloured: Coloured) -> None:
    """Of 16 px images, means of 2 x 2 pixels."""
    folder = coloured({"train": 9, "test": 10})
    found = probe(model, folder)
    parts = []
    for part in ("train", "test"):
        pictures = list(images_of(folder / part, 16))
        pixels = torch.stack([picture.pixels for picture in pictures]).double()
        means = pixels.unflatten(2, (8, 2)).unflatten(4, (8, 2)).mean(dim=(3, 5)).flatten(1).numpy()
        parts.append((means, np.array([int(Path(picture.path).parent.name[-1]) for picture in pictures])))
    (train, labels), (test, answers) = parts
    vote = cosine_vote(9).fit(normalize(train), labels)
    assert found["thumbnails"]["knn_accuracy"] == pytest.approx(100 * vote.score(normalize(test), answers))


def test_domains_are_seen_and_shots_are_per_class_and_domain(
    model: OpenModel, coloured: Coloured, tmp_path: Path
) -> None:
    for domain in ("noon", "dusk"):
        shutil.move(coloured({"": 10}), tmp_path / "all" / domain)
    folder = tmp_path / "all"
    found = probe(model, folder)
    assert (found["classes"], found["domains"]) == (3, 2)
    assert (found["train_images"], found["test_images"]) == (48, 12)  # 8 and 2 of each class and domain
    assert probe(model, folder, domains=False)["classes"] == 2
    few = probe(model, folder, shots=8, draws=2)
    assert few["ridge_error"] == 0  # 8 of each class and domain are all there are
    for file in sorted((folder / "dusk/class1").iterdir())[:5]:
        file.unlink()
    with pytest.raises(InputError, match="shots is 5, but class 'class1' in domain 'dusk' has 4 training images"):
        probe(model, folder, shots=5)
    (folder / "dusk/class1").rename(folder / "dusk/other")
    assert probe(model, folder)["domains"] == 0  # not the same classes: the first level are classes
    assert probe(model, folder, domains=True)["classes"] == 4


def test_the_test_part_of_domains_is_that_of_the_dataset(coloured: Coloured, tmp_path: Path) -> None:
    """So that the probe of a run on domains tests no image that the run was trained on."""
    for domain in ("noon", "dusk"):
        shutil.move(coloured({"": 10}), tmp_path / "all" / domain)
    data = domains(root=tmp_path / "all", image_size=16, seed=3)
    listed = labelled_folder(tmp_path / "all", seed=3)
    assert sorted(str(file.path.relative_to(tmp_path / "all")) for file in listed.test) == sorted(data.test.names)
    assert listed.domains == list(data.domains)


def test_domains_of_both_parts_must_be_the_same(model: OpenModel, coloured: Coloured, tmp_path: Path) -> None:
    for place in ("train/noon", "train/dusk", "test/noon", "test/dusk"):
        shutil.move(coloured({"": 3}), tmp_path / "all" / place)
    assert probe(model, tmp_path / "all")["test_images"] == 18
    shutil.move(tmp_path / "all/test/dusk", tmp_path / "all/test/night")
    with pytest.raises(InputError, match="have different domains: dusk, night; both need the same"):
        probe(model, tmp_path / "all")


def test_the_result_says_what_to_read_and_when_it_tells_nothing(
    learned: tuple[Climb, Path], coloured: Coloured
) -> None:
    model = open_model(learned[1], device="cpu", precision="float32")
    assert probe(model, coloured({"train": 34, "test": 4}))["read"] == "ridge"
    shutil.rmtree(coloured({}))
    found = probe(model, coloured({"train": 9, "test": 4}))
    assert found["read"] == "knn"
    assert found["why"] == "the ridge probe needs about 100 training images"
    assert [text[:32] for text in found["warnings"]] == ["12 test images tell differences "]
