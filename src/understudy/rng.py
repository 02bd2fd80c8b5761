"""Randomness, kept apart by purpose.

Two sources, never mixed:

* `Streams`: named, reproducible generators for initial weights, batch order and
  sampling. They influence utility, never privacy.
* `NoiseSource`: what privacy rests on (noise, secret cohorts). It draws from the
  operating system; `NoiseSource.seeded` exists for tests and simulation and marks
  every claim it touches as such. A noise source cannot be copied, saved or sent.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

__all__ = ["NoiseSource", "Streams"]


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

    def _key(self, name: str, index: tuple[int, ...]) -> bytes:
        plain = tuple(int(i) for i in index)  # NumPy's integers print differently
        return hashlib.sha256(self.root + repr((name, plain)).encode()).digest()

    def numpy(self, name: str, *index: int) -> np.random.Generator:
        """A NumPy generator for this purpose (and round, site, …)."""
        return np.random.default_rng(int.from_bytes(self._key(name, index), "big"))

    def torch(self, name: str, *index: int) -> torch.Generator:
        """A torch generator for this purpose (and round, site, …)."""
        seed = int.from_bytes(self._key(name, index)[:8], "big") >> 1
        return torch.Generator().manual_seed(seed)

    def child(self, name: str, *index: int) -> Streams:
        """Streams of their own for a part of the work."""
        return Streams(self._key(name, index))


class NoiseSource:
    """Gaussian noise and secret coin flips.

    The system source keys a fresh ChaCha20 stream with 256 bits of operating-system
    entropy for every call, so a forked process cannot repeat its parent's noise. The key
    is fresh, so the block counter and the nonce start at zero.
    """

    def __init__(self, *, _generator: np.random.Generator | None = None) -> None:
        self._generator = _generator

    @classmethod
    def system(cls) -> NoiseSource:
        """The source for real releases."""
        return cls()

    @classmethod
    def seeded(cls, streams: Streams) -> NoiseSource:
        """A repeatable source: claims that rest on it say "simulation"."""
        return cls(_generator=streams.numpy("noise"))

    @property
    def is_simulation(self) -> bool:
        """Whether the noise can be repeated by whoever knows the seed."""
        return self._generator is not None

    def uniform(self, n: int) -> np.ndarray:
        """``n`` doubles in (0, 1), never 0 or 1."""
        if self._generator is not None:
            words = self._generator.integers(0, 2**64, n, dtype=np.uint64)
        else:
            cipher = Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None)
            words = np.frombuffer(cipher.encryptor().update(bytes(8 * n)), np.uint64)
        # 52 bits: with 53 the half would be rounded away at the top, to exactly 1.
        return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal doubles (Box–Muller)."""
        n = int(np.prod(shape, dtype=np.int64))
        half = (n + 1) // 2
        u = self.uniform(2 * half)
        radius, angle = np.sqrt(-2 * np.log(u[:half])), 2 * np.pi * u[half:]
        pair = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        return pair[:n].reshape(shape)

    def coins(self, n: int, rate: float) -> np.ndarray:
        """``n`` independent coin flips, true with probability ``rate``."""
        return self.uniform(n) < rate

    def __reduce__(self) -> str:
        raise TypeError("a noise source is never copied, saved or sent")
