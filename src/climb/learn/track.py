"""Numbers to where a person looks at them: TensorBoard or Weights & Biases (the extra ``climb-ssl[track]``)."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from climb.config import RunConfig, to_dict
from climb.errors import InputError, unknown
from climb.sources.identity import digest

log = logging.getLogger("climb.learn")
TrackerName = Literal["tensorboard", "wandb"]


class Tracker(Protocol):
    """Takes the numbers of each journal line."""

    def log(self, values: dict[str, float], images: int) -> None:
        """Numbers by name, and how many images had been learned."""

    def close(self) -> None:
        """Send what is left."""


class TensorBoard:
    """Event files in the folder's ``tensorboard/``."""

    def __init__(self, folder: Path, config: RunConfig, images: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What was told of images after the checkpoint is about to be told again.
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=images + 1)

    def log(self, values: dict[str, float], images: int) -> None:
        """One scalar each."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, images)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()


class Wandb:
    """A run of the project ``climb``; a folder continues its own. Where to send it is wandb's own setting."""

    def __init__(self, folder: Path, config: RunConfig, images: int) -> None:
        import wandb

        place = folder.resolve()
        self._run = wandb.init(
            project="climb",
            dir=str(folder),
            # By its whole path: the same settings in two folders of one name are two learners.
            id=f"{digest(str(place)):016x}-{config.config_hash()}",
            name=place.name,
            resume="allow",
            config=to_dict(config),
        )

    def log(self, values: dict[str, float], images: int) -> None:
        """All at once."""
        self._run.log(values, step=images)

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


TRACKERS: dict[str, Callable[[Path, RunConfig, int], Tracker]] = {"tensorboard": TensorBoard, "wandb": Wandb}


def check_tracker(name: str | None) -> None:
    """Refuse, before any work, a name that is none, or whose library is not installed."""
    if name is None:
        return
    if name not in TRACKERS:
        raise unknown("tracker", name, TRACKERS)
    if importlib.util.find_spec(name) is None:
        raise InputError(f'--track {name} needs the extra: pip install "climb-ssl[track]"')


@contextmanager
def tracking(name: str | None, folder: Path, config: RunConfig, images: int) -> Iterator[Tracker | None]:
    """Inside, the tracker called ``name``, of a learner that continues after so many images; None for None."""
    tracker = None if name is None else _opened(name, folder, config, images)
    try:
        yield tracker
    finally:
        try:
            if tracker is not None:
                tracker.close()
        except Exception as error:  # somebody else's code, and somebody else's network: not worth a learner
            log.error("the tracker failed: %s", error)


def _opened(name: str, folder: Path, config: RunConfig, images: int) -> Tracker:
    try:
        return TRACKERS[name](folder, config, images)
    except Exception as error:  # somebody else's code: not logged in, no network
        login = "; type wandb login, or WANDB_MODE=offline before the command" if name == "wandb" else ""
        raise InputError(f"{name} cannot be used: {str(error).strip() or type(error).__name__}{login}") from error
