"""Copies of this process, one for each core, that answer for a few sites at a time.

Nets of sites are small: threads would wait for the interpreter, so chunks of a cohort go to forks.
A fork shares the rows with its parent and draws its own noise (`rng`: system entropy is asked for
anew, seeded streams belong to the sites). It keeps nothing: what it needs of a round comes
with each question. It ends with its parent, however that ends.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar
from warnings import catch_warnings, simplefilter
from weakref import finalize

import torch
from torch import Tensor

from understudy.errors import UnderstudyError

__all__ = ["Forks", "cores"]

_Process = get_context("fork").Process
_DIE_WITH_PARENT = 1  # prctl's PR_SET_PDEATHSIG
Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """How many forks are worth having: torch's threads, and one where forks are not safe."""
    return torch.get_num_threads() if sys.platform == "linux" else 1


class Forks(Generic[Item, Result]):
    """So many processes that do one kind of work. They are made when this is."""

    def __init__(self, work: Callable[[Item], Result], number: int) -> None:
        self._ends: list[Connection] = []
        made = []
        for _ in range(number):
            here, there = Pipe()
            self._ends.append(here)
            made.append(_Process(target=_serve, args=(work, there), daemon=True))
            with catch_warnings():  # Python 3.12 warns of threads: forks use none of their parent's
                simplefilter("ignore", DeprecationWarning)
                made[-1].start()
            there.close()  # before the next fork could hold it open
        self.close = finalize(self, _end, made)

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        """Results in order. A fork is given its next item when its last result was taken."""
        waiting, busy = iter(items), deque[Connection]()
        for end, item in zip(self._ends, islice(waiting, len(self._ends)), strict=False):
            _send(end, item)
            busy.append(end)
        while busy:
            end = busy.popleft()
            made = _received(end)
            for item in islice(waiting, 1):
                _send(end, item)
                busy.append(end)
            yield made


def _end(processes: Sequence[BaseProcess]) -> None:
    """They keep nothing that would have to be put in order first."""
    for process in processes:
        process.kill()
        process.join()


def _serve(work: Callable[[Any], Any], line: Connection) -> None:
    """Answer until it is ended, if only because its parent was."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    torch.set_num_threads(1)
    while True:
        item = pickle.loads(line.recv_bytes())
        made: tuple[Any, Exception | None]
        try:
            made = (work(item), None)
        except Exception as error:
            made = (None, error)
        line.send_bytes(_packed(made))


def _received(end: Connection) -> Any:
    try:
        made, error = pickle.loads(end.recv_bytes())
    except (EOFError, OSError) as lost:
        raise UnderstudyError(
            "every process of this run to go on",
            "one that was ended from outside, perhaps for want of memory",
            "use fewer (--workers), then --resume",
        ) from lost
    if error is not None:
        raise error
    return made


def _send(end: Connection, item: object) -> None:
    with suppress(OSError):  # a fork that is gone is noticed when its result is asked for
        end.send_bytes(_packed(item))


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Tensors as arrays: torch would send a file of shared memory for each."""
        if isinstance(value, Tensor):
            return _tensor, (value.detach().numpy(),)
        return NotImplemented


def _tensor(array: Any) -> Tensor:
    """A copy, aligned as torch aligns."""
    return torch.from_numpy(array).clone()


def _packed(value: object) -> bytes:
    out = io.BytesIO()
    _Pickler(out, pickle.HIGHEST_PROTOCOL).dump(value)
    return out.getvalue()
