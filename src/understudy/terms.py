"""The words of a privacy claim: what is protected, and who adds the noise."""

from __future__ import annotations

from typing import Literal

__all__ = ["Trust", "Unit"]

Unit = Literal["record", "person", "site"]
Trust = Literal["central", "local", "distributed", "none"]
