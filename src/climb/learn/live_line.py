"""The live line of a learner on a terminal; a stream has no end, so it shows no bar."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.status import Status
from rich.text import Text


class LiveLine:
    """Says how far the learner is; does nothing where nobody looks. Names are shown as they are, brackets and all."""

    def __init__(self, label: str) -> None:
        console = Console(stderr=True)
        self._label = label
        self._status = Status(Text(label), console=console) if console.is_terminal else None

    def __enter__(self) -> LiveLine:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        """Say what is going on."""
        if self._status is not None:
            self._status.update(Text(f"{self._label}: {text}"))
