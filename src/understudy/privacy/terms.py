"""The words of a privacy promise: what is protected, who is trusted, where noise is added."""

from __future__ import annotations

from typing import Literal

__all__ = ["Kind", "Slot", "Trust", "Unit"]

Unit = Literal["record", "person", "site"]
Trust = Literal["central", "local", "distributed", "none"]
Slot = Literal["step", "client", "server", "distributed"]
Kind = Literal["noised", "masked", "entrusted", "not private"]  # of what a site sends
