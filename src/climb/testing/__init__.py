"""Contracts for parts: `check_memory` and `check_method` run a part and name the first contract that it violates."""

from __future__ import annotations

from climb.testing.contract import ContractViolation
from climb.testing.memory_contract import check_memory
from climb.testing.method_contract import check_method

__all__ = ["ContractViolation", "check_memory", "check_method"]
