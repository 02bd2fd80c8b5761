"""A site of the tests of the transport, as a process: it answers by what it is asked.

``cell.py PORT NAME CLAIMED KEYS SERVER``: keys of NAME, connecting as CLAIMED.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

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
        return reached(message.removeprefix(b"ask ").decode(), b"evil")
    if message == b"tell":  # or to have objects of its own unpacked there
        return reached("server", {"evil": [1]})
    return sys.argv[2].encode() + b" heard " + message


def reached(other: str, payload: object) -> bytes:
    from nvflare.fuel.f3.cellnet.utils import new_cell_message

    request = new_cell_message({}, payload)
    found = site._cell.send_request(
        channel="understudy", topic="message", target=other, request=request, timeout=1.0
    )
    return bytes(found.payload or b"nothing")


class Objects(FlareSite):
    """Answers with an object where a test asks for one, which FLARE would pack and unpack."""

    def _answer(self, message: Any) -> Any:
        from nvflare.fuel.f3.cellnet.utils import make_reply

        if bytes(message.payload) == b"objects":
            return make_reply("ok", "", {"evil": [1]})
        return super()._answer(message)


if __name__ == "__main__":
    flare._SILENCE, flare._ANSWER = SILENCE, ANSWER
    port, name, claimed, folder, server = sys.argv[1:]
    keys = Path(folder)
    tls = Tls(keys / "ca.pem", keys / "tls.pem", keys / "tls.key", server)
    site = Objects(claimed, Address("localhost", int(port), None if server == "-" else tls), answer)
    with site:
        time.sleep(120)
