"""Rows in and out: the public schema, readers, encoding, splits into sites."""

from __future__ import annotations

from understudy.data.encode import Block, Encoded, blocks, decode, encode
from understudy.data.schema import Column, Schema
from understudy.data.shards import Shards
from understudy.data.table import Records, from_frame, read, write

__all__ = [
    "Block",
    "Column",
    "Encoded",
    "Records",
    "Schema",
    "Shards",
    "blocks",
    "decode",
    "encode",
    "from_frame",
    "read",
    "write",
]
