"""One client of Flower's SecAgg+: its own functions, one after the other. For `secure_sum.py`.

Run by an interpreter that has flwr. Peers announce real keys and send encrypted shares, made with
Flower's functions; only the client is timed.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

# The package has a function of the same name in its place.
mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")


def client(sites: int, numbers: int) -> dict[str, Any]:
    """Seconds of processor time by stage, and bytes sent."""
    state = mod.SecAggPlusState()
    state.nid = 0
    terms = {
        Key.SAMPLE_NUMBER: sites,
        Key.SHARE_NUMBER: sites,
        Key.THRESHOLD: max(2, -(-4 * sites // 5)),
        Key.CLIPPING_RANGE: 8.0,
        Key.TARGET_RANGE: 1 << 22,
        Key.MOD_RANGE: 1 << 32,
        Key.MAX_WEIGHT: 1000.0,
    }
    cost, sent = {}, 0

    def stage(name: str, work: Any, *told: Any) -> dict[str, Any]:
        nonlocal sent
        begun = time.process_time()
        made = work(state, *told)
        cost[name] = round(time.process_time() - begun, 5)
        sent += _size(list(made.values()))
        return made

    stage("setup", mod._setup, terms)
    pairs = {i: (mod.generate_key_pairs(), mod.generate_key_pairs()) for i in range(1, sites)}
    keys = {str(i): _public(*pairs[i]) for i in pairs} | {"0": (state.pk1, state.pk2)}
    made = stage("shares", mod._share_keys, dict(sorted(keys.items(), key=lambda e: int(e[0]))))
    length = len(state.rd_seed_share_dict[0])
    assert len(made[Key.CIPHERTEXT_LIST]) == sites - 1
    told = {Key.SOURCE_LIST: list(pairs), Key.CIPHERTEXT_LIST: []}
    for i, (_, (secret, _)) in pairs.items():
        key = mod.generate_shared_key(secret, mod.bytes_to_public_key(state.pk2))
        plain = share_keys_plaintext_concat(i, 0, bytes(length), bytes(length))
        told[Key.CIPHERTEXT_LIST].append(mod.encrypt(key, plain))
    update = ndarrays_to_parameters([np.random.default_rng(0).normal(size=numbers)])
    stage("masked", mod._collect_masked_vectors, told, 100, update)
    alive = {Key.ACTIVE_NODE_ID_LIST: list(range(sites)), Key.DEAD_NODE_ID_LIST: []}
    stage("unmask", mod._unmask, alive)
    cost["all"] = round(sum(cost.values()), 5)
    return {"sites": sites, "numbers": numbers, "seconds per site": cost, "bytes up": sent}


def _public(one: Any, two: Any) -> tuple[bytes, bytes]:
    return mod.public_key_to_bytes(one[1]), mod.public_key_to_bytes(two[1])


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(_size(each) for each in value)
    return len(value) if isinstance(value, bytes) else 8


if __name__ == "__main__":
    print(json.dumps([client(n, d) for n, d in json.loads(sys.argv[1])]))
