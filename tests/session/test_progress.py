from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from climb.session.progress import LiveLine


def session_after(batches: int) -> Any:
    """What the line reads of a session that has trained for one second."""
    engine = SimpleNamespace(budget=SimpleNamespace(images=321))
    return SimpleNamespace(done=batches, engine=engine, timer=SimpleNamespace(trained=1.0))


def show() -> None:
    line, session = LiveLine("climb on synthetic", total=20), session_after(5)
    line.start(session)
    line.note("loss 1.234, 60 stored")
    line.after_batch(session_after(10), cast(Any, None), cast(Any, None))
    line.close(session)


def test_a_terminal_sees_rate_loss_and_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    show()
    seen = capsys.readouterr()
    assert not seen.out
    for text in ("climb on synthetic", "10/20", "321 img/s", "loss 1.234, 60 stored"):
        assert text in seen.err


def test_elsewhere_it_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    show()
    assert capsys.readouterr() == ("", "")


def test_a_name_with_brackets_is_a_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    line = LiveLine("learning from [/red] photos [bold]", total=None)
    line.start(session_after(0))
    line.note("10 images of [/red]")
    line.close(session_after(0))
    seen = capsys.readouterr().err
    assert "learning from [/red] photos [bold]" in seen
    assert "10 images of [/red]" in seen


def test_a_text_that_is_kept_follows_every_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    line = LiveLine("learning", total=None)
    line.start(session_after(0))
    line.keep("kNN 61.0 % (+2.5)")
    line.note("loss 1.234")
    line.close(session_after(0))
    assert "loss 1.234 | kNN 61.0 % (+2.5)" in capsys.readouterr().err
