"""What each split makes the site of a row depend on, without loading the code that splits.

A claim about a record or a person compares two tables that differ by it, with every other row at
the same site. That holds where the site of a row follows from the row itself and from its place
in the file. It fails where removing one row moves others, as in k-means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from understudy.data.schema import Schema

__all__ = ["Follows", "SplitName", "follows"]

SplitName = Literal[
    "uniform",
    "kmeans",
    "geometric",
    "dirichlet",
    "classes",
    "column",
    "blocks",
    "person",
    "pooled",
    "columns",
]
Follows = Literal["row", "person", "table"]
"""What decides on the site of a row: the row, all rows of its person, or the whole table."""


def follows(schema: Schema, split: SplitName, options: Mapping[str, Any]) -> Follows:
    """What the site of a row depends on."""
    if split in ("kmeans", "blocks", "person"):
        return "table"
    if split == "column":
        return "row" if _is_declared(schema, options.get("column")) else "table"
    if split in ("dirichlet", "classes") and schema.person is not None:
        return "person"  # all go where the label of the first one sends it
    return "row"


def _is_declared(schema: Schema, name: object) -> bool:
    """Whether the values of a column are listed in the schema, so that their order is public."""
    listed = {c.name for c in schema.columns if c.kind in ("categorical", "boolean")}
    if schema.task == "regression":
        return name in listed
    return name in listed or (name is not None and name == schema.label)
