"""PCMC (Taylor, Vassiliades and Dovrolis, 2024): sort patches while awake, train the encoder on them while asleep.

It fits no batch rule, since nothing is trained between two sleeps; hence a loop of its own, behind the engine's verbs.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from climb.augment import Augment
from climb.config import LearnerConfig, check_learner
from climb.engine.batch import BatchRule
from climb.engine.budget import Budget
from climb.engine.captured import Captured, Function
from climb.engine.engine import Observation
from climb.engine.numerics import EngineKind, Precision
from climb.engine.parts import Parts
from climb.engine.patch_step import CROPPED, PatchStep
from climb.engine.patching import AT_ONCE, PatchEncoder, Patching
from climb.errors import InputError
from climb.memory.patches import PatchMemory
from climb.nets import Network, build_network, frozen
from climb.objectives import DecoupledContrast
from climb.seeds import restore, torch_generator

STEM = 224
"""The network is built as for images of this side: patches are small, but PCMC's encoder has ImageNet's stem."""


@dataclass(frozen=True, kw_only=True)
class Sleep:
    """When the encoder is trained, and how. A sleep trains on the patches that the memory rehearses.

    The learning rate starts at ``lr`` and falls to zero along half a cosine in every sleep, and the momentum starts
    at nothing. That is the schedule PCMC's code sets out to follow; a slip there squares the base rate (0.36 for
    0.6) and stretches the cosine so far that it hardly falls.
    """

    every: int = 2000
    """Stream images from one sleep to the next, counted: no task boundary is needed."""
    epochs: int = 200
    """Times that a sleep goes through its patches."""
    batch: int = 512
    """Patches of one gradient step; all of them where there are fewer."""
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
    precision: Precision,
    kind: EngineKind,
    patching: Patching | None = None,
    sleep: Sleep | None = None,
    stm_centroids: int = 400,
) -> Pcmc:
    """PCMC for a configuration, at its first image. ``mean`` and ``std`` normalise the images.

    Of the configuration it uses the backbone, learning rate, momentum, weight decay and temperature, and of its memory
    ``images_per_centroid``, ``window`` and ``novelty_percentile``; its own settings are the last three arguments. The
    memory's ``capacity`` does not bind it: see `PatchMemory`. The projector is the one of all methods, in place of
    PCMC's 512-512-128.
    """
    check_learner(config)
    patching = patching or Patching.fitting(config.image_size)
    inner = build_network(config.backbone, STEM, generator=torch_generator(seed, "init"))
    _check_takes(inner.encoder, patching.patch, config.backbone)
    encoder = PatchEncoder(inner.encoder, patching, feature_dim=inner.feature_dim)
    sizes = {
        "feature_dim": inner.feature_dim,
        "embedding_dim": inner.embedding_dim,
        "bottleneck_dim": inner.bottleneck_dim,
    }
    memory = PatchMemory(
        stm_centroids,
        (3, patching.patch, patching.patch),
        inner.feature_dim,
        patches_per_centroid=config.memory.images_per_centroid,
        least_patches=min(5, config.memory.images_per_centroid - 1),
        window=config.memory.window,
        novelty_percentile=config.memory.novelty_percentile,
        seed=seed,
        device=device,
    )
    network = Network(encoder, inner.projector, **sizes)
    objective = DecoupledContrast(config.temperature)
    parts = Parts(network=network, memory=memory, batch=BatchRule(), objective=objective, alignment=None)
    augment = Augment(CROPPED, mean, std, device=device)
    sleep = sleep or Sleep(lr=config.lr)
    return Pcmc(parts, augment, config, sleep=sleep, seed=seed, device=device, precision=precision, kind=kind)


def _check_takes(encoder: nn.Module, side: int, backbone: str) -> None:
    """Refuse a network that takes images of one size only: it is built for others than the patches."""
    try:
        with frozen(encoder):
            encoder(torch.zeros(1, 3, side, side))
    except Exception as error:
        raise InputError(
            f"backbone '{backbone}' does not take PCMC's patches of {side} x {side} pixels; choose one of "
            f"convolutions, such as resnet18. It says: {error}"
        ) from error


class Pcmc:
    """Observes images as an `Engine` does. Sees images only: no label, no task number.

    Awake, it cuts every image into patches, embeds them by the encoder in eval mode and hands them to its memory.
    Each time another ``sleep.every`` images have been seen it sleeps: it trains encoder and projector on what the
    memory rehearses, then lets the memory forget what is redundant. A sleep happens inside the `observe` that makes
    it due. There is no training before the stream, unlike in the original.

    The budget counts patches: each view of one that is trained on is one of ``cbp``, each one embedded is one of
    ``forward_only``. Nothing holds ``cbp`` to that of other methods, and it is many times theirs.
    """

    def __init__(
        self,
        parts: Parts,
        augment: Augment,
        config: LearnerConfig,
        *,
        sleep: Sleep,
        seed: int,
        device: torch.device,
        precision: Precision,
        kind: EngineKind = "eager",
    ) -> None:
        if not isinstance(parts.memory, PatchMemory) or not isinstance(parts.network.encoder, PatchEncoder):
            raise InputError("PCMC needs a PatchMemory and a network with a PatchEncoder; build_pcmc makes both")
        self.parts = parts
        self.augment = augment
        self.config = config
        self.sleep = sleep
        self.device = device
        self.precision = precision
        self.kind = kind
        self.budget = Budget()
        self._memory: PatchMemory = parts.memory
        self._encoder: PatchEncoder = parts.network.encoder
        parts.prepare(device)
        self._generator = torch_generator(seed, "augmentation", device)
        self._order = torch_generator(seed, "sleep", device)
        self._loss = torch.full((), math.nan, device=device)
        self._eager_step = PatchStep(
            parts,
            self._encoder,
            augment,
            config,
            lr=sleep.lr,
            generator=self._generator,
            precision=precision,
            device=device,
            tuned=kind != "eager",
        )
        self._step: Function = self._eager_step
        self._embed: Function = self._eager_step.embed
        if kind != "eager":
            frequent = self._eager_step.compiled() if kind == "compiled" else self._eager_step
            self._step = Captured(self._step, device=device, generators=(self._generator,), frequent=frequent)
            self._embed = Captured(self._embed, device=device, frequent=frequent.embed)

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

    def on_boundary(self) -> None:
        """A task has ended. Nothing depends on it."""

    def embed(self, images: Tensor) -> Tensor:
        """Features (n, f) of plain uint8 images in eval mode, the mean over their patches; counted."""
        patches = self._encoder.patching(images.to(self.device))
        return self._embed_patches(patches).view(len(images), -1, self._encoder.feature_dim).mean(1)

    def _embed_patches(self, patches: Tensor) -> Tensor:
        """Features (n, f) of uint8 patches (n, 3, p, p) in eval mode; counted."""
        self.budget.forward_only += len(patches)
        # Copies: a captured forward writes the next features over these.
        return torch.cat([self._embed(part)[0].clone() for part in torch.split(patches, AT_ONCE)])

    # -- asleep --------------------------------------------------------------------------------------------------

    def _fall_asleep(self) -> bool:
        """Train on what the memory rehearses, then reduce the memory; False if there is too little to train on."""
        patches = self._memory.rehearsal()
        size = min(self.sleep.batch, len(patches))
        if size < 2:  # one patch has nothing to be told apart from
            return False
        self._eager_step.forget_momentum()
        per_epoch = len(patches) // size  # what is left over differs from epoch to epoch
        steps = self.sleep.epochs * per_epoch
        for epoch in range(self.sleep.epochs):
            order = torch.randperm(len(patches), generator=self._order, device=self.device)
            for number in range(per_epoch):
                progress = (epoch * per_epoch + number) / steps
                self._eager_step.lr.fill_(self.sleep.lr * (1 + math.cos(math.pi * progress)) / 2)
                (loss,) = self._step(patches[order[number * size : (number + 1) * size]])
                self.budget.steps += 1
                self.budget.cbp += 2 * size
        self._loss.copy_(loss)
        self._memory.after_sleep(self._embed_patches)
        return True

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. No momentum: it does not outlast a sleep."""
        return {
            # Copies: what torch gives goes on changing with the module.
            "network": deepcopy(self.parts.network.state_dict()),
            "objective": deepcopy(self.parts.objective.state_dict()),
            "memory": self._memory.state_dict(),
            "augmentation": self._generator.get_state(),
            "order": self._order.get_state(),
            "loss": self._loss.clone(),
            "budget": self.budget.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.parts.network.load_state_dict(state["network"])
        self.parts.objective.load_state_dict(state["objective"])
        self._memory.load_state_dict(state["memory"])
        restore(self._generator, state["augmentation"])
        restore(self._order, state["order"])
        self._loss.copy_(state["loss"])
        self.budget.load_state_dict(state["budget"])
