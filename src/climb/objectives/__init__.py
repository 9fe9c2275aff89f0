"""Objectives: the losses that a network learns from."""

from __future__ import annotations

from climb.objectives.barlow_twins import BarlowTwins
from climb.objectives.byol import BYOL
from climb.objectives.contract import Objective
from climb.objectives.osiris import Osiris
from climb.objectives.scale import Scale
from climb.objectives.simclr import DecoupledContrast, SimCLR
from climb.objectives.simsiam import SimSiam
from climb.objectives.vicreg import VICReg

__all__ = ["BYOL", "BarlowTwins", "DecoupledContrast", "Objective", "Osiris", "Scale", "SimCLR", "SimSiam", "VICReg"]
