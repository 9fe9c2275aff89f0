"""One registry class for every kind of part."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from climb.alignment import ALIGNMENTS, alignment
from climb.augment import POLICIES, Policy
from climb.augment.policy import views
from climb.engine import BATCH_RULES, BatchRule, batch_rule
from climb.errors import InputError
from climb.memory import MEMORIES, FifoMemory, memory
from climb.methods import METHODS, OBJECTIVES, find_method
from climb.nets import BACKBONES, backbone
from climb.registry import Registry, load_file


def test_built_in_parts_are_listed() -> None:
    assert {"climb", "pcmc"} <= set(METHODS)
    assert {"simclr", "scale"} <= set(OBJECTIVES)
    assert {"centroid", "fifo", "released", "swapped-refresh"} <= set(MEMORIES)
    assert list(BATCH_RULES) == ["stream", "stream-and-replay", "memory-only", "mix-up", "iid"]
    assert set(ALIGNMENTS) == {"ema-teacher", "relation", "snapshot", "start-teacher", "stored-targets"}
    assert {"resnet18", "resnet34", "resnet50", "vit-tiny", "micro", "efficientnet-lite0"} <= set(BACKBONES)
    assert {"simclr", "simsiam", "common"} <= set(POLICIES)


def test_every_kind_of_part_is_registered_by_a_decorator(registries: None) -> None:
    @memory("mine")
    class Mine(FifoMemory):
        pass

    @batch_rule("mine")
    class Rule(BatchRule):
        pass

    @views("mine")
    def flat(side: int) -> Policy:
        return Policy(jitter=0.0)

    @backbone("mine")
    def tiny(image_size: int, *, generator: object) -> None: ...

    assert MEMORIES["mine"] is Mine
    assert BATCH_RULES["mine"] is Rule
    assert POLICIES["mine"] is flat
    assert BACKBONES["mine"].make is tiny


def test_what_is_registered_in_a_scope_is_gone_after_it() -> None:
    numbers = Registry[int]("number")
    numbers.add("one", 1, source=int)
    with numbers.scoped(one=10, two=2):
        numbers.add("three", 3, source=int)
        assert dict(numbers) == {"one": 10, "two": 2, "three": 3}
    assert dict(numbers) == {"one": 1}


def test_a_part_of_the_wrong_kind_is_refused(registries: None) -> None:
    with pytest.raises(InputError, match=r"alignment 'mine' is .*BatchRule'>; it must be a class derived from"):
        alignment("mine")(BatchRule)
    with pytest.raises(InputError, match="memory 'mine' is 3; it must be a class that follows"):
        memory("mine")(3)
    with pytest.raises(InputError, match="augmentation policy 'mine' is 'simclr'; it must be a function from a side"):
        views("mine")("simclr")


def test_a_built_in_name_is_refused_before_built_in_parts_were_needed(registries: None) -> None:
    with pytest.raises(InputError, match=r"a memory 'released' already \(climb\.contrib.*; give .*Mine another"):

        @memory("released")
        class Mine(FifoMemory):
            pass


# -- files ------------------------------------------------------------------------------------------------------------

PARTS = """
from helper_of_my_parts import RATE
from climb.methods import er_fifo, method

@method("from-a-file", paper="a test", lr=RATE)
def from_a_file(w):
    return er_fifo(w)
"""


def test_a_file_registers_its_parts_once(registries: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "helper_of_my_parts.py").write_text("RATE = 0.07\n")
    file = tmp_path / "my_parts.py"
    file.write_text(PARTS)
    load_file(file)
    found = find_method("from-a-file")
    assert found.lr == 0.07
    load_file(str(file))
    assert find_method("from-a-file") is found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module_anywhere", r"\(line 1\): ModuleNotFoundError: No module named"),
        ("x = 1\n1 / 0\n", r"\(line 2\): ZeroDivisionError: division by zero"),
        ("def f(:\n", r"\(line 1\): SyntaxError"),
        ("raise SystemExit('two\\nlines')", r"SystemExit: two lines"),
        (
            "from climb.methods import method\nmethod('climb', paper='me')(print)\n",
            r"\(line 2\): InputError: there is a method 'climb' already",
        ),
    ],
)
def test_a_file_that_fails_is_named_in_one_line(source: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(source)
    for _ in range(2):  # the second attempt tries again
        with pytest.raises(InputError, match=message) as refused:
            load_file(file)
        assert str(refused.value).startswith(f"cannot import '{file}'")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["missing.py", "parts.txt", "."])
def test_only_an_existing_python_file_is_imported(name: str, tmp_path: Path) -> None:
    (tmp_path / "parts.txt").touch()
    with pytest.raises(InputError, match="it must be an existing Python file"):
        load_file(tmp_path / name)


def test_a_pattern_imports_every_module_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numbers_package").mkdir()
    (tmp_path / "numbers_package" / "__init__.py").touch()
    source = "from __main__ import numbers\n\nnumbers.add('one', 1, source=int)\n"
    (tmp_path / "numbers_package" / "one.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    numbers = Registry[int]("number", builtin=["numbers_package.*"])
    monkeypatch.setattr(sys.modules["__main__"], "numbers", numbers, raising=False)
    assert dict(numbers) == {"one": 1}
    for module in ("numbers_package", "numbers_package.one"):
        sys.modules.pop(module)
