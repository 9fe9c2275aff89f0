"""Old module paths and old names work for one more release, and warn."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import pytest

import climb
from climb import _renamed
from climb._renamed import MODULES, NAMES


@pytest.mark.parametrize(("old", "new"), MODULES.items())
def test_an_old_path_gives_the_new_module_and_warns(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module(old.rpartition(".")[0])  # the package may have moved as well, and then warns, too
    monkeypatch.delitem(sys.modules, old, raising=False)
    module = importlib.import_module(new)
    spec = module.__spec__
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        assert importlib.import_module(old) is module
    assert module.__spec__ is spec
    sys.modules.pop(old)


@pytest.mark.parametrize("old", MODULES)
def test_no_file_is_left_at_an_old_path(old: str) -> None:
    place = Path(climb.__file__).parent.parent.joinpath(*old.split("."))
    assert not place.with_suffix(".py").exists()
    assert not (place / "__init__.py").exists()


@pytest.mark.parametrize(("old", "new"), NAMES.items())
def test_an_old_name_gives_the_new_one_and_warns(old: str, new: str) -> None:
    old_module, _, old_name = old.rpartition(".")
    new_module, _, new_name = new.rpartition(".")
    module = importlib.import_module(old_module)
    assert old_name not in vars(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        value = getattr(module, old_name)
    assert value is getattr(importlib.import_module(new_module), new_name)


def test_submodules_of_an_old_path_are_found_in_the_new_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODULES, "climb.remains", "climb.nets")
    with pytest.warns(DeprecationWarning, match=r"climb.remains(.vit)? is now climb.nets(.vit)?;"):
        old = importlib.import_module("climb.remains.vit")
    assert old is importlib.import_module("climb.nets.vit")
    for name in ("climb.remains", "climb.remains.vit"):
        sys.modules.pop(name)


def test_a_module_with_old_names_serves_them_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "climb.seeds.old_derive", "climb.seeds.derive")
    monkeypatch.setattr(_renamed, "_WITH_OLD_NAMES", {"climb.seeds"})
    monkeypatch.delitem(sys.modules, "climb.seeds")
    seeds = importlib.import_module("climb.seeds")
    with pytest.warns(DeprecationWarning, match=r"climb.seeds.old_derive is now climb.seeds.derive"):
        assert seeds.old_derive is seeds.derive
    with pytest.raises(AttributeError, match="no attribute 'derived'"):
        _ = seeds.derived


def test_an_ordinary_import_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    importlib.import_module("climb.seeds")
    assert not [warning for warning in recwarn if issubclass(warning.category, DeprecationWarning)]


@pytest.mark.parametrize("name", (Path(__file__).parent / "old_names.txt").read_text().split())
def test_every_public_name_of_the_last_release_works(name: str) -> None:
    """The public names of 0.1.0.dev0, less those that were removed on purpose (CHANGELOG.md)."""
    module, _, attribute = name.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert getattr(importlib.import_module(module), attribute) is not None
