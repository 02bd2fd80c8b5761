"""Understudy: one synthetic dataset from data owners who may not share rows.

The way through the package::

    study = Study.load("study.toml")          # what the parties agree on
    release = run(study, out="release")       # all sites in this process
    rows = release.sample(1000)               # any number of rows, at no privacy cost; or,
    said = release.predict(asked)             # if it holds a classifier, the class of each row
    verify("release")                         # recompute the claim
    evaluate(release, "real.csv", "report")   # compare with real rows
"""

from typing import TYPE_CHECKING

from understudy.lazy import load_on_use

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

load_on_use(
    __name__,
    {
        "Records": "understudy.data.records",
        "Release": "understudy.release.bundle",
        "Schema": "understudy.data.schema",
        "Study": "understudy.study",
        "UnderstudyError": "understudy.errors",
        "evaluate": "understudy.evaluation.compare",
        "run": "understudy.run",
        "verify": "understudy.run.verification",
    },
)
