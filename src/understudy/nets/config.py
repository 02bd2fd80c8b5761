"""Public descriptions of nets as plain JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from understudy.errors import ReleaseError

__all__ = ["from_config", "to_config"]

T = TypeVar("T")


def to_config(spec: Any) -> dict[str, Any]:
    """Plain JSON values of a description, which is a dataclass."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(spec).items()}


def from_config(kind: type[T], config: Mapping[str, Any], what: str) -> T:
    """The inverse of `to_config`; what is not such a description is refused."""
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}
    try:
        return kind(**plain)
    except TypeError as error:
        raise ReleaseError(f"the description of {what}", "another", "update Understudy") from error
