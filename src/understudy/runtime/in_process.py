"""All sites in this process, a few chunks of the cohort at a time.

Memory stays flat in the number of sites: a chunk is trained, sealed, handed to the server's sum
and forgotten. As many chunks as torch has threads are worked on at once, each on one of them, and
are handed on in order. The size of a chunk and the number of threads change speed and memory,
never the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from understudy.federation.gather import Reply
from understudy.federation.recipe import Task
from understudy.federation.sites import Sites
from understudy.nets.stacked import equal_chunks, in_threads

__all__ = ["InProcess"]

_CHUNK_BYTES = 128 << 20
_WORKING_COPIES = 8  # parameters, gradients, two moments, memory in and out, update, slack
_WORTH = 2**22  # numbers of a chunk: with fewer, threads spend their time waiting for Python


@dataclass
class InProcess:
    """The in-process runtime."""

    sites: Sites
    chunk: int | None = None

    ran: ClassVar[str] = "one process"

    def exchange(self, task: Task, round: int, cohort: np.ndarray) -> Iterator[Reply]:
        """Answers of the cohort, in stacks."""
        joined = self.sites.join(cohort, round)
        size = self.chunk or self._chunk(task, round, len(joined))
        chunks = [joined[start : start + size] for start in range(0, len(joined), size)]
        answer = partial(self.sites.answer, task, round)
        answers = in_threads(answer, chunks) if len(chunks) > 1 else map(answer, chunks)
        for clients, (sealed, kept) in zip(chunks, answers, strict=True):
            self.sites.memory.scatter(clients, kept)
            yield self.sites.ids[clients], sealed

    def _chunk(self, task: Task, round: int, sites: int) -> int:
        """As many sites as keep the working set within bounds; what all share is held once.

        Equal chunks, a multiple of the threads if that is worth it.
        """
        stacked = (v for v in task.arrays.values() if v.ndim < 2 or len(v) == 1)
        floats = sum(value.numel() for value in stacked)
        parts = self.sites.recipe.plan.at(round).parts
        floats += sum(int(np.prod(part.shape)) for part in parts)
        threads = torch.get_num_threads()
        most = _CHUNK_BYTES // (threads * 4 * _WORKING_COPIES * max(floats, 1))
        least = max(_WORTH // max(floats, 1), 1)
        return equal_chunks(sites, min(max(most, 1), 1024), least)

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
