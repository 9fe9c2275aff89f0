"""Does a method keep its promises? A short training, and an AssertionError that names the first broken one."""

from __future__ import annotations

from climb.checks.method import check_method

__all__ = ["check_method"]
