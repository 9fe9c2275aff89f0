"""Old module paths and old names, usable for one more release with a warning. Delete this file with the next release.

`climb/__init__.py` imports this file first, so that its finder sees every later import of the package.

A line of a table is ``old place > new place: old>new ...``. The new place and the new name are left out where they are
the same as before.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def _table(lines: str) -> dict[str, str]:
    """Old path to new path.

    >>> _table("climb.engine: rules>batch\\nclimb.learn > climb.runs: journal")
    {'climb.engine.rules': 'climb.engine.batch', 'climb.learn.journal': 'climb.runs.journal'}
    """
    table = {}
    for line in lines.strip().splitlines():
        places, _, moves = line.partition(": ")
        old_place, _, new_place = places.partition(" > ")
        for move in moves.split():
            old, _, new = move.partition(">")
            table[f"{old_place}.{old}"] = f"{new_place or old_place}.{new or old}"
    return table


MODULES = _table("""
climb: cache>files checks>testing config>settings.config kernels>precision learn>session impossible>methods.validate
climb: lock>files plugins>registry presets>settings.presets recipes>settings.recipes unused>methods.validate
climb: workshop>methods.factory serve.server>serve
climb.alignment: frozen_copy>contract
climb.augment: blur>colour crop>geometry
climb.bench: cell>tables laboratory>scheduler overview>scheduler publish>scheduler recipe>collect
climb.bench.executors: ray>cluster slurm>cluster
climb.bench.paper > climb.bench: marks>paper
climb.datasets: assemble>decode_cache cache>download check>dataset decoded>decode_cache fingerprint>decode_cache
climb.datasets: listing>decode_cache locate>download motifs>textures registry>dataset statistics>dataset unpickle>cifar
climb.datasets > climb.images: decode rgb>convert squares>convert
climb.engine > climb.contrib.pcmc: patch_step>patches patching>patches pcmc>engine
climb.engine: across>parts budget>engine rules>batch
climb.engine > climb.methods: sockets>validate
climb.evaluation: accuracies>metrics inputs>features kmeans>diversity knn>simple_probes ridge>simple_probes
climb.evaluation: standardize>simple_probes captured_epoch>probe_epoch
climb.export: card>model_card exported>exporter found_page>search_page from_pixels>model_loader hub>exporter
climb.export: image_files>embed labelled>probe opened>model_loader stored>model_loader torch_alone>weights
climb.export: weights_file>weights
climb.learn > climb: sizes>resolve
climb.learn > climb.runs: journal
climb.learn > climb.session: health known>seen_images loop>session run>learning settings>configure track>trackers
climb.memory > climb.contrib.pcmc: patches>memory
climb.memory > climb.contrib.released: reference>memory swapped>memory
climb.memory: closest>pairs events>ledger fifo>flat images_by_id>store limits>validate pool>ledger reservoir>flat
climb.memory: tier>snapshot window>geometry
climb.memory > climb.testing: check>memory_contract
climb.nets: encoded>network frozen>network initialise>network
climb.objectives: decoupled>simclr
climb.parallel: gradients>rows
climb.report: heat_map>accuracy_section particulars>details ticks>chart
climb.runs: believed>run_file_checks command>provenance json_files>run_file_checks remembered>memory_snapshot
climb.runs: result>folder versions>provenance
climb.runs > climb.session: evaluator>evaluation interrupt>signals run>session start>experiments
climb.serve: found>discovery tail>journal_tail watched>watched_run
climb.sources > climb.images: decode memory_needed>decode tree>find
climb.sources: address>open at_hand>in_memory identity>item iterable>in_memory standard_input>folder
climb.state > climb: tree>state
climb.streams: batch>stream blurring>stream even_sizes>sizes held_out>stream labels>stream listing>manifest
climb.streams: released_sizes>sizes segment>stream uniform_sizes>sizes whole_number>manifest
""")
"""Old path of a module to its new one. A submodule of an old path needs an entry only if it was renamed as well."""

NAMES = _table("""
climb.datasets.textures: motifs>textures
climb.export: Found>SearchResult
climb.export.search: Found>SearchResult
climb.images.convert: turn_of>exif_turn middle>center_square squashed>squash
climb.images.decode: picture>decode_rgb read_file>read_image_file
climb.images.decode > climb.images.find: EXTENSIONS
climb.images.find: Tree>FolderScanner
climb.memory > climb.contrib.released: ReferenceMemory SwappedRefreshMemory
climb.memory > climb.testing: check_memory
climb.memory.store > climb.memory.validate: check_images checked_embeddings
climb.methods.factory > climb.methods: Choice>ObjectiveSpec OBJECTIVES Workshop>PartFactory objective
climb.runs > climb.session: Finished Interrupted execute experiment
climb.runs.memory_snapshot > climb.memory.snapshot: Remembered>MemorySnapshot
climb.sources.item > climb.images.decode: CORRUPT NOT_AN_IMAGE TOO_LARGE TRUNCATED Unusable>ImageError
climb.sources.item: Claim>SeenFilter refuse>failed
climb.sources.open > climb.sources.folder: STANDARD_INPUT
climb.streams: Segment>Group
climb.streams.manifest: listing>join_numbers whole_number>check_int
climb.streams.scenarios > climb.streams.sizes: count_compositions
climb.streams.stream: blurring>blur_boundaries checked_labels>check_labels held_out>draw_validation Segment>Group
climb.testing.contract: BrokenPromise>ContractViolation
""")
"""Old name of an attribute to its new one, as `module.name`. The module of the old name must exist.

For a name whose module has moved, give the new path of the module: `MODULES` already maps the old one.
"""


class _OldNames(MetaPathFinder, Loader):
    """Finds and loads modules under their old paths, and gives modules their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for an old path and for a module with old names; None for all others."""
        if (new := _new_path(fullname)) is not None:
            return ModuleSpec(fullname, self, loader_state=new)
        spec = PathFinder.find_spec(fullname, path) if fullname in _WITH_OLD_NAMES else None
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_execute, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module at the new path, in place of the old one."""
        _warn(spec.name, spec.loader_state, stacklevel=3)
        module = importlib.import_module(spec.loader_state)
        spec.loader_state = module.__spec__  # the import system is about to overwrite it
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec. Its code has run already."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _new_path(old: str) -> str | None:
    """The new path of a module; None for a module that was not renamed.

    >>> _new_path("climb.checks"), _new_path("climb.checks.memory"), _new_path("climb.learner")
    ('climb.testing', 'climb.testing.memory', None)
    """
    package = old
    while package and package not in MODULES:
        package = package.rpartition(".")[0]
    return MODULES[package] + old.removeprefix(package) if package else None


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Run the code of a module, and have it serve its old names."""
    execute(module)
    vars(module)["__getattr__"] = partial(_old_name, module.__name__)
    vars(module).setdefault("__path__", [])  # a former package: Python imports submodules of packages only


def _old_name(module: str, name: str) -> Any:
    old = f"{module}.{name}"
    if old not in NAMES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    _warn(old, NAMES[old], stacklevel=3)
    home, _, new = NAMES[old].rpartition(".")
    return getattr(importlib.import_module(home), new)


def _warn(old: str, new: str, *, stacklevel: int) -> None:
    warnings.warn(f"{old} is now {new}; the next release removes the old name", DeprecationWarning, stacklevel + 1)


_WITH_OLD_NAMES = {old.rpartition(".")[0] for old in [*MODULES, *NAMES]}
"""Modules that have or had something under an old name."""

if not any(type(finder).__name__ == _OldNames.__name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _OldNames())
