"""Solved noise on disk, so that `plan` and `run` of one study search for it once; and prices.

The noise that is kept is a hint, never an answer: whoever reads it prices it anew and searches if
it does not fit, so no file can lower the noise below what keeps ε. It is used within `on_disk`
alone: `verify` rebuilds a plan without it, and refuses a release whose noise is not the searched
one. So a file that was altered by a little, to more noise, wastes a run. Prices are read by `plan`
alone, which only shows them: what is run or claimed is priced anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from understudy.version import __version__

__all__ = ["kept", "on_disk", "priced"]

_USED = ContextVar("used", default=False)
_PRICES = ContextVar("prices", default=False)
_SOLVERS = ("dp-accounting", "numpy", "scipy")


@contextmanager
def on_disk(prices: bool = False) -> Iterator[None]:
    """Look for hints, or prices too, in the user's cache folder, and leave some there."""
    tokens = _USED.set(True), _PRICES.set(prices)
    try:
        yield
    finally:
        _USED.reset(tokens[0])
        _PRICES.reset(tokens[1])


def kept(problem: object, fits: Callable[[float], bool], solve: Callable[[], float]) -> float:
    """The hint for a problem if it fits, else the solution, which is the next hint."""
    if not _USED.get():
        return solve()
    path = _path(problem)
    if (hint := _read(path)) is not None and fits(hint):
        return hint
    found = solve()
    _write(path, found)
    return found


def priced(problem: object, find: Callable[[], float]) -> float:
    """What was found before, where that may be believed, or is found now."""
    if not _PRICES.get():
        return find()
    path = _path(problem)
    if (known := _read(path)) is not None:
        return known
    found = find()
    _write(path, found)
    return found


def _path(problem: object) -> Path:
    """A file by the problem, and the machine and versions that would solve it."""
    versions = [importlib.metadata.version(name) for name in _SOLVERS]
    name = repr((problem, __version__, versions, platform.node()))
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder, "understudy", "noise", hashlib.sha256(name.encode()).hexdigest())


def _read(path: Path) -> float | None:
    """A positive number; None for anything else."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, float) and 0 < found < 1e6 else None
    return None


def _write(path: Path, found: float) -> None:
    """In one move. A folder that cannot be written leaves no hint."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(json.dumps(found), encoding="utf-8")
        os.replace(fresh, path)
