"""The words of a privacy promise: what is protected, who is trusted, where noise is added."""

from __future__ import annotations

from typing import Literal

__all__ = ["Held", "Kind", "Slot", "Trust", "Unit"]

Held = Literal["rows", "columns"]  # what a site has of the table
Unit = Literal["record", "person", "site"]
Trust = Literal["central", "local", "distributed", "none"]
Slot = Literal["step", "client", "server", "distributed"]
Kind = Literal["noised", "share", "masked", "entrusted", "not private"]
# Of what is sealed at a site. A share is for masks only: it never travels without them.
