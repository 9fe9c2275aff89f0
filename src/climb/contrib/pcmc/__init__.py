"""PCMC: a memory of patches, and an engine that trains asleep."""

from __future__ import annotations

from climb.contrib.pcmc.engine import Pcmc, Sleep, build_pcmc
from climb.contrib.pcmc.memory import PatchMemory
from climb.contrib.pcmc.patches import PatchEncoder, Patching

__all__ = ["PatchEncoder", "PatchMemory", "Patching", "Pcmc", "Sleep", "build_pcmc"]
