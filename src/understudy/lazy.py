"""Public names that load on first use, so that ``understudy --help`` does not wait for PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["load_on_use"]


class _Package(ModuleType):
    """A package whose public names are imported when they are first asked for.

    Importing ``package.run`` makes Python set the attribute ``run`` to that module; a public
    function of the same name keeps its place.
    """

    homes: Mapping[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self.homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(import_module(self.homes[name]), name)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in self.homes and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.homes})


def load_on_use(package: str, homes: Mapping[str, str]) -> None:
    """Give ``package`` these names, each from the module that defines it."""
    module = sys.modules[package]
    module.__dict__["homes"] = homes
    module.__class__ = _Package
