"""PCMC (Taylor, Vassiliades and Dovrolis, 2024): patches are sorted while awake and trained on while asleep.

Nothing is trained between two sleeps, so no batch rule fits and PCMC brings a custom engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from climb.augment import Augment
from climb.contrib.pcmc.memory import PatchMemory
from climb.contrib.pcmc.patches import AT_ONCE, CROPPED, PatchEncoder, Patching, PatchViews
from climb.engine.batch import BatchRule
from climb.engine.engine import Engine, Observation
from climb.engine.numerics import numerics
from climb.engine.parts import Parts
from climb.engine.step import TrainStep
from climb.errors import InputError
from climb.methods import method
from climb.nets import Network, build_network, frozen
from climb.objectives import DecoupledContrast
from climb.seeds import restore, torch_generator
from climb.settings.config import LearnerConfig, check_learner

STEM = 224
"""Image side for which the network is built. Patches are small, but PCMC's encoder has ImageNet's stem."""


@dataclass(frozen=True, kw_only=True)
class Sleep:
    """When and how the encoder is trained. A sleep trains on the patches that the memory rehearses.

    In every sleep the momentum starts at zero, and the learning rate falls from ``lr`` to zero along half a cosine.
    PCMC's code means to do the same, but a bug squares the base rate (0.36 for 0.6) and stretches the cosine so much
    that it hardly falls.
    """

    every: int = 2000
    """Stream images between two sleeps. No task boundary is needed."""
    epochs: int = 200
    """Epochs of a sleep over its patches."""
    batch: int = 512
    """Patches of one gradient step, or all of them if there are fewer."""
    lr: float = 0.6
    """Learning rate at the start of a sleep."""

    def __post_init__(self) -> None:
        if min(self.every, self.epochs) < 1 or self.batch < 2 or not 0 < self.lr < math.inf:
            raise InputError(f"a sleep needs every >= 1, epochs >= 1, batch >= 2 and a finite lr > 0; given {self}")


def build_pcmc(
    config: LearnerConfig,
    *,
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    seed: int,
    device: torch.device,
    patching: Patching | None = None,
    sleep: Sleep | None = None,
    stm_centroids: int = 400,
    **options: Any,
) -> Pcmc:
    """PCMC for a configuration, at its first image.

    It reads the backbone, learning rate, momentum, weight decay and temperature, and the memory's
    ``images_per_centroid``, ``window`` and ``novelty_percentile``. The memory's ``capacity`` does not bound it; see
    `PatchMemory`. The projector is that of all methods instead of PCMC's 512-512-128.

    Args:
        config: the learner.
        mean: by colour channel; images are normalised with it.
        std: see ``mean``.
        seed: seed of everything random.
        device: where everything happens.
        patching: how images are cut; None takes PCMC's patches, smaller for small images.
        sleep: None takes PCMC's schedule at the configured learning rate.
        stm_centroids: most short-term centroids.
        options: ``precision`` and ``kind`` of an `Engine`.
    """
    check_learner(config)
    patching = patching or Patching.fitting(config.image_size)
    network = build_network(config.backbone, STEM, generator=torch_generator(seed, "init"))
    _check_takes(network.encoder, patching.patch, config.backbone)
    memory = PatchMemory(
        stm_centroids,
        (3, patching.patch, patching.patch),
        network.feature_dim,
        patches_per_centroid=config.memory.images_per_centroid,
        least_patches=min(5, config.memory.images_per_centroid - 1),
        window=config.memory.window,
        novelty_percentile=config.memory.novelty_percentile,
        seed=seed,
        device=device,
    )
    objective = DecoupledContrast(config.temperature)
    parts = Parts(network=network, memory=memory, batch=BatchRule(), objective=objective, alignment=None)
    augment = PatchViews(CROPPED, mean, std, device=device)
    sleep = sleep or Sleep(lr=config.lr)
    return Pcmc(parts, augment, config, patching=patching, sleep=sleep, seed=seed, device=device, **options)


def _check_takes(encoder: nn.Module, side: int, backbone: str) -> None:
    """Refuse a network for images of one size only, which is not that of the patches."""
    try:
        with frozen(encoder):
            encoder(torch.zeros(1, 3, side, side))
    except Exception as error:
        raise InputError(
            f"backbone '{backbone}' does not take PCMC's patches of {side} x {side} pixels; choose one of "
            f"convolutions, such as resnet18. Its error: {error}"
        ) from error


class Pcmc(Engine):
    """An engine that trains asleep. Sees images only: no label, no task number.

    Awake, it cuts every image into patches, embeds them with the encoder in eval mode and inserts them into its memory.
    After every ``sleep.every`` images it sleeps: it trains encoder and projector on the patches that the memory
    rehearses, then the memory drops redundant patches. `observe` runs the sleep that it makes due. Unlike the original,
    it does not train before the stream.

    The budget counts patches: a trained view counts in ``cbp``, an embedded patch in ``forward_only``. ``cbp`` is many
    times that of other methods, and not bounded by theirs.

    Args:
        parts: its network takes patches; that of ``self.parts`` takes images.
        augment: makes the two views of a patch.
        config: momentum and weight decay.
        patching: how images are cut.
        sleep: when and how it trains.
        seed: seed of the views and of the order of patches.
        device: where everything happens.
        options: ``precision`` and ``kind`` of an `Engine`.
    """

    def __init__(
        self,
        parts: Parts,
        augment: Augment,
        config: LearnerConfig,
        *,
        patching: Patching,
        sleep: Sleep,
        seed: int,
        device: torch.device,
        **options: Any,
    ) -> None:
        if not isinstance(parts.memory, PatchMemory):
            raise InputError("PCMC needs a PatchMemory; build_pcmc builds one")
        # The step needs no memory: it trains on the patches that `_fall_asleep` passes to it.
        super().__init__(replace(parts, memory=None), augment, config, seed=seed, device=device, **options)
        self.sleep = sleep
        self._memory = parts.memory
        inner = parts.network
        self._encoder = PatchEncoder(inner.encoder, patching, feature_dim=inner.feature_dim)
        sizes = {name: getattr(inner, name) for name in ("feature_dim", "embedding_dim", "bottleneck_dim")}
        self.parts = replace(parts, network=Network(self._encoder, inner.projector, **sizes))
        self._order = torch_generator(seed, "sleep", device)
        self._loss = torch.full((), math.nan, device=device)
        # A tensor that the optimiser reads on the device: a captured step would freeze a Python number.
        self._lr = torch.full((), sleep.lr, device=device)
        self._eager_step.optimizer.param_groups[0]["lr"] = self._lr

    # -- awake ---------------------------------------------------------------------------------------------------

    def observe(self, images: Tensor) -> Observation:
        """Take one stream mini-batch of uint8 images (n, 3, H, W), and sleep if that is due.

        The report counts patches; a sleep is its prune event. ``objective`` is the loss of the last step of the last
        sleep: nan before the first.
        """
        if len(images) == 0:
            raise InputError("a stream mini-batch needs at least one image; none was given")
        patches = self._encoder.patching(images.to(self.device))
        features = self._embed_patches(patches)
        report = self._memory.insert(patches, features, embed=self._embed_patches)
        slept = self.budget.images // self.sleep.every
        self.budget.images += len(images)
        self.budget.batches += 1
        if self.budget.images // self.sleep.every > slept and self._fall_asleep():
            report = replace(report, pruned=report.pruned + 1)
        return Observation(
            objective=self._loss.clone(),
            alignment=torch.full_like(self._loss, math.nan),
            embeddings=features,
            report=report,
        )

    def embed(self, images: Tensor) -> Tensor:
        """Features (n, f) of plain uint8 images in eval mode, the mean over their patches; counted."""
        patches = self._encoder.patching(images.to(self.device))
        return self._embed_patches(patches).view(len(images), -1, self._encoder.feature_dim).mean(1)

    def _embed_patches(self, patches: Tensor) -> Tensor:
        """Features (n, f) of uint8 patches (n, 3, p, p) in eval mode; counted."""
        return torch.cat([super(Pcmc, self).embed(part) for part in torch.split(patches, AT_ONCE)])

    def _embed_by(self, step: TrainStep, images: Tensor) -> tuple[Tensor]:
        # Not tuned: a sleep ends with batches of many different sizes.
        with frozen(self.parts.network), numerics(self.device, self.precision):
            return (step._encode(self.augment.plain(images))[0].float(),)

    # -- asleep --------------------------------------------------------------------------------------------------

    def _fall_asleep(self) -> bool:
        """Train on what the memory rehearses, then reduce the memory; False if there is too little to train on."""
        patches = self._memory.rehearsal()
        size = min(self.sleep.batch, len(patches))
        if size < 2:  # a single patch has no negatives
            return False
        self._eager_step.load_state_dict({})  # forgets the momentum
        per_epoch = len(patches) // size  # the remainder differs from epoch to epoch
        steps = self.sleep.epochs * per_epoch
        for epoch in range(self.sleep.epochs):
            order = torch.randperm(len(patches), generator=self._order, device=self.device)
            for number in range(per_epoch):
                progress = (epoch * per_epoch + number) / steps
                self._lr.fill_(self.sleep.lr * (1 + math.cos(math.pi * progress)) / 2)
                loss = self._train(patches[order[number * size : (number + 1) * size]])
                self.budget.steps += 1
                self.budget.cbp += 2 * size
        self._loss.copy_(loss)
        self._memory.after_sleep(self._embed_patches)
        return True

    def _train(self, patches: Tensor) -> Tensor:
        """Take a gradient step on uint8 patches (n, 3, p, p); returns the loss."""
        rows = torch.arange(len(patches), device=self.device)
        return self._step(patches, rows[:0], rows, self._no_targets)[0]

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Momentum does not outlast a sleep."""
        state = super().state_dict()
        return {**state, "optimizer": {}, "order": self._order.get_state(), "loss": self._loss.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        super().load_state_dict({"optimizer": {}, "replayed": False, **state})  # older states lack both
        restore(self._order, state["order"])
        self._loss.copy_(state["loss"])


@method(
    "pcmc",
    paper="Taylor et al., 2024",
    memory=PatchMemory,
    batch=None,
    objective=DecoupledContrast,
    alignment=None,
    lr=0.6,
    custom_engine=True,
)
def pcmc(config: LearnerConfig, **place: Any) -> Pcmc:
    """Patches in a short-term and an unbounded long-term memory; learns while asleep, outside the common budget."""
    return build_pcmc(config, **place)
