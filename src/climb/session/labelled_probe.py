"""Probes of a small labelled folder while a learner learns: what its encoder is worth, beside its start."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from climb.errors import ClimbError, InputError
from climb.evaluation.features import batch_size, extract_features
from climb.evaluation.measured import Measured
from climb.evaluation.start import start_network
from climb.evaluation.three_probes import Rows, quick_probes
from climb.images.convert import as_pixel_range
from climb.images.decode import ImageError
from climb.images.tensors import Decoder
from climb.methods.build import chosen_network
from climb.session.labelled_folder import LabelledFile, labelled_folder
from climb.session.observer import Observer
from climb.settings.config import RunConfig

if TYPE_CHECKING:
    from climb.session.session import Session

MOST = 2000
"""Images of either part that are used, spread evenly over a larger folder."""
SHARE = 0.05
"""Largest share of the time of learning that probes at checkpoints take. The start and the end are always probed."""
NAMES = {"knn": "kNN", "ridge": "ridge"}
log = logging.getLogger("climb.session")


class LabelledProbe(Observer):
    """Writes a journal line "probe" with the kNN and the ridge accuracy of the encoder and of its start.

    The start is probed once per learner. The encoder is probed after checkpoints, as often as its share of the time
    allows, and at the end of the stream. Training does not notice.

    Args:
        folder: labelled images, in one of the layouts of `labelled_folder`.
        config: of the learner.
    """

    def __init__(self, folder: str, config: RunConfig) -> None:
        self._folder, self._config = folder, config
        self._files = labelled_folder(folder, seed=config.seed)
        self._start: dict[str, float] = {}
        self._parts: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._probed = -1  # mini-batches at the last probe
        self._spent = self._latest = 0.0  # seconds of this sitting after the start, and of the last probe

    # -- an observer of the session --------------------------------------------------------------------------------

    def start(self, session: Session) -> None:
        """Decode the images, and probe the start unless an earlier sitting did."""
        session.line.note("probing the start")
        began = time.monotonic()
        self._parts = {"training": self._decoded(self._files.train), "test": self._decoded(self._files.test)}
        _check(self._parts, self._files.classes, self._folder)
        if not self._start:
            try:
                self._start = {name: each.accuracy for name, each in self._probed_start(session).items()}
            except ClimbError as error:  # its weights are not on this machine
                log.warning("no start beside the probes of %s: %s", self._folder, error)
        if session.done:
            self._measure(session)
        else:
            self._write(session, self._start, seconds=time.monotonic() - began)
        self._spent, self._latest = 0.0, time.monotonic() - began
        log.info(
            "probes of %s: %d training and %d test images, %.1f s; at checkpoints at most %.0f %% of the time",
            self._folder,
            *(len(labels) for _, labels in self._parts.values()),
            self._latest,
            100 * SHARE,
        )

    def after_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """Probe if enough time has passed."""
        if self._spent + self._latest <= SHARE * session.timer.trained:
            self._measure(session)

    def at_stop(self, session: Session) -> None:
        """Probe at the end of the stream. A signal does not wait for it."""
        if session.feed.ended:
            self._measure(session)

    def state_dict(self) -> dict[str, Any]:
        """The accuracies of the start."""
        return {"labelled_probe": {"folder": self._folder, "start": self._start}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the accuracies of the start, if they are of this folder."""
        stored = state.get("labelled_probe") or {}
        if stored.get("folder") == self._folder:
            self._start = dict(stored["start"])

    # -- measurements ----------------------------------------------------------------------------------------------

    def _measure(self, session: Session) -> None:
        """Probe the encoder, once per mini-batch."""
        if self._probed == session.done:
            return
        began = time.monotonic()
        measured = self._probes(session, chosen_network(session.engine)[1].encoder)
        self._latest = time.monotonic() - began
        self._spent += self._latest
        session.timer.seconds["evaluate"] += self._latest
        errors = {f"{name}_error": each.standard_error for name, each in measured.items()}
        self._write(
            session, {name: each.accuracy for name, each in measured.items()}, seconds=self._latest, errors=errors
        )

    def _write(
        self,
        session: Session,
        accuracies: Mapping[str, float],
        *,
        seconds: float,
        errors: Mapping[str, float | None] | None = None,
    ) -> None:
        """The journal line, and a text on the live line."""
        self._probed = session.done
        if not accuracies:
            return
        start = {f"start_{name}": value for name, value in self._start.items()}
        images = session.engine.budget.images
        session.write("probe", images=images, **accuracies, **(errors or {}), **start, seconds=round(seconds, 3))
        text = ", ".join(f"{NAMES[name]} {value:.1f} %{self._gain(name, value)}" for name, value in accuracies.items())
        session.line.keep(text)
        log.info("after %s images: %s", f"{images:,}", text)

    def _gain(self, name: str, value: float) -> str:
        return f" ({value - self._start[name]:+.1f})" if name in self._start else ""

    def _probed_start(self, session: Session) -> dict[str, Measured]:
        if session.done == 0:
            return self._probes(session, chosen_network(session.engine)[1].encoder)
        encoder = start_network(self._config.learner, seed=self._config.seed).encoder
        return self._probes(session, encoder.to(session.device))

    def _probes(self, session: Session, encoder: nn.Module) -> dict[str, Measured]:
        train, test = (self._rows(session, encoder, part) for part in ("training", "test"))
        return quick_probes(train, test, seed=self._config.seed)

    def _rows(self, session: Session, encoder: nn.Module, part: str) -> Rows:
        (images, labels), engine = self._parts[part], session.engine
        features = extract_features(
            encoder,
            images,
            engine.augment.plain,
            batch_size=batch_size(images.shape[-1]),
            device=engine.device,
            precision=engine.precision,
        )
        return features, labels.to(features.device)

    def _decoded(self, files: list[LabelledFile]) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and labels of the readable files; of at most `MOST`, spread evenly."""
        stride = max(1, -(-len(files) // MOST))
        pixel_range = as_pixel_range(self._config.data.options.get("pixel_range"))
        decoder = Decoder(image_size=self._config.learner.image_size, pixel_range=pixel_range)
        images, labels = [], []
        for file in files[::stride]:
            try:
                images.append(decoder.file(str(file.path)))
                labels.append(file.label)
            except ImageError as error:
                log.warning("skipped %s: %s", file.path, error)
        side = self._config.learner.image_size
        stacked = torch.stack(images) if images else torch.zeros(0, 3, side, side, dtype=torch.uint8)
        return stacked, torch.tensor(labels, dtype=torch.int64)


def _check(parts: Mapping[str, tuple[torch.Tensor, torch.Tensor]], classes: list[str], folder: str) -> None:
    """Refuse a folder in which no image of some class is readable."""
    for name, (_, labels) in parts.items():
        if missing := set(range(len(classes))) - set(labels.tolist()):
            raise InputError(f"class '{classes[min(missing)]}' of {folder} has no readable {name} image")
