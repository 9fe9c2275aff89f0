"""Trackers: TensorBoard and Weights & Biases (the extra ``climb-ssl[track]``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.errors import InputError
from climb.settings.config import RunConfig, to_dict
from climb.sources.item import digest


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """Receives the numbers of each journal line."""

    log: Callable[[dict[str, float], int], object]
    """Log numbers by name, and how many images have been learned so far."""
    close: Callable[[], object]
    """Send what is buffered."""


def _tensorboard(folder: Path, config: RunConfig, images: int) -> Tracker:
    """Event files in the folder's ``tensorboard/``."""
    from torch.utils.tensorboard import SummaryWriter

    # Steps after the checkpoint are about to be logged again.
    writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=images + 1)

    def log(values: dict[str, float], images: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, images)

    return Tracker(log=log, close=writer.close)


def _wandb(folder: Path, config: RunConfig, images: int) -> Tracker:
    """A run of the project ``climb``; each folder continues its own run."""
    import wandb

    place = folder.resolve()
    run = wandb.init(
        project="climb",
        dir=str(folder),
        # The whole path: folders of the same name hold different learners.
        id=f"{digest(str(place)):016x}-{config.config_hash()}",
        name=place.name,
        resume="allow",
        config=to_dict(config),
    )
    return Tracker(log=lambda values, images: run.log(values, step=images), close=run.finish)


TRACKERS: dict[str, Callable[[Path, RunConfig, int], Tracker]] = {"tensorboard": _tensorboard, "wandb": _wandb}


def check_tracker(name: str | None) -> None:
    """Reject a tracker whose library is not installed."""
    if name is not None and importlib.util.find_spec(name) is None:
        raise InputError(f'--track {name} needs the extra: pip install "climb-ssl[track]"')


def open_tracker(name: str, folder: Path, config: RunConfig, images: int) -> Tracker:
    """The tracker called ``name``, for a learner that continues after ``images`` images."""
    try:
        return TRACKERS[name](folder, config, images)
    except Exception as error:  # the user may not be logged in, or the network is down
        login = "; type wandb login, or WANDB_MODE=offline before the command" if name == "wandb" else ""
        raise InputError(f"{name} cannot be used: {str(error).strip() or type(error).__name__}{login}") from error
