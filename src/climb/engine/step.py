"""One gradient step: two views, both losses, backward, optimiser, teacher. Eager, and the truth for faster ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from climb.augment import Augment
from climb.config import LearnerConfig
from climb.engine.numerics import Precision, numerics
from climb.engine.parts import Parts
from climb.errors import ClimbError
from climb.nets import Encoded


@dataclass(frozen=True, kw_only=True)
class StepOutput:
    """What a step leaves behind, on the device: nobody waits for it."""

    objective: torch.Tensor
    """Scalar loss of the objective."""
    alignment: torch.Tensor | None
    """Scalar loss of the alignment, before its weight; None where no row is replayed."""
    embeddings: torch.Tensor
    """float32 (n, d): mean of the two views' embeddings, by row, from before the step."""
    views: torch.Tensor
    """float (2, n, 3, H, W): the augmented images."""


class TrainStep:
    """Holds what a step needs; calling it takes one."""

    def __init__(
        self,
        parts: Parts,
        augment: Augment,
        config: LearnerConfig,
        *,
        generator: torch.Generator,
        precision: Precision,
        device: torch.device,
    ) -> None:
        self.parts = parts
        self.augment = augment
        self.generator = generator
        self.alignment_weight = config.alignment_weight
        self.precision = precision
        self.device = device
        self.parameters = trainable(parts)
        self.optimizer = torch.optim.SGD(
            self.parameters.values(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )

    def __call__(self, images: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor) -> StepOutput:
        """Train once on uint8 images (n, 3, H, W); the two row indices tell stream from replay."""
        parts = self.parts
        views = self.augment(images, self.generator)
        align = None
        with numerics(self.device, self.precision):
            features, embeddings = parts.network(views.flatten(0, 1))
            encoded = Encoded(
                views=views,
                features=features.view(2, len(images), -1),
                embeddings=embeddings.float().view(2, len(images), -1),
                stream_rows=stream_rows,
                replay_rows=replay_rows,
            )
            if parts.alignment is not None and len(replay_rows) > 0:
                align = parts.alignment(encoded)
            with torch.autocast(self.device.type, enabled=False):
                objective = parts.objective(encoded)
        loss = objective if align is None else objective + self.alignment_weight * align
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        if parts.alignment is not None:
            parts.alignment.after_step(parts.network)
        return StepOutput(
            objective=objective.detach(),
            alignment=None if align is None else align.detach(),
            embeddings=encoded.embeddings.detach().mean(0),
            views=views,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Momentum by parameter name, for the parameters that have one yet."""
        buffers = {name: self.optimizer.state[p].get("momentum_buffer") for name, p in self.parameters.items()}
        return {name: buffer.clone() for name, buffer in buffers.items() if buffer is not None}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue with the saved momentum."""
        for name, parameter in self.parameters.items():
            self.optimizer.state[parameter].clear()
            if name in state:
                buffer = torch.empty_like(parameter)  # same memory format as the parameter
                self.optimizer.state[parameter]["momentum_buffer"] = buffer.copy_(state[name])


def trainable(parts: Parts) -> dict[str, nn.Parameter]:
    """Every parameter with a gradient, by name. One that two parts share would be stepped twice, so it is refused."""
    named: dict[str, nn.Parameter] = {}
    seen: set[int] = set()
    for room, module in (("network", parts.network), ("objective", parts.objective), ("alignment", parts.alignment)):
        if module is None:
            continue
        for name, parameter in module.named_parameters():
            if not parameter.requires_grad:
                continue
            if id(parameter) in seen:
                raise ClimbError(f"parameter {room}.{name} belongs to two parts; each must be trained once")
            seen.add(id(parameter))
            named[f"{room}.{name}"] = parameter
    return named
