"""What building kernels lacks on a machine is said before a run fails for it."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from climb.kernels import missing_for_kernels


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with Triton, but no compiler on its PATH and no header of Python; its one folder."""
    monkeypatch.setattr("climb.kernels.has_triton", lambda: True)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    return tmp_path


def put(compiler: Path) -> None:
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_compiler_and_the_headers_are_needed(bare: Path, compiler: str) -> None:
    missing = missing_for_kernels()
    assert missing is not None
    assert "no C compiler is found: install gcc, or name one in the variable CC" in missing
    put(bare / compiler)
    assert missing_for_kernels() == f"Python's headers are not in {bare}: install python3-dev, or the like"
    (bare / "Python.h").touch()
    assert missing_for_kernels() is None


def test_a_compiler_may_be_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "Python.h").touch()
    monkeypatch.setenv("CC", f"{bare}/theirs -O2")
    assert "no C compiler is found" in str(missing_for_kernels())
    put(bare / "theirs")
    assert missing_for_kernels() is None


def test_without_triton_nothing_else_helps(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.kernels.has_triton", lambda: False)
    put(bare / "gcc")
    (bare / "Python.h").touch()
    assert missing_for_kernels() == "torch finds no Triton that knows this GPU: install triton"


def test_the_headers_of_this_python_are_found_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's Python names a folder of its own, which has none."""
    include = Path(sysconfig.get_paths("posix_prefix")["include"])
    if shutil.which("gcc") is None or not (include / "Python.h").exists():
        pytest.skip("this machine has no compiler, or no headers")
    monkeypatch.setattr("climb.kernels.has_triton", lambda: True)
    monkeypatch.setattr(sysconfig, "get_default_scheme", lambda: "posix_local")
    assert missing_for_kernels() is None
