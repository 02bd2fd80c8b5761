"""Whether a server answers as a site expects: one handshake, before FLARE tries for ever.

FLARE tries again silently whatever the reason. So a site first makes a connection of its own and
says what is wrong, if something is. A server that is not there yet is no error: it is waited for
(`awaited`), also behind a tunnel that takes connections before its server does.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import closing
from threading import Event

from cryptography import x509
from cryptography.x509.oid import NameOID

from understudy.errors import KeysError, WireError
from understudy.runtime.flare import Address

__all__ = ["awaited", "probe"]

_SECONDS = 5.0
_AGAIN = 2.0  # seconds between two looks
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def awaited(address: Address, over: Event, tell: Callable[[str], None]) -> None:
    """Look until the server is there, or ``over`` is set; say once what is waited for."""
    said = ""
    while not over.is_set() and (missing := probe(address)):
        if missing != said:
            tell(f"waiting for the server: {missing}")
        said = missing
        over.wait(_AGAIN)


def probe(address: Address) -> str:
    """Why the server is not there yet, or nothing; refuses another one, or one that refuses us."""
    where = f"{address.host}:{address.port}"
    try:
        with closing(_connected(address)) as raw:
            there = _secure(raw, address) if address.tls else _plain(raw, address)
    except socket.gaierror as error:
        raise WireError(
            f"the server {address.host}", "no machine of that name", "check --server"
        ) from error
    except TimeoutError:
        return f"{where} says nothing"
    except OSError:
        return f"nobody answers at {where}"
    return "" if there else f"{where} hangs up, as a tunnel does whose server is not up"


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), _SECONDS)


def _plain(raw: socket.socket, address: Address) -> bool:
    """Whether what is there answers the first bytes of HTTP/2; not if it hangs up on anyone."""
    if (said := _answer(raw)[:1]) == b"\0":
        return True
    if said or _speaks_tls(address):
        raise WireError(
            "a server without TLS, as --insecure asks for",
            "one that does not answer as such",
            "use --keys FOLDER; if the server is meant to be open, check --server",
        )
    return False


def _answer(raw: socket.socket) -> bytes:
    """The first bytes that a server says; nothing from one that hangs up."""
    try:
        raw.sendall(_HTTP2)
        return raw.recv(3)
    except ConnectionError:
        return b""


def _speaks_tls(address: Address) -> bool:
    """Whether anyone answers in TLS, whoever it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with closing(_connected(address)) as raw, context.wrap_socket(raw):
            return True
    except OSError:
        return False


def _secure(raw: socket.socket, address: Address) -> bool:
    """Whether this federation's server is there, and takes this site in."""
    assert address.tls is not None
    context = ssl.create_default_context(cafile=str(address.tls.ca))
    context.load_cert_chain(address.tls.cert, address.tls.key)
    context.set_alpn_protocols(["h2"])
    try:
        secured = context.wrap_socket(raw, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, address) from error
    except (ssl.SSLEOFError, ConnectionError):
        return False
    except ssl.SSLError as error:
        raise _refused(error, address) from error
    with closing(secured):
        _check_name(secured, address.tls.server)
        _check_welcome(secured)
    return True


def _check_welcome(secured: ssl.SSLSocket) -> None:
    """A server that does not know a site hangs up after the handshake, gRPC without a word."""
    found = "it hung up"
    try:
        if _answer(secured):
            return
    except ssl.SSLEOFError:
        pass
    except ssl.SSLError as error:
        found = f"it was refused ({error.reason})"
    raise _unwelcome(found)


def _check_name(secured: ssl.SSLSocket, server: str) -> None:
    certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if [name.value for name in names] != [server]:
        raise KeysError(
            f"the server {server}", "another of the same authority", "check --server and the keys"
        )


def _untrusted(error: ssl.SSLCertVerificationError, address: Address) -> KeysError:
    """The server's certificate does not convince this site."""
    said = error.verify_message
    do = "compare fingerprints with the server; install the reply of this federation's server"
    if "expired" in said or "not yet valid" in said:
        do = "check both clocks; at the server: understudy keys init FOLDER --renew"
    if "mismatch" in said or "not valid for" in said:
        do = (
            f"at the server: understudy keys init FOLDER --renew --host {address.host}; or name it "
            "as its certificate does"
        )
    return KeysError(f"the certificate of {address.host} to be this federation's", said, do)


def _refused(error: ssl.SSLError, address: Address) -> WireError | KeysError:
    """No TLS at the other end, or a server that does not know this site."""
    if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return WireError(
            "a server with TLS",
            f"{address.host}:{address.port} is not encrypted, or no server of ours",
            "start the server with --keys; only for tests on one machine use --insecure",
        )
    return _unwelcome(f"it was refused ({error.reason})")


def _unwelcome(found: str) -> KeysError:
    return KeysError(
        "a server that accepts this site's certificate",
        found,
        "check both clocks; have this site's request approved by the server's authority, and "
        "install the reply",
    )
