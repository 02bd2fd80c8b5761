"""Public descriptions of nets as plain JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

from understudy.errors import ReleaseError

__all__ = ["Described"]

T = TypeVar("T", bound="Described")


class Described:
    """A net's description: a dataclass of plain values, so that it travels as JSON."""

    thing: ClassVar[str] = "a net"

    def to_config(self) -> dict[str, Any]:
        """Plain JSON values."""
        fields: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}

    @classmethod
    def from_config(cls: type[T], described: Mapping[str, Any]) -> T:
        """The inverse of ``to_config``; what is not such a description is refused."""
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in described.items()}
        try:
            return cls(**plain)
        except TypeError as error:
            wanted = f"the description of {cls.thing}"
            raise ReleaseError(wanted, "another", "update Understudy") from error
