"""Observers: everything that reacts to a session and is not needed to train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from climb.errors import ClimbError, InputError

if TYPE_CHECKING:
    from climb.engine import Observation
    from climb.session.feeds import Batch
    from climb.session.session import Session


class Observer:
    """Base class of observers. Override the methods you need; each of them does nothing by default.

    With several processes, observers run in the first process only. An observer must not change the engine.
    An exception from an observer ends the run. Pass observers to `climb.session.execute` or `climb.session.learn`:

    >>> import tempfile
    >>> import numpy as np
    >>> from climb.session import Observer, learn
    >>> class Brightness(Observer):
    ...     '''Mean pixel value of all images, over all sittings.'''
    ...     def __init__(self):
    ...         self.total, self.images = 0.0, 0
    ...     def after_batch(self, session, batch, observation):
    ...         self.total += float(batch.images.float().mean()) * len(batch.images)
    ...         self.images += len(batch.images)
    ...     def state_dict(self):
    ...         return {"total": self.total, "images": self.images}
    ...     def load_state_dict(self, state):
    ...         self.total, self.images = state["total"], state["images"]
    >>> images = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    >>> brightness = Brightness()
    >>> with tempfile.TemporaryDirectory() as out:
    ...     learned = learn(images, out=out, size="edge", image_size=16, device="cpu", observers=[brightness])
    >>> brightness.images, round(brightness.total / brightness.images)
    (30, 128)
    """

    @property
    def name(self) -> str:
        """Name in checkpoints and error messages; the name of the class by default."""
        return type(self).__name__

    def start(self, session: Session) -> None:
        """Before the first mini-batch of this sitting; the state of an earlier sitting has been loaded."""

    def before_batch(self, session: Session, batch: Batch) -> None:
        """Before each mini-batch is learned."""

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """After each mini-batch."""

    def idle(self, session: Session) -> None:
        """While a live source has no full mini-batch; at least a few times a second."""

    def at_boundary(self, session: Session, segment: int) -> None:
        """At the end of each segment (task) of a dataset stream."""

    def at_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """Before a checkpoint is written. ``state["engine"]`` is the state of the engine."""

    def after_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """After a checkpoint was written. ``state`` is the state of the engine in it."""

    def at_stop(self, session: Session) -> None:
        """After the last mini-batch of this sitting, before the last checkpoint."""

    def finish(self, session: Session) -> None:
        """After the last checkpoint; ``session.complete`` tells whether the stream has ended."""

    def close(self, session: Session) -> None:
        """At the very end, also after an error."""

    def state_dict(self) -> dict[str, Any]:
        """State that checkpoints keep: plain data and tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


class ObserverError(ClimbError):
    """An observer that the caller passed raised an exception."""


def call_plugin(observer: Observer, method: str, *arguments: Any) -> Any:
    """Call a method of a caller's observer. An error names the observer and the method."""
    try:
        return getattr(observer, method)(*arguments)
    except Exception as error:
        raise ObserverError(f"observer {observer.name}: {method} raised {type(error).__name__}: {error}") from error


def check_observers(observers: Sequence[Observer]) -> list[Observer]:
    """The observers as a list, if each is one and has a name of its own."""
    names = set[str]()
    for observer in observers:
        if not isinstance(observer, Observer):
            raise InputError(f"observers must be instances of climb.session.Observer; given {type(observer).__name__}")
        if observer.name in names:
            raise InputError(f"several observers are named {observer.name}; override the property `name` of each")
        names.add(observer.name)
    return list(observers)
