"""The seam a network engine fills: bytes to named sites, bytes back before a deadline.

Transport only. Rounds, attempts and hashes are inside our bytes (`wire`), so an engine
cannot mix them up; a deadline is ours to enforce, whatever the engine does. The
in-process runtime needs no transport and talks to the sites directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Exchange"]


class Exchange(Protocol):
    """One method that matters, and the list of who can be reached."""

    def sites(self) -> Sequence[str]:
        """Names of the sites that are connected and approved."""

    def exchange(
        self, names: Sequence[str], message: bytes, deadline: float
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Send one message to each, wait ``deadline`` seconds: replies, and failures by name."""
