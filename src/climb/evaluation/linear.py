"""The linear probe: a linear classifier on frozen, L2-normalised features."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.evaluation.features import check_label_range, check_labelled, check_pair
from climb.evaluation.probe_epoch import ProbeEpoch, captured_epoch
from climb.precision import full_float32, missing_for_kernels
from climb.seeds import torch_generator

log = logging.getLogger(__name__)

FUSED_CLASSES = 1024
"""Most classes of the fused epoch, whose kernels hold a row of logits. With more classes, launches are cheap anyway."""


@dataclass(frozen=True, kw_only=True)
class LinearProbeConfig:
    """Training of the linear probe. The defaults are the protocol of the CLIMB paper's tables."""

    lr: float = 0.05
    """Initial learning rate of Adam."""
    batch_size: int = 256
    """Rows per step. The last incomplete batch is dropped; a smaller training set is one batch."""
    epochs: int = 100
    """Most epochs."""
    patience: int = 5
    """Epochs without a better validation accuracy before the learning rate is reduced."""
    lr_factor: float = 3.0
    """Divisor of each reduction of the learning rate."""
    min_lr: float = 1e-4
    """Training stops when the learning rate is below this."""

    def __post_init__(self) -> None:
        """Reject values that no probe can be trained with."""
        for name in ("batch_size", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("lr", "min_lr"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if not self.lr_factor > 1:
            raise InputError(f"lr_factor is {self.lr_factor}; it must be above 1, so that the learning rate decreases.")


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearProbe:
    """A trained linear classifier. It normalises features itself: pass those of the encoder."""

    weight: torch.Tensor
    """float32 (classes, f)."""
    bias: torch.Tensor
    """float32 (classes,)."""

    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """The most likely label (n,), int64, of each row of features (n, f)."""
        if features.ndim != 2 or features.shape[1] != self.weight.shape[1]:
            raise InputError(f"features must be (n, {self.weight.shape[1]}), not {tuple(features.shape)}.")
        with torch.no_grad(), full_float32():
            return F.linear(F.normalize(features.float()), self.weight, self.bias).argmax(dim=1)

    def accuracy(self, features: torch.Tensor, labels: torch.Tensor) -> float:
        """Percent of rows of features (n, f) with the correct label (n,)."""
        check_labelled("accuracy", features, labels)
        return 100.0 * int((self.predict(features) == labels).sum()) / len(labels)


@torch.no_grad()
@full_float32()
def fit_linear_probe(
    train: torch.Tensor,
    train_labels: torch.Tensor,
    validation: torch.Tensor,
    validation_labels: torch.Tensor,
    *,
    classes: int,
    config: LinearProbeConfig | None = None,
    seed: int,
) -> LinearProbe:
    """Train a linear probe on features (n, f); keep the weights with the best accuracy on validation features (m, f).

    After each epoch, a strictly better validation accuracy is stored and resets the patience. Otherwise the patience
    decreases by one. At zero, the learning rate is divided, the best weights are reloaded (Adam keeps its moments), and
    the patience is reset. Training ends when the learning rate is below its minimum or after the last epoch.

    Without validation rows (m = 0: tasks too small for a split), the training rows are the validation rows. The probe
    has its own random generator.

    >>> features = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> fit_linear_probe(features, labels, features, labels, classes=2, seed=0).accuracy(5 * features, labels)
    100.0
    """
    config = config or LinearProbeConfig()
    if len(validation) == 0:
        validation, validation_labels = train, train_labels
    check_pair(train, train_labels, validation, validation_labels, name="validation")
    check_label_range("train", train_labels, classes)
    check_label_range("validation", validation_labels, classes)
    train, validation = F.normalize(train.float()), F.normalize(validation.float())
    generator = torch_generator(seed, "probe", train.device)
    lr, patience, best_correct = config.lr, config.patience, -1
    epoch = _kind_of_epoch(train.device, classes)(train, train_labels, classes=classes, batch_size=config.batch_size)
    epoch.lr.fill_(lr)
    run = captured_epoch(epoch.run, train.device)
    epoch.start(generator)
    best = epoch.parameters.clone()
    for _ in range(config.epochs):
        shuffled = torch.randperm(len(train), generator=generator, device=train.device)
        epoch.order.copy_(shuffled[: len(epoch.order)])
        run()
        predicted = F.linear(validation, epoch.weight, epoch.bias).argmax(dim=1)
        correct = int((predicted == validation_labels).sum())  # the only host sync of an epoch
        if correct > best_correct:
            best_correct, patience = correct, config.patience
            best.copy_(epoch.parameters)
            if correct == len(validation):
                break  # no accuracy is strictly better
            continue
        patience -= 1
        if patience == 0:
            lr, patience = lr / config.lr_factor, config.patience
            if lr < config.min_lr:
                break
            epoch.lr.fill_(lr)
            epoch.parameters.copy_(best)
    # Cloned, so that the probe does not keep the buffers of the training alive.
    epoch.parameters.copy_(best)
    return LinearProbe(weight=epoch.weight.clone(), bias=epoch.bias.clone())


def _kind_of_epoch(device: torch.device, classes: int) -> type[ProbeEpoch]:
    """The fastest implementation for the device. All agree up to rounding."""
    if device.type != "cuda" or classes > FUSED_CLASSES or missing_for_kernels():
        return ProbeEpoch
    return _fused_epoch(device) or ProbeEpoch


@cache
def _fused_epoch(device: torch.device) -> type[ProbeEpoch] | None:
    """`FusedEpoch`, if a small one runs. Compiling its kernels may fail for reasons that no check detects."""
    try:
        from climb.evaluation.fused_epoch import FusedEpoch

        labels = torch.zeros(16, dtype=torch.int64, device=device)
        FusedEpoch(torch.zeros(16, 16, device=device), labels, classes=5, batch_size=16).run()
    except Exception as error:
        log.warning("the linear probe is slower by half, because its kernels cannot be compiled: %s", error)
        return None
    return FusedEpoch
