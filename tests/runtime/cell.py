"""A site of the tests of the transport, as a process: it answers by what it is asked.

``cell.py PORT NAME CLAIMED KEYS SERVER``: keys of NAME, connecting as CLAIMED.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from understudy.runtime import flare
from understudy.runtime.flare import Address, FlareSite, Tls

SILENCE, ANSWER = 1, 3  # seconds, for the test too: it need not wait as long as a line may


def answer(message: bytes) -> bytes:
    if message == b"sleep":
        time.sleep(30)
    if message == b"large":
        return bytes(3 << 20)
    if message.startswith(b"length"):
        return sys.argv[2].encode() + f" heard {len(message)} bytes".encode()
    if message.startswith(b"ask "):  # the site tries to reach another site through the server
        return reached(message.removeprefix(b"ask ").decode())
    return sys.argv[2].encode() + b" heard " + message


def reached(other: str) -> bytes:
    from nvflare.fuel.f3.cellnet.utils import new_cell_message

    request = new_cell_message({}, b"evil")
    found = site._cell.send_request(
        channel="understudy", topic="message", target=other, request=request, timeout=1.0
    )
    return bytes(found.payload or b"nothing")


if __name__ == "__main__":
    flare._SILENCE, flare._ANSWER = SILENCE, ANSWER
    port, name, claimed, folder, server = sys.argv[1:]
    keys = Path(folder)
    tls = Tls(keys / "ca.pem", keys / "tls.pem", keys / "tls.key", server)
    site = FlareSite(
        claimed, Address("localhost", int(port), None if server == "-" else tls), answer
    )
    with site:
        time.sleep(120)
