"""What a result says of the code behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from climb.runs import provenance
from climb.runs.provenance import command_line

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
CPU = torch.device("cpu")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A package in a repository of its own."""
    package = tmp_path / "src" / "climb"
    package.mkdir(parents=True)
    (package / "a.py").write_text("a = 1\n")
    git(tmp_path, "init", "-q")
    save(tmp_path)
    return package


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], str | None]:
    """What a process that has just begun says of a package."""

    def said(package: Path) -> str | None:
        provenance.commit.cache_clear()
        monkeypatch.setattr(provenance, "PACKAGE", package)
        return provenance.versions(CPU).get("commit")

    return said


def git(folder: Path, *command: str) -> str:
    whole = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *command]
    return subprocess.run(whole, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def save(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-verify", "-m", "a")


def test_a_checkout_is_known_by_the_last_commit_of_its_code(checkout: Path, code: Callable[[Path], str | None]) -> None:
    first = git(checkout, "rev-parse", "HEAD")[:10]
    assert code(checkout) == first
    (checkout.parents[1] / "README.md").write_text("a")
    assert code(checkout) == first
    save(checkout.parents[1])
    assert code(checkout) == first  # of other files: the same code
    (checkout / "a.py").write_text("a = 2\n")
    assert code(checkout) == f"{first}+changes"
    save(checkout.parents[1])
    second = git(checkout, "rev-parse", "HEAD")[:10]
    assert code(checkout) == second != first
    (checkout / "b.py").touch()
    assert code(checkout) == f"{second}+changes"


@pytest.mark.parametrize("setting", ["branch = true", "showUntrackedFiles = no", "short = true"])
def test_a_persons_settings_of_git_change_nothing(
    setting: str,
    checkout: Path,
    code: Callable[[Path], str | None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(f"[status]\n\t{setting}\n")
    monkeypatch.setenv("HOME", str(home))
    first = git(checkout, "rev-parse", "HEAD")[:10]
    assert code(checkout) == first
    (checkout / "b.py").touch()
    assert code(checkout) == f"{first}+changes"


def test_a_clone_without_history_does_not_know(
    checkout: Path, code: Callable[[Path], str | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its only commit may be one of other files."""
    repository, clone = checkout.parents[1], tmp_path_factory.mktemp("clone")
    (repository / "README.md").write_text("a")
    save(repository)
    git(clone, "clone", "-q", "--depth", "1", f"file://{repository}", ".")
    assert code(clone / "src" / "climb") is None
    git(clone, "fetch", "-q", "--unshallow")
    assert code(clone / "src" / "climb") == code(checkout)


def test_git_is_asked_once_a_process(
    checkout: Path, code: Callable[[Path], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = code(checkout)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked again"))
    assert provenance.versions(CPU)["commit"] == first


def test_a_package_that_was_installed_has_none(checkout: Path, code: Callable[[Path], str | None]) -> None:
    """Also below somebody else's repository."""
    installed = checkout.parents[1] / ".venv" / "site-packages" / "climb"
    installed.mkdir(parents=True)
    assert code(installed) is None


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 2)])
def test_without_git_there_is_none(
    error: Exception, checkout: Path, code: Callable[[Path], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", fails)
    assert code(checkout) is None


def test_a_broken_repository_fails_no_run(checkout: Path, code: Callable[[Path], str | None]) -> None:
    (checkout.parents[1] / ".git" / "HEAD").unlink()
    assert code(checkout) is None


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["/usr/bin/climb", "run", "--out", "a b"], "climb run --out 'a b'"),
        (["/site/climb/__main__.py", "learn", "photos"], "python -m climb learn photos"),
        (["/usr/bin/climb", "learn", "rtsp://me:secret@cam/1"], "climb learn rtsp://me:...@cam/1"),
        (["/usr/bin/climb", "learn", os.fsdecode(b"it's caf\xe9"), "a"], r"climb learn $'it\x27s caf\xe9' a"),
        (["/usr/bin/pytest", "tests"], None),
        (["", "x"], None),
    ],
)
def test_what_was_typed(monkeypatch: pytest.MonkeyPatch, typed: list[str], said: str | None) -> None:
    monkeypatch.setattr("sys.argv", typed)
    assert command_line() == said
