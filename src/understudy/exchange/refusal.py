"""A refusal: what was expected, what was found, what to do, and its HTTP status."""

from __future__ import annotations

from typing import Any

from understudy.errors import ExchangeError

__all__ = ["Refused"]


class Refused(ExchangeError):
    """The service will not do it; nothing was stored but, perhaps, a line of the audit log."""

    def __init__(self, status: int, expected: str, found: str, do: str, wait: int = 0) -> None:
        super().__init__(expected, found, do)
        self.status, self.wait = status, wait

    @property
    def body(self) -> dict[str, Any]:
        """As it travels."""
        return {"error": {"expected": self.expected, "found": self.found, "do": self.do}}
