"""Points of Curve25519 times a scalar: what alignment spends its time on.

Also a program of its own (`main`), which reads a scalar and points and writes the products: `align`
starts one for each core. It imports nothing else, so that starting it takes no time.
"""

from __future__ import annotations

import sys

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

__all__ = ["REFUSED", "main", "times"]

REFUSED = 3  # the program's exit code where a point is of small order
_SIZE = 32


def times(scalar: bytes, points: bytes) -> bytes:
    """Every point of 32 bytes times the scalar; ValueError where a point is of small order."""
    key, starts = X25519PrivateKey.from_private_bytes(scalar), range(0, len(points), _SIZE)
    each = (X25519PublicKey.from_public_bytes(points[i : i + _SIZE]) for i in starts)
    return b"".join(key.exchange(point) for point in each)


def main() -> None:
    """The program, from standard input to standard output."""
    given = sys.stdin.buffer.read()
    try:
        sys.stdout.buffer.write(times(given[:_SIZE], given[_SIZE:]))
    except ValueError:
        sys.exit(REFUSED)
