"""The guard of a pretrained encoder: it restores the last healthy state when training does harm."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from climb.engine.health import health
from climb.engine.inference import inference
from climb.nets import Network
from climb.precision import full_float32

if TYPE_CHECKING:
    from climb.engine.engine import Engine

PANEL = 256
"""Stream images whose features are measured: the first ones."""
FEWEST = 32
"""Images from which on they are measured, while the panel still grows."""
PERIOD = 100
"""Mini-batches between two measurements; one takes about as long as one mini-batch."""
DIVERSE = 3.0
"""Effective rank of the start's features on the panel below which nothing can be said: images that are all alike."""
HALF = 0.5
"""Share of the start's effective rank and spread below which an encoder is unhealthy."""
AT_CHANCE, PATIENCE = 0.02, 20
"""Distance of the loss from chance, relative to chance, and the mini-batches that it may stay so close."""
SLOWER = 3.0
"""Divisor of the learning rates after each failure."""
FAILURES = 3
"""After so many failures the encoder stays what it was at its start."""

HEALTHY, UNKNOWN = "healthy", "unknown"

log = logging.getLogger("climb.engine")


@dataclass(frozen=True, kw_only=True)
class GuardEvent:
    """One intervention."""

    reason: str
    """What was wrong."""
    action: str
    """What was done."""
    failures: int
    """Failures so far."""


class Guard:
    """Measures an encoder on fixed images, and takes back what harmed it.

    The first stream images are the panel. An encoder is unhealthy when effective rank or spread of its features on the
    panel falls below half the start's, when the objective stays at chance, or when a number is not finite. Then the
    last healthy state returns, and the learning rates are divided by three. After three failures the start returns,
    and only the heads go on learning. If the images of the panel are all alike, only the start counts as healthy.

    Args:
        engine: the engine, at its start.
    """

    def __init__(self, engine: Engine) -> None:
        self._panel: list[torch.Tensor] = []
        self._start = copy.deepcopy(engine.parts.network.encoder).requires_grad_(False).eval()
        self._healthy = _state_of(engine)
        self._at_chance = 0
        self.failures = 0
        """Times that training did harm."""
        self.event: GuardEvent | None = None
        """The intervention after the last mini-batch, if there was one."""

    @property
    def has_given_up(self) -> bool:
        """Whether the encoder stays what it was at its start."""
        return self.failures >= FAILURES

    def before_batch(self, stream: torch.Tensor) -> None:
        """Begin a mini-batch (n, 3, H, W), and add its images to the panel until that is full."""
        self.event = None
        missing = PANEL - sum(map(len, self._panel))
        if missing > 0:
            self._panel.append(stream[:missing].clone())

    def takes_back(self, engine: Engine, objective: torch.Tensor) -> bool:
        """Restore the last healthy state if the loss of a step is not finite; whether it was not."""
        if torch.isfinite(objective):
            return False
        self._restore(engine, f"the loss became {float(objective)}")
        return True

    def after_batch(self, engine: Engine, objective: torch.Tensor, rows: int) -> None:
        """Look at the loss of the last mini-batch, and from time to time at the encoder.

        Args:
            engine: after the mini-batch.
            objective: the scalar loss of the last pass.
            rows: images of that pass.
        """
        if self.has_given_up:
            return
        if reason := self._of_loss(engine, objective, rows):
            self._restore(engine, reason)
        elif engine.budget.batches % PERIOD == 0:
            self.check(engine)

    def check(self, engine: Engine) -> None:
        """Measure the encoder now; restore the last healthy state, or remember this one."""
        if self.has_given_up:
            return
        verdict = self._of_features(engine)
        if verdict == HEALTHY:
            self._healthy = _state_of(engine)
        elif verdict != UNKNOWN:
            self._restore(engine, verdict)

    def published(self, engine: Engine, *, verify: bool) -> Network:
        """The encoder to hand out: the evaluated one, as it was when it was last found healthy.

        Args:
            engine: its engine, which stays as it is.
            verify: measure the encoder now, and hand it out if it is healthy.
        """
        if verify and self._of_features(engine) == HEALTHY:
            healthy = engine.parts.network
        else:
            healthy = copy.deepcopy(engine.parts.network)
            healthy.load_state_dict(self._healthy["network"])
        if engine.parts.average is None:
            return healthy
        average = copy.deepcopy(engine.parts.average)
        average.update(healthy)
        return average.network

    # -- measurements ------------------------------------------------------------------------------------------------

    def _of_loss(self, engine: Engine, objective: torch.Tensor, rows: int) -> str | None:
        chance = engine.parts.objective.chance(rows)
        loss = float(objective)
        near = chance is not None and abs(loss - chance) <= AT_CHANCE * chance
        self._at_chance = self._at_chance + 1 if near and engine.budget.steps > engine.config.head_warmup else 0
        if self._at_chance < PATIENCE:
            return None
        return f"the loss stayed at chance ({loss:.3f}) for {PATIENCE} mini-batches"

    def _of_features(self, engine: Engine) -> str:
        """`HEALTHY`, `UNKNOWN`, or what is wrong."""
        if sum(map(len, self._panel)) < FEWEST:
            return UNKNOWN
        images = torch.cat(self._panel)
        reference = _measured(engine, self._start, images)
        if reference is None or reference[0] < DIVERSE:
            return UNKNOWN
        networks: dict[str, Network] = {"student": engine.parts.network}
        if engine.parts.average is not None:
            networks["average"] = engine.parts.average.network
        for name, network in networks.items():
            state = _measured(engine, network.encoder, images)
            if state is None:
                return f"features of the {name} are not finite"
            for what, now, then in zip(("effective rank", "spread"), state, reference, strict=True):
                if now < HALF * then:
                    return f"the {what} of the {name}'s features fell from {then:.3g} to {now:.3g}"
        return HEALTHY

    # -- intervention ------------------------------------------------------------------------------------------------

    def _restore(self, engine: Engine, reason: str) -> None:
        self._at_chance = 0
        _load_state(engine, self._healthy)
        if self.has_given_up:  # the heads alone went wrong
            return
        self.failures += 1
        if self.failures == FAILURES:
            engine.parts.network.encoder.load_state_dict(self._start.state_dict())
            if engine.parts.average is not None:
                engine.parts.average.update(engine.parts.network)
            action = "the encoder stays what it was at its start; only the heads go on learning"
        else:
            engine.scale_rates(1 / SLOWER)
            action = f"went back to the last healthy encoder and divided the learning rates by {SLOWER:g}"
        self.event = GuardEvent(reason=reason, action=action, failures=self.failures)
        log.warning("%s: %s (failure %d of %d)", reason, action, self.failures, FAILURES)

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, and the start."""
        return {
            "panel": torch.cat(self._panel).cpu() if self._panel else torch.zeros(0, dtype=torch.uint8),
            "start": self._start.state_dict(),
            "healthy": self._healthy,
            "at_chance": self._at_chance,
            "failures": self.failures,
        }

    def load_state_dict(self, state: dict[str, Any], engine: Engine) -> None:
        """Continue where `state_dict` was taken."""
        panel = state["panel"].to(engine.device)
        self._panel = [panel] if len(panel) else []
        self._start.load_state_dict(state["start"])
        self._healthy = copy.deepcopy(state["healthy"])
        self._at_chance, self.failures = int(state["at_chance"]), int(state["failures"])
        if self.failures and not self.has_given_up:
            engine.scale_rates(SLOWER**-self.failures)


def _measured(engine: Engine, encoder: torch.nn.Module, images: torch.Tensor) -> tuple[float, float] | None:
    """Effective rank and spread of the features of some images; None if they are not finite."""
    with inference(encoder, engine.device, engine.precision):
        features = torch.cat([encoder(engine.augment.plain(part)).float() for part in torch.split(images, 64)])
    if not torch.isfinite(features).all():
        return None
    with full_float32():
        state = health(features)
    return state.effective_rank, state.spread


def _learned(engine: Engine) -> dict[str, Callable[[], Any]]:
    parts = engine.parts
    modules = {"network": parts.network, "objective": parts.objective, "alignment": parts.alignment}
    return {name: module.state_dict for name, module in modules.items() if module is not None}


def _state_of(engine: Engine) -> dict[str, Any]:
    """A copy of all that gradient steps change."""
    state = {name: copy.deepcopy(take()) for name, take in _learned(engine).items()}
    return {**state, "optimizer": engine.optimizer_state()}


def _load_state(engine: Engine, state: dict[str, Any]) -> None:
    parts = engine.parts
    parts.network.load_state_dict(state["network"])
    parts.objective.load_state_dict(state["objective"])
    if parts.alignment is not None:
        parts.alignment.load_state_dict(state["alignment"])
    if parts.average is not None:
        parts.average.update(parts.network)
    engine.load_optimizer_state(state["optimizer"])
