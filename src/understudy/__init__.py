"""Understudy: one synthetic dataset from data owners who may not share rows.

The way through the package::

    study = Study.load("study.toml")          # what the parties agree on
    release = run(study, out="release")       # all sites in this process
    rows = release.sample(1000)               # any number of rows, at no privacy cost; or,
    said = release.predict(asked)             # if it holds a classifier, the class of each row
    verify("release")                         # recompute the claim
    evaluate(release, "real.csv", "report")   # compare with real rows
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understudy.data.records import Records
    from understudy.data.schema import Schema
    from understudy.errors import UnderstudyError
    from understudy.evaluation.compare import evaluate
    from understudy.release import Release
    from understudy.run import run, verify
    from understudy.study import Study

__version__ = "0.1.0"

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
    "run": "understudy.run",
    "verify": "understudy.run.verification",
}


class _Package(ModuleType):
    """Public names load on first use, so that ``understudy --help`` does not wait for PyTorch.

    Importing ``understudy.run`` makes Python set the attribute ``run`` to that module; the public
    function of the same name keeps its place.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *_HOMES})


sys.modules[__name__].__class__ = _Package
