"""Understudy: one synthetic dataset from data owners who may not share rows.

The way through the package::

    study = Study.load("study.toml")          # what the parties agree on
    release = run(study, out="release")       # all sites in this process
    rows = release.sample(1000)               # any number of rows, at no privacy cost; or,
    said = release.predict(asked)             # if it holds a classifier, the class of each row
    verify("release")                         # recompute the claim
    evaluate(release, "real.csv", "report")   # compare with real rows
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from understudy.version import __version__

if TYPE_CHECKING:
    from understudy.data.records import Records
    from understudy.data.schema import Schema
    from understudy.errors import UnderstudyError
    from understudy.evaluation.compare import evaluate
    from understudy.release import Release
    from understudy.simulation import run, verify
    from understudy.study import Study

__all__ = [
    "Records",
    "Release",
    "Schema",
    "Study",
    "UnderstudyError",
    "__version__",
    "evaluate",
    "run",
    "verify",
]

_HOMES = {
    "Records": "understudy.data.records",
    "Release": "understudy.release.bundle",
    "Schema": "understudy.data.schema",
    "Study": "understudy.study",
    "UnderstudyError": "understudy.errors",
    "evaluate": "understudy.evaluation.compare",
    "run": "understudy.simulation",
    "verify": "understudy.simulation.verification",
}


def __getattr__(name: str) -> Any:
    """Public names load on first use: ``understudy --help`` does not wait for PyTorch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
