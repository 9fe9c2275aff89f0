"""What a run has spent, as executed."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(kw_only=True)
class Budget:
    """Counters that only grow. One image seen in two views counts twice, in both kinds of passes."""

    images: int = 0
    """Stream images observed."""
    batches: int = 0
    """Stream mini-batches observed."""
    steps: int = 0
    """Gradient steps."""
    cbp: int = 0
    """Cumulative backward passes: views that went through forward and backward."""
    forward_only: int = 0
    """Views or images that went through a network without a gradient: teacher, memory, refresh."""

    def state_dict(self) -> dict[str, int]:
        """The counters."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue counting."""
        for name, value in state.items():
            setattr(self, name, value)
