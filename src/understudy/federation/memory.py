"""What sites keep between rounds (encoders, optimiser state), for many simulated sites.

One row of float32 per site, in memory or, given a folder, in a sparse file that is read
and written a cohort at a time: resident memory does not grow with the number of sites.
Rows are touched by ``pread``/``pwrite`` in a loop over the cohort, since a memory map would
count every visited page as resident.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from understudy.errors import OutputError

__all__ = ["Memories", "SiteMemory"]

Initial = Callable[[str], dict[str, Tensor]]


class SiteMemory:
    """Named tensors for each site, which start from what ``initial`` gives for its name."""

    def __init__(self, initial: Initial, names: Sequence[str], folder: Path | None = None) -> None:
        self._initial, self._names = initial, names
        first = initial(names[0])
        self._shapes = {name: tuple(value.shape) for name, value in first.items()}
        self._size = 4 * sum(value.numel() for value in first.values())
        self.touched = np.zeros(len(names), bool)
        self._rows: dict[int, np.ndarray] = {}
        self._file = -1
        if folder is not None and first:
            self._file = os.open(folder / "memory.bin", os.O_RDWR | os.O_CREAT, 0o600)

    def gather(self, clients: np.ndarray) -> dict[str, Tensor]:
        """The memory of these sites, stacked ``[C, …]``."""
        if not self._shapes:
            return {}
        rows = np.stack([self._read(int(c)) for c in clients])
        return self._unflatten(torch.from_numpy(rows))

    def scatter(self, clients: np.ndarray, memory: dict[str, Tensor]) -> None:
        if not self._shapes:
            return
        rows = _flatten({name: memory[name] for name in self._shapes})
        for client, row in zip(clients.tolist(), rows, strict=True):
            self._write(client, row)
        self.touched[clients] = True

    def _read(self, client: int) -> np.ndarray:
        if not self.touched[client]:
            fresh = self._initial(self._names[client])
            return _flatten({name: fresh[name][None] for name in self._shapes})[0]
        if self._file < 0:
            return self._rows[client]
        data = os.pread(self._file, self._size, client * self._size)
        return np.frombuffer(data, np.float32)

    def _write(self, client: int, row: np.ndarray) -> None:
        if self._file < 0:
            self._rows[client] = row.copy()
            return
        try:
            if os.pwrite(self._file, row.tobytes(), client * row.nbytes) < row.nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise OutputError(
                "room on disk for the sites' memory",
                str(error.strerror),
                "free space, then --resume",
            ) from error

    def _unflatten(self, rows: Tensor) -> dict[str, Tensor]:
        sizes = [int(np.prod(shape, dtype=np.int64)) for shape in self._shapes.values()]
        pieces = torch.split(rows, sizes, dim=1)
        return {
            name: piece.reshape(len(rows), *shape)
            for (name, shape), piece in zip(self._shapes.items(), pieces, strict=True)
        }

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Memories:
    """The memory of parties: each keeps tensors of its own shapes, and is asked for alone."""

    def __init__(self, initial: Initial, names: Sequence[str], folder: Path | None = None) -> None:
        self.touched = np.zeros(len(names), bool)
        self._each = [SiteMemory(initial, [name], _own(folder, i)) for i, name in enumerate(names)]
        for i, memory in enumerate(self._each):
            memory.touched = self.touched[i : i + 1]

    def gather(self, clients: np.ndarray) -> dict[str, Tensor]:
        (client,) = clients.tolist()
        return self._each[client].gather(_ALONE)

    def scatter(self, clients: np.ndarray, memory: dict[str, Tensor]) -> None:
        (client,) = clients.tolist()
        self._each[client].scatter(_ALONE, memory)

    def close(self) -> None:
        for memory in self._each:
            memory.close()


_ALONE = np.array([0])


def _own(folder: Path | None, party: int) -> Path | None:
    """A folder for one party's file."""
    if folder is None:
        return None
    (folder / f"party-{party}").mkdir(exist_ok=True)
    return folder / f"party-{party}"


def _flatten(memory: dict[str, Tensor]) -> np.ndarray:
    if not memory:
        return np.zeros((1, 0), np.float32)
    rows = [value.detach().float().reshape(len(value), -1) for value in memory.values()]
    return torch.cat(rows, dim=1).numpy()
