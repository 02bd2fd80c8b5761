"""Who shares masks and secrets with whom: everyone with everyone, or neighbours on a random ring.

Up to 100 sites the graph is complete. Above, as in SecAgg+ (Bell et al. 2020), sites stand on a
ring in an order that a public hash gives, and each has the k/2 nearest on either side as peers: its
work and its messages grow with log n. A site's secrets are shared among its k peers and itself,
and τ of these k + 1 holders can recover them. k is the smallest that leaves, for colluders and
drop-outs that do not depend on the order,

* 2⁻⁴⁰ for a site with so many colluding holders that two quorums of τ could meet in them alone,
* 2⁻⁴⁰ for honest survivors that fall apart into groups (k/2 in a row gone, at some place),
* 2⁻¹⁰ for a site whose secrets cannot be recovered though t sites survive (the round is void).

Each is a union bound over the sites of exact hypergeometric tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from understudy.errors import PrivacyError
from understudy.federation.secure.roster import Place, pack

__all__ = ["COMPLETE", "Graph", "degree"]

COMPLETE = 100  # sites up to which all are peers
_BREACH, _LOSS = 2.0**-40, 2.0**-10


@dataclass(frozen=True)
class Graph:
    """Peers among the sites called; ``members`` are their numbers, ``place`` theirs on the ring.

    ``threshold`` holders recover a secret.
    """

    members: np.ndarray
    order: np.ndarray
    place: np.ndarray
    degree: int
    threshold: int

    @classmethod
    def among(cls, called: np.ndarray, place: Place) -> Graph:
        """Of the sites flagged in ``called``: everyone in this place draws the same."""
        members, survivors, colluders = np.flatnonzero(called), place.survivors, place.colluders
        _check(len(members), survivors, colluders)
        everyone = (len(members) - 1, survivors)
        k, threshold = degree(len(members), survivors, colluders) or everyone
        order = _order(place.digest("graph", pack(called)), len(members))
        return cls(members, order, np.argsort(order), k, threshold)

    @property
    def complete(self) -> bool:
        return self.degree == len(self.members) - 1

    def holders(self, client: int) -> np.ndarray:
        """A site and its peers, in ascending order: those who hold shares of its secrets."""
        if self.complete:
            return self.members
        place = int(self.place[np.searchsorted(self.members, client)])
        near = np.arange(place - self.degree // 2, place + self.degree // 2 + 1)
        return np.sort(self.members[self.order[near % len(self.order)]])

    def peers(self, client: int) -> np.ndarray:
        found = self.holders(client)
        return found[found != client]


def _check(sites: int, survivors: int, colluders: int) -> None:
    """At least t sites, and so few that two quorums of t share more than c of them.

    So they share an honest site, which signs one set of survivors a round: no server can have
    two sets signed.
    """
    if not 0 <= colluders < survivors <= sites < 2 * survivors - colluders:
        raise PrivacyError(
            f"{survivors} to {2 * survivors - colluders - 1} sites in a round",
            f"{sites}",
            "compare privacy.survivors and colluders with who is called; wait for more sites",
        )


def _order(seed: bytes, sites: int) -> np.ndarray:
    """A permutation that every version gives alike: the ranks of keystream words."""
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    return np.argsort(np.frombuffer(stream.update(bytes(8 * sites)), "<u8"), kind="stable")


@lru_cache(maxsize=256)
def degree(sites: int, survivors: int, colluders: int) -> tuple[int, int] | None:
    """(k, τ) of the ring, or None where everyone is to be everyone's peer."""
    if sites <= COMPLETE:
        return None
    for k in range(2, sites - 1, 2):
        threshold = _threshold(sites, survivors, colluders, k)
        if threshold is not None:
            return k, threshold
    return None


def _threshold(sites: int, survivors: int, colluders: int, k: int) -> int | None:
    """τ for degree k, if there is one that meets all three bounds."""
    from scipy.stats import hypergeom

    gone = sites - survivors
    if _falls_apart(sites, min(colluders + gone, sites), k // 2) > _BREACH:
        return None
    counts = np.arange(k + 2)
    corrupt = sites * hypergeom.sf(counts - 1, sites - 1, colluders, k)  # that many or more
    threshold = -(-(k + 1 + int(np.argmax(corrupt <= _BREACH))) // 2)
    lost = sites * hypergeom.sf(k - threshold, sites - 1, gone, k)  # its own share is lost too
    return threshold if threshold <= k and lost <= _LOSS else None


def _falls_apart(sites: int, gone: int, run: int) -> float:
    """At most the chance that ``run`` sites in a row are gone somewhere on the ring."""
    steps = np.arange(run)
    chances = np.maximum(gone - steps, 0) / (sites - steps)
    return float(sites * chances.prod())
