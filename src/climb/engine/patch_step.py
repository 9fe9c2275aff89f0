"""One gradient step of PCMC's sleep, and the forward by which it embeds patches awake."""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from climb.augment import Augment, Parameters, Policy
from climb.augment.parameters import interpret, uniform
from climb.config import LearnerConfig
from climb.engine.compiled import compiled
from climb.engine.numerics import Precision, autocast, numerics
from climb.engine.parts import Parts
from climb.engine.patching import PatchEncoder
from climb.nets import Encoded, frozen

CROPPED = Policy(crop_scale=(0.3, 1.0), flip=0.0, blur=0.2)
"""What happens to a patch in its first view. Colours as SimCLR's."""

WHOLE = replace(CROPPED, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0))
"""What happens to it in its second view: the same, but for the crop."""


class PatchStep:
    """Holds what a step needs; calling it takes one. Eager, and the truth for anything faster.

    It takes and returns tensors on the device and waits for nothing, so that a CUDA graph can hold it.
    """

    def __init__(
        self,
        parts: Parts,
        encoder: PatchEncoder,
        augment: Augment,
        config: LearnerConfig,
        *,
        lr: float,
        generator: torch.Generator,
        precision: Precision,
        device: torch.device,
        tuned: bool = False,
    ) -> None:
        self.parts = parts
        self.encoder = encoder
        self.augment = augment
        self.generator = generator
        self.precision = precision
        self.device = device
        self._tuned = tuned
        # A tensor, and an optimiser that reads it on the device: a captured step would keep a plain number for ever.
        self.lr = torch.full((), lr, device=device)
        self.optimizer = torch.optim.SGD(
            [*parts.network.parameters(), *parts.objective.parameters()],
            lr=self.lr,
            momentum=config.momentum,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self._views = self._eager_views
        self._loss = self._eager_loss
        self._encode = self._eager_encode

    def __call__(self, patches: Tensor) -> tuple[Tensor]:
        """Train once on uint8 patches (n, 3, p, p); the loss."""
        views = self._views(patches, *self.numbers(len(patches)))
        with numerics(self.device, self.precision, tuned=self._tuned):
            loss = self._loss(views)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return (loss.detach(),)

    def embed(self, patches: Tensor) -> tuple[Tensor]:
        """Float32 features (n, f) of uint8 patches (n, 3, p, p) in eval mode."""
        # Not tuned: a sleep ends with batches of many sizes that never come again.
        with frozen(self.encoder), numerics(self.device, self.precision):
            return (self._encode(self.augment.plain(patches)).float(),)

    def forget_momentum(self) -> None:
        """The next step is as if it were the first."""
        for held in self.optimizer.state.values():
            held["momentum_buffer"].zero_()  # in place: a captured step knows its address

    def compiled(self) -> PatchStep:
        """The same step, with the same parameters, optimiser and generator, all but the optimiser by torch.compile."""
        twin = copy.copy(self)
        twin._views = compiled(self._views)
        twin._loss = compiled(self._loss)
        twin._encode = compiled(self._encode)
        return twin

    def numbers(self, n: int) -> tuple[Tensor, Tensor]:
        """The random numbers that decide on the first and on the second views of n patches."""
        return uniform(n, self.generator, self.device), uniform(n, self.generator, self.device)

    def _eager_views(self, patches: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Float32 (2, n, 3, p, p): each patch cropped, and whole. Draws nothing, so it can be compiled."""
        return self.augment.apply(patches, two_views((patches.shape[2], patches.shape[3]), first, second))

    def _eager_loss(self, views: Tensor) -> Tensor:
        n = views.shape[1]
        with autocast(self.device, self.precision):
            features = self.encoder.backbone(views.flatten(0, 1))
            embeddings = self.parts.network.projector(features)
        rows = torch.arange(n, device=self.device)
        encoded = Encoded(
            views=views,
            features=features.float().view(2, n, features.shape[1]),
            embeddings=embeddings.float().view(2, n, embeddings.shape[1]),
            stream_rows=rows[:0],
            replay_rows=rows,
        )
        loss: Tensor = self.parts.objective(encoded)
        return loss

    def _eager_encode(self, inputs: Tensor) -> Tensor:
        with autocast(self.device, self.precision):
            features: Tensor = self.encoder.backbone(inputs)
        return features


def two_views(size: tuple[int, int], first: Tensor, second: Tensor) -> Parameters:
    """What the random numbers of both views mean for patches of ``size``: the first is cropped, the second is not."""
    return interpret(CROPPED, size, first).followed_by(interpret(WHOLE, size, second))
