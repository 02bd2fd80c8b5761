"""Randomness, kept apart by purpose.

Two roots, never mixed:

* `Streams`: named, reproducible generators for initial weights, batch order and
  sampling. They influence utility, never privacy.
* `NoiseSource`: what privacy rests on (noise, secret cohorts). It draws from the
  operating system; `NoiseSource.seeded` exists for tests and simulation and marks
  every claim it touches as such. A noise source cannot be copied, saved or sent.

Both give `Draws` to a stack of sites: every site draws from a stream of its own, so its
numbers depend neither on the other sites nor on how a cohort is cut into stacks.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.random.bit_generator import ISeedSequence

from understudy.errors import PrivacyError

__all__ = ["Draws", "NoiseSource", "Streams"]

Counts = Sequence[int] | np.ndarray
_RUN = 1 << 15  # numbers


class Draws(ABC):
    """Random numbers for a stack of C sites, each from its own stream.

    Methods that end in ``_each`` take a count per site and return the numbers site after
    site. What a site draws depends on its own earlier draws only.
    """

    is_simulation: bool  # whether the numbers can be repeated by whoever knows the seed

    @abstractmethod
    def __len__(self) -> int:
        """How many sites draw."""

    @abstractmethod
    def words_each(self, counts: Counts) -> np.ndarray:
        """64-bit words, ``counts[c]`` of them for site c."""

    @abstractmethod
    def child(self, name: str, *index: int) -> Draws:
        """Streams of the same sites for another purpose."""

    @abstractmethod
    def take(self, members: Iterable[int]) -> Draws:
        """The streams of some of the sites."""

    @abstractmethod
    def split(self, parts: int) -> Draws:
        """``parts`` streams for every site, site after site: C·parts of them."""

    @abstractmethod
    def generator(self, site: int) -> np.random.Generator:
        """A fast generator for what need not be secret, e.g. how ties are broken."""

    def check(self, sites: int) -> None:
        """Refuse another number of sites: two that shared a draw could be told apart by it."""
        if len(self) != sites:
            raise PrivacyError(
                f"a random stream for each of {sites} site(s)", f"{len(self)}", "fix the recipe"
            )

    def words(self, n: int) -> np.ndarray:
        """``[C, n]`` words."""
        return self.words_each(np.full(len(self), n)).reshape(len(self), n)

    def uniform_each(self, counts: Counts) -> np.ndarray:
        """Doubles in (0, 1), never 0 or 1."""
        # 52 bits: with 53 the half would be rounded away at the top, to exactly 1.
        u = (self.words_each(counts) >> np.uint64(12)).astype(np.float64)
        u += 0.5
        u *= 2.0**-52
        return u

    def uniform(self, n: int) -> np.ndarray:
        """``[C, n]`` doubles in (0, 1)."""
        return self.uniform_each(np.full(len(self), n)).reshape(len(self), n)

    def coins_each(self, counts: Counts, rate: float) -> np.ndarray:
        """Independent coin flips, true with probability ``rate``."""
        return self.uniform_each(counts) < rate

    def coins(self, n: int, rate: float) -> np.ndarray:
        """``[C, n]`` independent coin flips."""
        return self.uniform(n) < rate

    @abstractmethod
    def normal_each(self, counts: Counts) -> np.ndarray:
        """Standard normal doubles."""

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """``[C, *shape]`` standard normal doubles."""
        each = int(np.prod(shape, dtype=np.int64))
        return self.normal_each(np.full(len(self), each)).reshape(len(self), *shape)

    def __reduce__(self) -> str:
        raise TypeError("random draws are never copied, saved or sent")


class _Stream:
    """A key of 256 bits and, from the first draw on, its generator."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    @cached_property
    def generator(self) -> np.random.Generator:
        return _generator(self.key)


class _Seeded(Draws):
    """Streams that follow from keys."""

    is_simulation = True

    def __init__(self, streams: list[_Stream]) -> None:
        self._streams = streams

    @classmethod
    def of(cls, keys: Iterable[bytes]) -> _Seeded:
        return cls([_Stream(key) for key in keys])

    def __len__(self) -> int:
        return len(self._streams)

    def words_each(self, counts: Counts) -> np.ndarray:
        drawn = [
            stream.generator.bit_generator.random_raw(int(n))
            for stream, n in zip(self._streams, counts, strict=True)
        ]
        return np.concatenate([np.empty(0, np.uint64), *drawn])

    def normal_each(self, counts: Counts) -> np.ndarray:
        drawn = [
            stream.generator.standard_normal(int(n))
            for stream, n in zip(self._streams, counts, strict=True)
        ]
        return np.concatenate([np.empty(0), *drawn])

    def child(self, name: str, *index: int) -> Draws:
        return _Seeded.of(_key(stream.key, name, index) for stream in self._streams)

    def take(self, members: Iterable[int]) -> Draws:
        return _Seeded([self._streams[member] for member in members])

    def split(self, parts: int) -> Draws:
        if parts == 1:
            return self
        return _Seeded.of(_key(s.key, "part", (i,)) for s in self._streams for i in range(parts))

    def generator(self, site: int) -> np.random.Generator:
        return self._streams[site].generator


class _System(Draws):
    """Operating-system entropy: every call keys a fresh ChaCha20 stream for the whole stack.

    So a forked process cannot repeat its parent's numbers. The key is fresh, so the block
    counter and the nonce start at zero.
    """

    is_simulation = False

    def __init__(self, sites: int) -> None:
        self._sites = sites

    def __len__(self) -> int:
        return self._sites

    def words_each(self, counts: Counts) -> np.ndarray:
        cipher = Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None)
        return np.frombuffer(cipher.encryptor().update(bytes(8 * int(np.sum(counts)))), np.uint64)

    def normal_each(self, counts: Counts) -> np.ndarray:
        """In runs that fit the cache."""
        n = int(np.sum(counts))
        runs = [self._normal(min(_RUN, n - start)) for start in range(0, n, _RUN)]
        return np.concatenate([np.empty(0), *runs])

    def _normal(self, n: int) -> np.ndarray:
        """Box–Muller; torch's sines take a third of the time of NumPy's."""
        half = (n + 1) // 2
        u = self.uniform_each([2 * half])
        radius = torch.from_numpy(np.sqrt(-2 * np.log(u[:half])))
        angle = torch.from_numpy(2 * np.pi * u[half:])
        return torch.cat((angle.cos().mul_(radius), angle.sin().mul_(radius))).numpy()[:n]

    def generator(self, site: int) -> np.random.Generator:
        """A fresh one: how much one site or part drew from it must show in no other's numbers."""
        return _generator(os.urandom(32))

    def child(self, name: str, *index: int) -> Draws:
        return _System(self._sites)

    def take(self, members: Iterable[int]) -> Draws:
        return _System(len(list(members)))

    def split(self, parts: int) -> Draws:
        return _System(self._sites * parts)


class _Agreed(_System):
    """One stream that several parties hold: ChaCha20 under a secret that they share."""

    def __init__(self, key: bytes) -> None:
        super().__init__(1)
        self._key = key
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words_each(self, counts: Counts) -> np.ndarray:
        return np.frombuffer(self._stream.update(bytes(8 * int(np.sum(counts)))), np.uint64)

    def child(self, name: str, *index: int) -> Draws:
        return _Agreed(_key(self._key, name, index))

    def take(self, members: Iterable[int]) -> Draws:
        raise TypeError("what parties draw together is one stream")

    def split(self, parts: int) -> Draws:
        raise TypeError("what parties draw together is one stream")

    def generator(self, site: int) -> np.random.Generator:
        raise TypeError("what parties draw together is one stream")


class _Key(ISeedSequence):
    """Hands a key to a bit generator as it is: a hash has been mixed enough."""

    def __init__(self, key: bytes) -> None:
        self._words = np.frombuffer(key, np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self._words.view(dtype)[:n_words]


def _generator(key: bytes) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(_Key(key)))  # type: ignore[arg-type]


def _key(root: bytes, name: str, index: Iterable[int]) -> bytes:
    plain = tuple(int(i) for i in index)  # NumPy's integers print differently
    return hashlib.sha256(root + repr((name, plain)).encode()).digest()


@dataclass(frozen=True)
class Streams:
    """Named random streams that all derive from one root."""

    root: bytes

    @classmethod
    def from_seed(cls, seed: int | None) -> Streams:
        """Reproducible streams for a seed; fresh ones from the system without."""
        if seed is None:
            return cls(os.urandom(32))
        return cls(hashlib.sha256(f"understudy {seed}".encode()).digest())

    def numpy(self, name: str, *index: int) -> np.random.Generator:
        """A NumPy generator for this purpose (and round, site, …)."""
        return np.random.default_rng(int.from_bytes(_key(self.root, name, index), "big"))

    def torch(self, name: str, *index: int) -> torch.Generator:
        """A torch generator for this purpose (and round, site, …)."""
        seed = int.from_bytes(_key(self.root, name, index)[:8], "big") >> 1
        return torch.Generator().manual_seed(seed)

    def child(self, name: str, *index: int) -> Streams:
        """Streams of their own for a part of the work."""
        return Streams(_key(self.root, name, index))

    def sites(self, name: str, round: int, clients: Iterable[int]) -> Draws:
        """A stream for each of these sites in this round."""
        return _Seeded.of(_key(self.root, name, (round, client)) for client in clients)

    def draws(self, name: str, *index: int) -> Draws:
        """A single stream."""
        return _Seeded.of([_key(self.root, name, index)])


class NoiseSource:
    """Where noise and secret coin flips come from."""

    def __init__(self, *, _streams: Streams | None = None, _agreed: bytes | None = None) -> None:
        self._streams, self._agreed = _streams, _agreed

    @classmethod
    def system(cls, agreed: bytes | None = None) -> NoiseSource:
        """The source for real releases; ``agreed``: 32 secret bytes that parties have in common."""
        return cls(_agreed=agreed)

    @classmethod
    def seeded(cls, streams: Streams) -> NoiseSource:
        """A repeatable source: claims that rest on it say "simulation"."""
        return cls(_streams=streams.child("noise"))

    @property
    def is_simulation(self) -> bool:
        """Whether the noise can be repeated by whoever knows the seed."""
        return self._streams is not None

    @property
    def name(self) -> str:
        """As receipts and claims have it."""
        return "simulation" if self.is_simulation else "os"

    def sites(self, round: int, clients: Sequence[int] | np.ndarray) -> Draws:
        """What these sites draw in this round."""
        if self._streams is None:
            return _System(len(clients))
        return self._streams.sites("site", round, clients)

    def together(self, round: int) -> Draws:
        """What parties that hold columns draw alike in this round, and no server knows."""
        if self._streams is not None:
            return self._streams.draws("together", round)
        if self._agreed is None:
            raise PrivacyError(
                "a secret that the parties share and the server does not know",
                "none",
                "run the parties in one process: batches drawn apart would break the claim",
            )
        return _Agreed(_key(self._agreed, "together", (round,)))

    def server(self, purpose: str, round: int) -> Draws:
        """What the server draws in this round: the coins of a cohort, noise on a sum."""
        if self._streams is None:
            return _System(1)
        return self._streams.draws(f"server {purpose}", round)

    def __reduce__(self) -> str:
        raise TypeError("a noise source is never copied, saved or sent")
