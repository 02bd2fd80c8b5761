"""Solved noise on disk, so that `plan` and `run` of one study search for it once.

What is kept is a hint, never an answer: whoever reads it prices it anew and searches if it does
not fit, so no file can lower the noise below what keeps ε. It is only used within `on_disk`:
`verify` rebuilds a plan without it, and refuses a release whose noise is not the searched one. So a
file that was altered by a little, to more noise, wastes a run.
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

__all__ = ["kept", "on_disk"]

_USED = ContextVar("used", default=False)
_SOLVERS = ("dp-accounting", "numpy", "scipy")


@contextmanager
def on_disk() -> Iterator[None]:
    """Look for hints, and leave some, in the user's cache folder."""
    token = _USED.set(True)
    try:
        yield
    finally:
        _USED.reset(token)


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
