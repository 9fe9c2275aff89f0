"""The report of a run, written from its folder: `report.html`, one self-contained page, and plots as PNG."""

from __future__ import annotations

from climb.report.page import write_report
from climb.report.plots import draw_plots

__all__ = ["draw_plots", "write_report"]
