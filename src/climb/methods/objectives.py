"""Objectives by name: what each is built from, its views and its rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from climb import augment
from climb.errors import InputError
from climb.objectives import BYOL, BarlowTwins, Objective, Osiris, Scale, SimCLR, SimSiam, VICReg
from climb.registry import Registry, check_name, first_line
from climb.settings.config import LearnerConfig
from climb.settings.fields import settings_of

if TYPE_CHECKING:
    from climb.methods.factory import PartFactory


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec:
    """A registered objective."""

    name: str
    kind: type[Objective]
    make: Callable[[PartFactory], Objective]
    summary: str
    """One line that says what it is."""
    paper: str
    """Who proposed it."""
    views: Callable[[int], augment.Policy]
    """Image side in pixels to the views that it learns from."""
    lr: float | None = None
    """CLIMB's learning rate with it, and the highest of other methods; None: the same as with SimCLR."""
    alignment_weight: float | None = None
    """Weight of CLIMB's alignment with it; None: the same as with SimCLR. Other methods keep theirs."""


OBJECTIVES = Registry[ObjectiveSpec]("objective")

Make = TypeVar("Make", bound=Callable[..., Objective])

RATES = {"lr": "learning rate", "alignment_weight": "alignment weight"}
"""Rates that a method or objective may set, in words. Their limits are those of the settings."""


def objective(name: str, **declared: Any) -> Callable[[Make], Make]:
    """Register a function from a `PartFactory` to an objective of the declared class ``kind``.

    The first line of its docstring becomes the summary.

    Args:
        name: name of the objective.
        declared: fields of `ObjectiveSpec`; ``kind``, ``paper`` and ``views`` are required.

    >>> OBJECTIVES["vicreg"].summary
    'Views agree; each dimension of the embeddings varies and is uncorrelated with the others.'
    """
    check_entry("objective", name, declared)
    kind, views = declared.get("kind"), declared.get("views")
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise InputError(f"objective '{name}' has kind={kind!r}; it must be its class, derived from Objective")
    if not callable(views):
        raise InputError(
            f"objective '{name}' has views={views!r}; it must be a function from a side in pixels to a Policy, such as "
            "climb.augment.simclr"
        )

    def entry(make: Make) -> ObjectiveSpec:
        return ObjectiveSpec(name=name, make=make, summary=first_line(make.__doc__) or name, **declared)

    return OBJECTIVES.register(name, entry)


def find_objective(name: str) -> ObjectiveSpec:
    """The objective ``name``, built in or of an installed package."""
    return OBJECTIVES.find(name)


def check_entry(kind: str, name: str, declared: Mapping[str, Any]) -> None:
    """Refuse a bad name, an empty citation, and rates that are not finite numbers of the right sign."""
    check_name(kind, name)
    paper = declared.get("paper")
    if not isinstance(paper, str) or not paper.strip():
        raise InputError(f"{kind} '{name}' has paper={paper!r}; say in words who proposed it")
    for field, words in RATES.items():
        rate, setting = declared.get(field), settings_of(LearnerConfig)[field]
        if rate is not None and not (isinstance(rate, Real) and setting.allows(float(rate))):
            limits = f"{setting.bounds} and a number, or None"
            raise InputError(f"{kind} '{name}' has the {words} {rate!r}; it must be {limits}")


@objective("simclr", kind=SimCLR, paper="Chen et al., 2020", views=augment.simclr)
def simclr(w: PartFactory) -> SimCLR:
    """Each view finds the other view of its image among all views of the batch."""
    return SimCLR(w.config.temperature)


# Both rates as in the paper's appendix.
@objective("simsiam", kind=SimSiam, paper="Chen and He, 2021", views=augment.simsiam, lr=0.2, alignment_weight=0.1)
def simsiam(w: PartFactory) -> SimSiam:
    """Two views predict each other; no negatives."""
    return SimSiam(w.head("init predictor"))


@objective("byol", kind=BYOL, paper="Grill et al., 2020", views=augment.common)
def byol(w: PartFactory) -> BYOL:
    """Each view predicts the other view's embedding by a slowly moving copy of the network."""
    return BYOL(w.network, w.head("init predictor"))


# Gradients of these two are 170 and 30 times SimCLR's. Their rates make the first steps about as long as with SimCLR.
@objective("barlow-twins", kind=BarlowTwins, paper="Zbontar et al., 2021", views=augment.common, lr=0.001)
def barlow_twins(w: PartFactory) -> BarlowTwins:
    """Views agree in each dimension of the embeddings; different dimensions are uncorrelated."""
    return BarlowTwins()


@objective("vicreg", kind=VICReg, paper="Bardes et al., 2022", views=augment.common, lr=0.01)
def vicreg(w: PartFactory) -> VICReg:
    """Views agree; each dimension of the embeddings varies and is uncorrelated with the others."""
    return VICReg()


# The views of these two, and the rate of the first, are those of their methods. At SCALE's rate, and at a tenth of it,
# the second learns nothing on the demo's stream with CLIMB's parts.
@objective("osiris", kind=Osiris, paper="Zhang et al., 2024", views=augment.common, lr=0.03)
def osiris(w: PartFactory) -> Osiris:
    """One head learns the present, a second one separates past and present; three contrastive losses."""
    return w.osiris()


@objective("scale", kind=Scale, paper="Yu et al., 2023", views=augment.simclr, lr=0.001)
def scale(w: PartFactory) -> Scale:
    """Stream images with similar embeddings are positives of each other; stored images are negatives only."""
    return w.scale()
