from __future__ import annotations

import pytest

from climb.runs.progress import LiveLine


def show() -> None:
    with LiveLine(20, start=5, label="climb on synthetic") as line:
        line.note("loss 1.234, 60 stored")
        line.advance(10, 321.0)


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
