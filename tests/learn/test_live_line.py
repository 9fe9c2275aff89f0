"""The live line."""

from __future__ import annotations

import pytest

from climb.learn.live_line import LiveLine


def test_a_name_with_brackets_is_a_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with LiveLine("learning from [/red] photos [bold]") as line:
        line.say("10 images")
    assert "learning from [/red] photos [bold]" in capsys.readouterr().err
