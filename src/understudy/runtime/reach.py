"""Whether a server answers as a site expects: one handshake, before FLARE tries for ever.

FLARE tries again silently whatever the reason. So a site first makes a connection of its own and
says what is wrong, if something is. A server that is not there yet is no error: it is waited for.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import closing

from cryptography import x509
from cryptography.x509.oid import NameOID

from understudy.errors import KeysError, WireError
from understudy.runtime.flare import Address

__all__ = ["probe"]

_SECONDS = 5.0
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def probe(address: Address) -> bool:
    """Whether the server is there; refuses one that is another, or that refuses this site."""
    try:
        raw = socket.create_connection((address.host, address.port), _SECONDS)
    except socket.gaierror as error:
        raise WireError(
            f"the server {address.host}", "no machine of that name", "check --server"
        ) from error
    except OSError:
        return False
    with closing(raw):
        return _secure(raw, address) if address.tls else _plain(raw)


def _plain(raw: socket.socket) -> bool:
    """An unencrypted server answers the first bytes of HTTP/2; one with TLS hangs up."""
    try:
        raw.sendall(_HTTP2)
        if raw.recv(3)[:1] == b"\0":
            return True
    except OSError:
        pass
    raise WireError(
        "a server without TLS, as --insecure asks for",
        "one that does not answer as such",
        "use --keys FOLDER; if the server is meant to be open, check --server",
    )


def _secure(raw: socket.socket, address: Address) -> bool:
    assert address.tls is not None
    context = ssl.create_default_context(cafile=str(address.tls.ca))
    context.load_cert_chain(address.tls.cert, address.tls.key)
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(raw, server_hostname=address.host) as secured:
            secured.sendall(_HTTP2)
            secured.recv(1)  # where this site is refused, it shows here
            return _named(secured, address.tls.server)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, address) from error
    except ssl.SSLError as error:
        raise _refused(error, address) from error
    except OSError:
        return False


def _named(secured: ssl.SSLSocket, server: str) -> bool:
    certificate = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if [name.value for name in names] != [server]:
        raise KeysError(
            f"the server {server}", "another of the same authority", "check --server and the keys"
        )
    return True


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
    if error.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST"):
        return WireError(
            "a server with TLS",
            f"{address.host}:{address.port} is not encrypted, or no server of ours",
            "start the server with --keys; only for tests on one machine use --insecure",
        )
    return KeysError(
        "a server that accepts this site's certificate",
        f"it was refused ({error.reason})",
        "have this site's request approved by the server's authority, and install the reply",
    )
