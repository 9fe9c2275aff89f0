"""Live novelty: scores each image before it is learned, reports new ones, and detects changes of the stream."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor

from climb.engine.inference import inference
from climb.errors import ClimbError, InputError
from climb.files import write_atomic, write_text
from climb.methods.build import chosen_network
from climb.novelty.changes import LAG, ChangeDetector
from climb.novelty.scores import Scores
from climb.novelty.stored import StoredReference
from climb.session.feeds import Batch
from climb.session.observer import Observer
from climb.settings.config import LearnOptions

if TYPE_CHECKING:
    from climb.engine import Engine, Observation
    from climb.session.session import Session

WARM = 100
"""Stored images with features from which images are scored."""
RENEWED = 0.01
"""Cost of renewing features of stored images, as a share of a mini-batch's training."""
PER_ROW = 6
"""Forward passes that training one row costs: two views, forward and backward."""
MOST_COPIES, MOST_COPY_BYTES = 1000, 100 * 10**6
"""Bounds of the folder of copies; the oldest ones leave."""
log = logging.getLogger("climb.session")


def novelty_observers(options: LearnOptions) -> list[Observer]:
    """The observer that the options ask for, if they do."""
    if options.novel is None and options.novel_to is None:
        return []
    if options.novel is not None and Path(options.novel).suffix != ".jsonl":
        raise InputError(f"--novel must be a file that ends in .jsonl; given {options.novel}")
    return [Novelty(options.novel, options.novel_to, false_alarms=options.false_alarms)]


class Novelty(Observer):
    """Writes a line for each new image: its path, score and the nearest stored image. Training stays the same.

    Args:
        file: JSON lines; None for none.
        folder: copies of the images as the learner sees them; None for none.
        false_alarms: share of images like the stored ones that may be called new.
    """

    def __init__(self, file: str | Path | None, folder: str | Path | None, *, false_alarms: float = 0.01) -> None:
        self._file = None if file is None else Path(file).expanduser()
        self._copies = None if folder is None else Copies(Path(folder).expanduser())
        self._false_alarms = false_alarms
        self._reference: StoredReference | None = None
        self._last: tuple[int, Tensor] | None = None
        self._detector: ChangeDetector | None = None
        self._recent = deque[float](maxlen=1000)
        self._counts = {"novel_images": 0, "changes": 0}

    def start(self, session: Session) -> None:
        """Check the memory and the files. Lines of images that will be learned again are removed."""
        self._reference = StoredReference(session.engine.parts.memory)
        try:
            self._detector = ChangeDetector(session.config.seed)
        except InputError as error:
            log.warning("changes of the stream are not detected: %s", error)
        if self._file is not None:
            _cut(self._file, session.engine.budget.images)

    def before_batch(self, session: Session, batch: Batch) -> None:
        """Score the images of a mini-batch, and bring features of stored images up to date."""
        reference, engine, now = self._reference, session.engine, session.done
        assert reference is not None
        if self._last is not None:
            first, features = self._last
            reference.put(range(first, first + len(features)), features, now - 1)
        config = engine.config
        rows = config.passes * (config.stream_batch + config.replay_batch)
        due = reference.due(now, renewals=max(1, round(RENEWED * PER_ROW * rows)))
        images = batch.images if not due else torch.cat([batch.images, reference.images(due).to(batch.images.device)])
        features = _features(engine, images)
        own = features[: len(batch.images)]
        reference.put(due, features[len(own) :], now)
        first = engine.budget.images
        self._last = (first, own)
        if len(reference) < WARM:
            return
        scores = reference.score(own)
        earlier = [math.nan] * len(own)
        if reference.count(before=first - LAG) >= WARM:
            earlier = reference.score(own, before=first - LAG).scores.tolist()
        self._report(session, batch, scores, first)
        self._detect(session, scores.scores.tolist(), earlier, first)

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """Hand numbers to the journal."""
        if self._recent:
            mean = sum(self._recent) / len(self._recent)
            session.measured.update(novelty=mean, **self._counts)

    def state_dict(self) -> dict[str, Any]:
        """The counts."""
        return {"novelty": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue counting."""
        self._counts.update(state.get("novelty", {}))

    def _report(self, session: Session, batch: Batch, scores: Scores, first: int) -> None:
        lines = []
        for row, (score, nearest) in enumerate(zip(scores.scores.tolist(), scores.nearest.tolist(), strict=True)):
            self._recent.append(score)
            if score <= 1 - self._false_alarms:
                continue
            self._counts["novel_images"] += 1
            where = batch.paths[row] if batch.paths else f"image {first + row}"
            values = {"time": round(time.time(), 3), "image": first + row, "path": where}
            lines.append(json.dumps({**values, "score": round(score, 6), "nearest": f"image {nearest}"}))
            if self._copies is not None:
                self._copies.add(first + row, score, batch.images[row])
        if lines and self._file is not None:
            try:
                with open(self._file, "a", encoding="utf-8") as handle:
                    handle.write("".join(f"{line}\n" for line in lines))
            except OSError as error:  # a full disk must not stop learning
                log.error("cannot write %s: %s", self._file, error.strerror or error)

    def _detect(self, session: Session, scores: list[float], earlier: list[float], first: int) -> None:
        if self._detector is None:
            return
        for row, pair in enumerate(zip(scores, earlier, strict=True)):
            if self._detector.update(*pair):
                self._counts["changes"] += 1
                session.write("change", image=first + row)
                log.warning("the stream changed at about image %d", first + row)


class Copies:
    """A folder with PNG files of the latest new images, bounded in number and bytes."""

    def __init__(self, folder: Path) -> None:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file; --novel-to must be a folder")
        self._folder = folder
        files = sorted(folder.glob("[0-9]*-0.*.png")) if folder.is_dir() else []
        self._sizes = {file: file.stat().st_size for file in files}

    def add(self, number: int, score: float, image: Tensor) -> None:
        """Write an image, uint8 (3, H, W). A full disk does not stop learning."""
        file = self._folder / f"{number:012d}-{score:.6f}.png"
        picture = Image.fromarray(image.permute(1, 2, 0).contiguous().cpu().numpy())
        try:
            write_atomic(file, partial(picture.save, format="PNG"))
            self._sizes[file] = file.stat().st_size
            while len(self._sizes) > MOST_COPIES or sum(self._sizes.values()) > MOST_COPY_BYTES:
                oldest = min(self._sizes)
                del self._sizes[oldest]
                oldest.unlink(missing_ok=True)
        except (OSError, ClimbError) as error:
            log.error("no copy of a new image: %s", error)


def _features(engine: Engine, images: Tensor) -> Tensor:
    encoder = chosen_network(engine)[1].encoder
    with inference(encoder, engine.device, engine.precision):
        features: Tensor = encoder(engine.augment.plain(images.to(engine.device))).float()
    return features


def _cut(file: Path, images: int) -> None:
    """Remove lines of images that are not in the restored state, and an incomplete last line."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        return
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            if json.loads(line)["image"] < images:
                kept.append(line)
        except (ValueError, LookupError, TypeError):
            if line.endswith("\n"):
                raise InputError(f"{file} is not a file of --novel; give another name") from None
    write_text(file, "".join(kept))
