"""All sites in this process, a few chunks of the cohort at a time.

Memory stays flat in the number of sites: a chunk is trained, sealed, handed to the server's sum
and forgotten. With several workers as many chunks are worked on at once, each by a fork of this
process, and are handed on in order. The size of a chunk and the number of workers change speed and
memory, never the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.federation.gather import Reply
from understudy.federation.recipe import State, Task
from understudy.federation.sites import Sites
from understudy.nets.stacked import equal_chunks
from understudy.privacy.clip import Sealed
from understudy.runtime.forks import Forks

__all__ = ["InProcess"]

_CHUNK_BYTES = 128 << 20
_WORKING_COPIES = 8  # parameters, gradients, two moments, memory in and out, update, slack
_WORTH = 2**16  # numbers of a chunk: with fewer, another process is not worth the asking

Asked = tuple[Task, int, np.ndarray, State]  # of a fork: what it needs to answer for some sites
Answer = tuple[Sealed, State]


@dataclass
class InProcess:
    """The in-process runtime."""

    sites: Sites
    chunk: int | None = None
    workers: int = 1
    _forks: Forks[Asked, Answer] | None = field(default=None, repr=False)

    ran: ClassVar[str] = "one process"

    def exchange(self, task: Task, round: int, cohort: np.ndarray) -> Iterator[Reply]:
        """Answers of the cohort, in stacks."""
        joined = self.sites.join(cohort, round)
        size = self.chunk or self._chunk(task, round, len(joined))
        chunks = [joined[start : start + size] for start in range(0, len(joined), size)]
        for clients, (sealed, kept) in zip(chunks, self._answers(task, round, chunks), strict=True):
            self.sites.memory.scatter(clients, kept)
            yield self.sites.ids[clients], sealed

    def _answers(self, task: Task, round: int, chunks: list[np.ndarray]) -> Iterator[Answer]:
        """Of every chunk, in order."""
        if self.workers == 1 or len(chunks) <= 1:
            yield from (self.sites.answer(task, round, clients) for clients in chunks)
            return
        if self._forks is None:
            self._forks = Forks(lambda asked: self.sites.answer(*asked), self.workers)
        gather = self.sites.memory.gather
        yield from self._forks.map((task, round, clients, gather(clients)) for clients in chunks)

    def close(self) -> None:
        """End the forks, if there are any."""
        if self._forks is not None:
            self._forks.close()
            self._forks = None

    def _chunk(self, task: Task, round: int, sites: int) -> int:
        """As many sites as keep the working set within bounds; what all share is held once.

        Equal chunks, a multiple of the workers if that is worth it.
        """
        stacked = (v for v in task.arrays.values() if v.ndim < 2 or len(v) == 1)
        floats = sum(value.numel() for value in stacked)
        parts = self.sites.recipe.plan.at(round).parts
        floats += sum(int(np.prod(part.shape)) for part in parts)
        most = _CHUNK_BYTES // (self.workers * 4 * _WORKING_COPIES * max(floats, 1))
        least = max(_WORTH // max(floats, 1), 1)
        return equal_chunks(sites, min(max(most, 1), 1024), least, self.workers)

    def count_void(self, cohort: np.ndarray, round: int) -> None:
        """A charged round that never finished counts as joined."""
        self.sites.join(cohort, round)

    def save(self) -> dict[str, Tensor]:
        """Allowances left, and which sites have memory."""
        return {
            "allowance": torch.from_numpy(self.sites.allowance.copy()),
            "touched": torch.from_numpy(self.sites.memory.touched.copy()),
        }

    def restore(self, saved: dict[str, Tensor]) -> None:
        """Inverse of `save`."""
        self.sites.allowance[:] = saved["allowance"].numpy()
        self.sites.memory.touched[:] = saved["touched"].numpy()
