"""Verifiers that misbehave, as code that reads hostile bytes might."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def for_ever(path: Path) -> Any:
    while True:
        time.sleep(0.1)


def hungry(path: Path) -> Any:
    return [bytearray(64 << 20) for _ in range(1000)]


def crashing(path: Path) -> Any:
    os.abort()


def filling(path: Path) -> Any:
    with (path.parent / "junk").open("wb") as file:
        for _ in range(1000):
            file.write(bytes(1 << 20))
