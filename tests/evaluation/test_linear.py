from __future__ import annotations

import random
from dataclasses import asdict

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import nn

from climb.errors import ClimbError, InputError
from climb.evaluation import LinearProbe, LinearProbeConfig, fit_linear_probe, linear
from climb.seeds import torch_generator


def restated_probe(train, train_labels, validation, validation_labels, *, classes, config, seed):
    """The protocol once more, slow and obvious, with torch's own layer, loss and optimiser."""
    train, validation = F.normalize(train), F.normalize(validation)
    generator = torch_generator(seed, "probe")
    linear = nn.Linear(train.shape[1], classes)
    bound = train.shape[1] ** -0.5
    with torch.no_grad():
        linear.weight.uniform_(-bound, bound, generator=generator)
        linear.bias.uniform_(-bound, bound, generator=generator)
    adam = torch.optim.Adam(linear.parameters(), lr=config.lr)
    best_accuracy, best_state, patience, reductions, best_after = -1.0, None, config.patience, 0, 0
    epochs_done = 0
    while epochs_done < config.epochs:
        epochs_done += 1
        order = torch.randperm(len(train), generator=generator)
        size = min(config.batch_size, len(train))
        for rows in order.split(size):
            if len(rows) < size:
                continue
            adam.zero_grad()
            F.cross_entropy(linear(train[rows]), train_labels[rows]).backward()
            adam.step()
        with torch.no_grad():
            accuracy = (linear(validation).argmax(1) == validation_labels).float().mean().item()
        if accuracy > best_accuracy:
            best_accuracy, patience, best_after = accuracy, config.patience, reductions
            best_state = {name: value.clone() for name, value in linear.state_dict().items()}
        else:
            patience -= 1
            if patience == 0:
                reductions += 1
                adam.param_groups[0]["lr"] /= config.lr_factor
                if adam.param_groups[0]["lr"] < config.min_lr:
                    break
                linear.load_state_dict(best_state)
                patience = config.patience
    return best_state["weight"], best_state["bias"], epochs_done, reductions, best_after


@pytest.mark.parametrize(
    ("config", "rows", "course"),
    [
        # Improves after the first reduction, ends at the second.
        (LinearProbeConfig(batch_size=32, patience=2, min_lr=0.01), 150, (2, 1, True)),
        # Ends at the first, though it would have improved.
        (LinearProbeConfig(batch_size=32, patience=2, min_lr=0.04), 150, (1, 0, True)),
        # Goes on at the least learning rate itself, and improves there.
        (LinearProbeConfig(batch_size=32, patience=2, lr_factor=2.0, min_lr=0.025), 150, (2, 1, True)),
        # Ends because the epochs are spent.
        (LinearProbeConfig(batch_size=32, epochs=7), 150, (0, 0, False)),
        # The whole set is one batch.
        (LinearProbeConfig(batch_size=256, epochs=12), 90, (0, 0, False)),
    ],
)
def test_the_schedule_is_the_one_restated_here(blobs, config, rows, course) -> None:
    given = (*blobs(rows, spread=1.5), *blobs(400, spread=1.5, seed=1))
    weight, bias, epochs, reductions, best_after = restated_probe(*given, classes=5, config=config, seed=5)
    probe = fit_linear_probe(*given, classes=5, config=config, seed=5)
    torch.testing.assert_close(probe.weight, weight, atol=1e-5, rtol=0)
    torch.testing.assert_close(probe.bias, bias, atol=1e-5, rtol=0)
    # A case is worth something only if it took the course it stands for.
    assert (reductions, best_after, epochs < config.epochs) == course


def test_the_patience_is_whole_again_after_a_reduction(blobs) -> None:
    given = (*blobs(150, spread=1.5), *blobs(400, spread=1.5, seed=1))
    config = LinearProbeConfig(batch_size=32, patience=3, min_lr=0.0025)
    weight, _, epochs, reductions, best_after = restated_probe(*given, classes=5, config=config, seed=9)
    # With a patience of one the improvement after the first reduction would not be waited for.
    assert (epochs, reductions, best_after) == (23, 3, 1)
    probe = fit_linear_probe(*given, classes=5, config=config, seed=9)
    torch.testing.assert_close(probe.weight, weight, atol=1e-5, rtol=0)


def test_the_defaults_are_the_protocol_of_the_papers_tables() -> None:
    assert asdict(LinearProbeConfig()) == {
        "lr": 0.05, "batch_size": 256, "epochs": 100, "patience": 5, "lr_factor": 3.0, "min_lr": 1e-4,
    }  # fmt: skip


def test_the_default_schedule_ends_at_the_sixth_reduction(blobs) -> None:
    given = (*blobs(200, spread=2.5), *blobs(30, spread=2.5, seed=1))
    config = LinearProbeConfig()
    weight, bias, epochs, reductions, _ = restated_probe(*given, classes=5, config=config, seed=0)
    assert (reductions, epochs < 100) == (6, True)
    probe = fit_linear_probe(*given, classes=5, seed=0)
    torch.testing.assert_close(probe.weight, weight, atol=1e-5, rtol=0)
    torch.testing.assert_close(probe.bias, bias, atol=1e-5, rtol=0)


def test_accuracy_is_near_that_of_logistic_regression(blobs) -> None:
    train, train_labels = blobs(2000, classes=8)
    validation, validation_labels = blobs(300, classes=8, seed=1)
    test, test_labels = blobs(2000, classes=8, seed=2)
    probe = fit_linear_probe(train, train_labels, validation, validation_labels, classes=8, seed=0)
    oracle = LogisticRegression(C=100.0, max_iter=2000).fit(F.normalize(train).numpy(), train_labels.numpy())
    expected = 100 * oracle.score(F.normalize(test).numpy(), test_labels.numpy())
    assert 60 < expected < 99.5
    assert abs(probe.accuracy(test, test_labels) - expected) < 2


def test_probing_leaves_global_randomness_alone_and_repeats_itself(blobs) -> None:
    given = (*blobs(100), *blobs(20, seed=1))
    config = LinearProbeConfig(epochs=3)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = fit_linear_probe(*given, classes=5, config=config, seed=7)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # noqa: NPY002
    torch.rand(3)
    again = fit_linear_probe(*given, classes=5, config=config, seed=7)
    other = fit_linear_probe(*given, classes=5, config=config, seed=8)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)


def test_the_scale_of_features_does_not_matter(blobs) -> None:
    train, train_labels = blobs(100)
    validation, validation_labels = blobs(30, seed=1)
    config = LinearProbeConfig(epochs=3)
    probe = fit_linear_probe(train, train_labels, validation, validation_labels, classes=5, config=config, seed=0)
    scale = 2.0 ** torch.randint(-3, 4, (100, 1), generator=torch.Generator().manual_seed(0))
    scaled = fit_linear_probe(
        train * scale, train_labels, validation * 4, validation_labels, classes=5, config=config, seed=0
    )
    torch.testing.assert_close(scaled.weight, probe.weight)
    assert torch.equal(probe.predict(validation), probe.predict(validation * 8))


def test_without_validation_rows_the_training_rows_decide(blobs) -> None:
    train, train_labels = blobs(60, spread=2.0)
    config = LinearProbeConfig(epochs=20, batch_size=16)
    alone = fit_linear_probe(train, train_labels, train[:0], train_labels[:0], classes=5, config=config, seed=0)
    explicit = fit_linear_probe(train, train_labels, train, train_labels, classes=5, config=config, seed=0)
    assert torch.equal(alone.weight, explicit.weight)


def test_a_probe_owns_its_memory_and_no_more(blobs) -> None:
    features, labels = blobs(60)
    probe = fit_linear_probe(features, labels, features, labels, classes=5, seed=0)
    for kept in (probe.weight, probe.bias):  # a view would save and hold all that the training held
        assert kept.untyped_storage().nbytes() == kept.nbytes


def test_classes_without_rows_are_allowed(blobs) -> None:
    train, train_labels = blobs(200, spread=0.3)
    probe = fit_linear_probe(train, train_labels, train, train_labels, classes=9, seed=0)
    assert probe.weight.shape == (9, 16)
    assert probe.accuracy(train, train_labels) == 100.0


def test_inputs_are_left_alone(blobs) -> None:
    train, train_labels = blobs(50)
    copies = train.clone(), train_labels.clone()
    fit_linear_probe(train, train_labels, train, train_labels, classes=5, config=LinearProbeConfig(epochs=2), seed=0)
    assert torch.equal(train, copies[0])
    assert torch.equal(train_labels, copies[1])


def test_predictions_and_accuracy_by_hand() -> None:
    probe = LinearProbe(weight=torch.eye(2), bias=torch.tensor([0.0, 0.5]))
    # Normalised rows (1, 0), (0.6, 0.8), (0.8, 0.6): scores (1, .5), (.6, 1.3), (.8, 1.1).
    features = torch.tensor([[10.0, 0.0], [3.0, 4.0], [4.0, 3.0]])
    assert probe.predict(features).tolist() == [0, 1, 1]
    assert probe.accuracy(features, torch.tensor([0, 1, 0])) == pytest.approx(200 / 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.0}, "lr is 0.0"),
        ({"min_lr": -1.0}, "min_lr is -1.0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"patience": 0}, "patience is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"lr_factor": 1.0}, "lr_factor is 1.0"),
    ],
)
def test_impossible_configurations_are_rejected(change: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LinearProbeConfig(**change)


def test_bad_input_is_rejected(blobs) -> None:
    features, labels = blobs(20)
    with pytest.raises(InputError, match="validation: labels run from 0 to 4; with 3 classes"):
        fit_linear_probe(features, labels % 3, features, labels, classes=3, seed=0)
    with pytest.raises(InputError, match="train features have 16 columns but validation features 5"):
        fit_linear_probe(features, labels, features[:, :5], labels, classes=5, seed=0)
    with pytest.raises(ClimbError, match="train: 20 of 20 rows of features are not finite"):
        fit_linear_probe(features * float("nan"), labels, features, labels, classes=5, seed=0)
    probe = LinearProbe(weight=torch.eye(2), bias=torch.zeros(2))
    with pytest.raises(InputError, match=r"features must be \(n, 2\), not \(20, 16\)"):
        probe.predict(features)


@pytest.mark.gpu
def test_a_gpu_probe_is_as_good_as_a_cpu_one(blobs) -> None:
    parts = (*blobs(2000, classes=8), *blobs(300, classes=8, seed=1))
    test, test_labels = blobs(2000, classes=8, seed=2)
    on_cpu = fit_linear_probe(*parts, classes=8, seed=0)
    on_gpu = fit_linear_probe(*(part.cuda() for part in parts), classes=8, seed=0)
    repeated = fit_linear_probe(*(part.cuda() for part in parts), classes=8, seed=0)
    difference = on_gpu.accuracy(test.cuda(), test_labels.cuda()) - on_cpu.accuracy(test, test_labels)
    assert abs(difference) < 1.5
    assert on_gpu.accuracy(test.cuda(), test_labels.cuda()) == repeated.accuracy(test.cuda(), test_labels.cuda())


def test_kernels_that_cannot_be_built_are_done_without(caplog: pytest.LogCaptureFixture) -> None:
    assert linear._fused_epoch.__wrapped__(torch.device("cpu")) is None
    assert "the linear probe is slower by half" in caplog.text
