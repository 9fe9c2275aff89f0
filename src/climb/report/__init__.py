"""The page of a run: one HTML file, complete in itself, that says what was run, what came out and what it cost."""

from __future__ import annotations

from climb.report.page import write_report

__all__ = ["write_report"]
