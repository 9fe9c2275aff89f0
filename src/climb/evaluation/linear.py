"""The linear probe: the accuracy of one linear layer on the frozen, L2-normalised features."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.evaluation.captured_epoch import captured_epoch
from climb.evaluation.inputs import check_label_range, check_labelled
from climb.evaluation.probe_epoch import ProbeEpoch
from climb.kernels import missing_for_kernels
from climb.precision import full_float32
from climb.seeds import torch_generator

log = logging.getLogger(__name__)

FUSED_CLASSES = 1024
"""The most classes of a fused epoch, whose kernels hold a row of logits at once. With more, launches do not matter."""


@dataclass(frozen=True, kw_only=True)
class LinearProbeConfig:
    """How the linear probe is trained. The defaults are the protocol of the CLIMB paper's tables."""

    lr: float = 0.05
    """Adam's first learning rate."""
    batch_size: int = 256
    """Rows per step. A last incomplete batch is dropped; a training set smaller than this is one batch."""
    epochs: int = 100
    """The most epochs trained."""
    patience: int = 5
    """Epochs without a better validation accuracy before the learning rate falls."""
    lr_factor: float = 3.0
    """What the learning rate is divided by when it falls."""
    min_lr: float = 1e-4
    """Training stops once the learning rate is below this."""

    def __post_init__(self) -> None:
        """Refuse values no probe can be trained with."""
        for name in ("batch_size", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must be at least 1.")
        for name in ("lr", "min_lr"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0.")
        if not self.lr_factor > 1:
            raise InputError(f"lr_factor is {self.lr_factor}; it must be above 1, or the rate never falls.")


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearProbe:
    """A trained linear classifier. It normalises the features itself, so give it them as the encoder made them."""

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
        """Percent of the rows of features (n, f) whose predicted label is that of labels (n,)."""
        check_labelled("accuracy", features, labels)
        return 100.0 * int((self.predict(features) == labels).sum()) / len(labels)


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
    """Train a linear probe on features (n, f) and keep the weights that did best on validation features (m, f).

    After every epoch: a strictly better validation accuracy is stored and restores the patience; otherwise the
    patience falls by one, and at zero the learning rate is divided, the best weights are reloaded (Adam keeps its
    moments) and the patience is restored. Training ends when the learning rate is below its minimum or the epochs
    are spent.

    Without validation rows (m = 0: tasks too small to hold one out) the training rows take their part: the best
    weights are then those that fit best, which is all the data can say. Random numbers come from a generator
    private to the probe: the global ones are not touched.

    >>> features = torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.1], [-1.0, -0.1]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> fit_linear_probe(features, labels, features, labels, classes=2, seed=0).accuracy(5 * features, labels)
    100.0
    """
    config = config or LinearProbeConfig()
    if len(validation) == 0:
        validation, validation_labels = train, train_labels
    for name, features, labels in (
        ("train", train, train_labels),
        ("validation", validation, validation_labels),
    ):
        check_labelled(name, features, labels)
        check_label_range(name, labels, classes)
    if train.shape[1] != validation.shape[1] or train.device != validation.device:
        raise InputError(
            f"train features are {train.shape[1]} wide on {train.device}, validation features "
            f"{validation.shape[1]} wide on {validation.device}; both must agree."
        )
    with torch.no_grad(), full_float32():
        return _descend(
            F.normalize(train.float()),
            train_labels,
            F.normalize(validation.float()),
            validation_labels,
            classes=classes,
            config=config,
            generator=torch_generator(seed, "probe", train.device),
        )


def _descend(
    train: torch.Tensor,
    train_labels: torch.Tensor,
    validation: torch.Tensor,
    validation_labels: torch.Tensor,
    *,
    classes: int,
    config: LinearProbeConfig,
    generator: torch.Generator,
) -> LinearProbe:
    """The schedule, on normalised features. The one host sync of an epoch is the count of right answers."""
    lr, patience, most_right = config.lr, config.patience, -1
    epoch = _kind_of_epoch(train.device, classes)(train, train_labels, classes=classes, batch_size=config.batch_size)
    epoch.lr.fill_(lr)
    run = captured_epoch(epoch.run, train.device)
    epoch.start(generator)
    best = epoch.parameters.clone()
    for _ in range(config.epochs):
        shuffled = torch.randperm(len(train), generator=generator, device=train.device)
        epoch.order.copy_(shuffled[: len(epoch.order)])
        run()
        answers = F.linear(validation, epoch.weight, epoch.bias).argmax(dim=1)
        right = int((answers == validation_labels).sum())
        if right > most_right:
            most_right, patience = right, config.patience
            best.copy_(epoch.parameters)
            if right == len(validation):
                break  # Nothing is strictly better than all right: the stored weights are final.
            continue
        patience -= 1
        if patience == 0:
            lr, patience = lr / config.lr_factor, config.patience
            if lr < config.min_lr:
                break
            epoch.lr.fill_(lr)
            epoch.parameters.copy_(best)
    # The result owns its memory, apart from the buffers of the training.
    epoch.parameters.copy_(best)
    return LinearProbe(weight=epoch.weight.clone(), bias=epoch.bias.clone())


def _kind_of_epoch(device: torch.device, classes: int) -> type[ProbeEpoch]:
    """The fastest way through an epoch that the device allows; all come to the same, up to rounding."""
    if device.type != "cuda" or classes > FUSED_CLASSES or missing_for_kernels():
        return ProbeEpoch
    return _fused_epoch(device) or ProbeEpoch


@cache
def _fused_epoch(device: torch.device) -> type[ProbeEpoch] | None:
    """`FusedEpoch`, if a small one runs: building its kernels may fail for reasons that no check foresees."""
    try:
        from climb.evaluation.fused_epoch import FusedEpoch

        labels = torch.zeros(16, dtype=torch.int64, device=device)
        FusedEpoch(torch.zeros(16, 16, device=device), labels, classes=5, batch_size=16).run()
    except Exception as error:
        log.warning("the linear probe takes half as long again, since its kernels cannot be built: %s", error)
        return None
    return FusedEpoch
