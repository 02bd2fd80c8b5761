"""Rows in and out: the public schema, readers, encoding, splits into sites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.lazy import load_on_use

if TYPE_CHECKING:
    from understudy.data.bundled import bundled, holdout
    from understudy.data.check import Finding, check
    from understudy.data.draft import draft
    from understudy.data.encode import Block, Encoded, blocks, decode, encode
    from understudy.data.records import Records
    from understudy.data.schema import Column, Schema
    from understudy.data.shards import Shards
    from understudy.data.split import split
    from understudy.data.table import from_frame, read, write

__all__ = [
    "Block",
    "Column",
    "Encoded",
    "Finding",
    "Records",
    "Schema",
    "Shards",
    "blocks",
    "bundled",
    "check",
    "decode",
    "draft",
    "encode",
    "from_frame",
    "holdout",
    "read",
    "split",
    "write",
]
_NAMES = {
    "bundled": "bundled holdout",
    "check": "Finding check",
    "draft": "draft",
    "encode": "Block Encoded blocks decode encode",
    "records": "Records",
    "schema": "Column Schema",
    "shards": "Shards",
    "split": "split",
    "table": "from_frame read write",
}

load_on_use(
    __name__,
    {name: f"{__name__}.{home}" for home, names in _NAMES.items() for name in names.split()},
)
