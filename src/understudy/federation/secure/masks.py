"""Masks: AES-256 keystreams that are added to whole numbers modulo a power of two.

Every key has full entropy (X25519, then HKDF-SHA256) and serves one pair of sites, or one site, in
one round of one run. Numbers travel in the smallest words that hold the modulus of every part;
keystream is made and added a block at a time, within the processor's cache.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import Tensor

from understudy.errors import PrivacyError

__all__ = ["Layout", "add_mask", "derive"]

_BLOCK = 1 << 17  # bytes of keystream at a time
_ZEROS = memoryview(bytes(_BLOCK))
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def derive(secret: bytes, place: bytes, purpose: str, *clients: int) -> bytes:
    """A 32-byte key for one purpose of these sites in one place.

    HKDF-SHA256 for a single block is these two calls; a test compares it with `cryptography`,
    whose own takes twenty times as long.
    """
    info = purpose.encode() + b"".join(client.to_bytes(4, "big") for client in clients)
    return hmac.digest(hmac.digest(place, secret, "sha256"), info + b"\1", "sha256")


def add_mask(total: np.ndarray, key: bytes, sign: int = 1) -> None:
    """Add (or subtract) the keystream of ``key`` to words ``[n]``, in place, with wrap-around."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    made = bytearray(min(_BLOCK, total.nbytes) + 16)
    step = _BLOCK // total.itemsize
    for start in range(0, len(total), step):
        part = total[start : start + step]
        cipher.update_into(_ZEROS[: part.nbytes], made)
        stream = np.frombuffer(made, total.dtype, len(part))
        (np.add if sign > 0 else np.subtract)(part, stream, out=part)


@dataclass(frozen=True)
class Layout:
    """The parts of an update in one row of words: name, shape and bits of the modulus of each."""

    parts: tuple[tuple[str, tuple[int, ...], int], ...]

    def __post_init__(self) -> None:
        if not self.parts or not all(1 <= bits <= 62 for _, _, bits in self.parts):
            raise PrivacyError("moduli of 1 to 62 bits", "another", "fix the plan")

    @cached_property
    def word(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every modulus."""
        most = max(bits for _, _, bits in self.parts)
        return np.dtype(next(kind for size, kind in _WORDS.items() if 8 * size >= most))

    @cached_property
    def size(self) -> int:
        """Numbers in all."""
        return sum(math.prod(shape) for _, shape, _ in self.parts)

    def row(self, values: Mapping[str, Tensor]) -> np.ndarray:
        """The numbers of one site, int64 ``[1, …]`` by part, as words; refuses what does not fit.

        Fitting is all that can be checked of a masked number: whole, and below the modulus.
        """
        if set(values) != {name for name, _, _ in self.parts}:
            raise _unfit("the planned parts", "others")
        return np.concatenate([self._words(values[name], s, b) for name, s, b in self.parts])

    def _words(self, value: Tensor, shape: tuple[int, ...], bits: int) -> np.ndarray:
        if value.dtype != torch.int64 or tuple(value.shape) != (1, *shape):
            raise _unfit(f"whole numbers {(1, *shape)}", f"{value.dtype} {tuple(value.shape)}")
        numbers = value.numpy().reshape(-1)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >> bits):
            raise _unfit(f"numbers of {bits} bits", "others")
        return numbers.astype(self.word)

    def split(self, row: np.ndarray) -> dict[str, Tensor]:
        """Words as int64 ``[1, …]`` by part, each modulo its own power of two."""
        ends = np.cumsum([math.prod(shape) for _, shape, _ in self.parts])[:-1]
        return {
            name: torch.from_numpy(part.astype(np.int64) & ((1 << bits) - 1)).view(1, *shape)
            for (name, shape, bits), part in zip(self.parts, np.split(row, ends), strict=True)
        }


def _unfit(expected: str, found: str) -> PrivacyError:
    return PrivacyError(expected, found, "fix the mechanism; nothing is added up")
