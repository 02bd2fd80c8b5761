"""Shamir's sharing of 32-byte secrets: any ``threshold`` shares give the secret, fewer nothing.

Over the field of 2²⁵⁵ − 19, with coefficients from the operating system; the holder of rank r
(from 0) has the polynomial at r + 1. Guarantee: any threshold − 1 shares are independent of the
secret. It breaks if shares of two polynomials are mixed, which is why what is recovered is checked
against what its owner announced.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod

import numpy as np

__all__ = ["SHARE", "fresh_secret", "recover", "split"]

SHARE = 32  # bytes
_PRIME = 2**255 - 19
_LIMBS, _FOLD = 16, 38  # of 16 bits each; 2²⁵⁶ is 38 modulo the prime


def fresh_secret() -> bytes:
    """A uniform element of the field, as bytes."""
    return secrets.randbelow(_PRIME).to_bytes(SHARE, "little")


def split(secret: bytes, threshold: int, holders: int) -> list[bytes]:
    """A share for each holder, by rank. All are evaluated at once, by Horner's rule on limbs."""
    terms = [secret, *(fresh_secret() for _ in range(threshold - 1))]
    limbs = np.frombuffer(b"".join(terms), "<u2").reshape(threshold, _LIMBS).astype(np.int64)
    points = np.arange(1, holders + 1)[:, None]
    values = np.zeros((holders, _LIMBS), np.int64)
    for term in limbs[::-1]:
        values = _carried(values * points + term)
    while values.max() >> 16:
        values = _carried(values)
    return [_canonical(row.tobytes()) for row in values.astype("<u2")]


def _carried(values: np.ndarray) -> np.ndarray:
    """The same numbers with smaller limbs; what overflows at the top comes back at the bottom."""
    carry = values >> 16
    values &= 0xFFFF
    values[:, 1:] += carry[:, :-1]
    values[:, 0] += _FOLD * carry[:, -1]
    return values


def _canonical(share: bytes) -> bytes:
    return (int.from_bytes(share, "little") % _PRIME).to_bytes(SHARE, "little")


def recover(ranks: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """The secret from exactly ``threshold`` shares of holders with these ranks."""
    weights = _weights(tuple(ranks))
    values = (int.from_bytes(share, "little") for share in shares)
    total = sum(w * v for w, v in zip(weights, values, strict=True)) % _PRIME
    return total.to_bytes(SHARE, "little")


@lru_cache(maxsize=256)
def _weights(ranks: tuple[int, ...]) -> tuple[int, ...]:
    """Lagrange's weights at 0: without drop-outs all secrets have the same."""
    points = [rank + 1 for rank in ranks]
    below = [x * prod(y - x for y in points if y != x) % _PRIME for x in points]
    return tuple(prod(points) * each % _PRIME for each in _inverses(below))


def _inverses(values: Sequence[int]) -> list[int]:
    """Of all, with one division."""
    before = list(accumulate(values, lambda a, b: a * b % _PRIME, initial=1))
    inverse, found = pow(before[-1], -1, _PRIME), []
    for value, product in zip(reversed(values), reversed(before[:-1]), strict=True):
        found.append(inverse * product % _PRIME)
        inverse = inverse * value % _PRIME
    return found[::-1]
