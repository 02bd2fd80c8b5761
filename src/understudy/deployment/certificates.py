"""X.509 certificates for mutual TLS: a private authority at the server, one for each party.

Keys are on the curve P-256, which every TLS library takes. A certificate's common name is the name
of the party it was made for, which the network engine compares with the name that a peer claims.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from understudy.errors import KeysError

__all__ = [
    "certify",
    "check_certificate",
    "make_authority",
    "new_key",
    "pem",
    "public_bytes",
    "request_certificate",
]

_AUTHORITY_DAYS = 3650
_SKEW = datetime.timedelta(hours=1)  # clocks of two machines may differ
_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    """A fresh key on P-256."""
    return ec.generate_private_key(ec.SECP256R1())


def pem(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """As text."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def public_bytes(certificate: x509.Certificate | x509.CertificateSigningRequest | Key) -> bytes:
    """The public key, in its one encoding."""
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*uses: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{use: use in uses for use in _USES})


def _builder(subject: str, issuer: x509.Name, key: Key, days: int) -> x509.CertificateBuilder:
    """A certificate of ``key``'s public half, before it has purposes."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def make_authority(name: str, key: Key) -> x509.Certificate:
    """The authority's own certificate, which all parties trust for this federation alone."""
    subject = f"{name[:40]} authority"
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        _builder(subject, _named(subject), key, _AUTHORITY_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )


def request_certificate(name: str, key: Key) -> x509.CertificateSigningRequest:
    """What the authority is asked to sign; signed by ``key`` itself, which shows who holds it."""
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_named(name))
        .sign(key, hashes.SHA256())
    )


def certify(
    request: x509.CertificateSigningRequest,
    authority: tuple[x509.Certificate, Key],
    hosts: Iterable[str],
    days: int,
) -> x509.Certificate:
    """A certificate for the name in ``request``; with ``hosts``, one that a server can show."""
    issuer, key = authority
    name = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    assert isinstance(name, str)
    reached = [_address(host) for host in dict.fromkeys((name, *hosts))]
    purposes = [
        ExtendedKeyUsageOID.CLIENT_AUTH,
        *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else []),
    ]
    own = x509.SubjectKeyIdentifier.from_public_key(request.public_key())
    theirs = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return (
        _builder(name, issuer.subject, key, days)
        .public_key(request.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(reached), critical=False)
        .add_extension(own, critical=False)
        .add_extension(theirs, critical=False)
        .sign(key, hashes.SHA256())
    )


def _address(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def check_certificate(
    certificate: x509.Certificate, authority: x509.Certificate, name: str, public: bytes
) -> None:
    """Refuse one of another authority, name or key, and one that is not valid today."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise KeysError(
            f"{name}'s certificate to be signed by this federation's authority",
            "another, or an altered one",
            "ask the server for the reply again, and install it",
        ) from error
    if certificate.subject != _named(name) or public_bytes(certificate) != public:
        raise KeysError(
            f"a certificate for {name} and the key in this folder",
            "one for another name or key",
            "install the reply to the request that was made in this folder",
        )
    for each, who in ((certificate, f"{name}'s certificate"), (authority, "the authority")):
        check_dates(each, who)


def check_dates(certificate: x509.Certificate, who: str) -> None:
    """Refuse a certificate that is not valid today."""
    now = datetime.datetime.now(datetime.timezone.utc)
    if now > (end := certificate.not_valid_after_utc):
        raise KeysError(
            f"{who} to be valid today",
            f"it expired on {end:%d %B %Y}",
            "at the server: understudy keys approve FOLDER REQUEST with the site's request file "
            "(or, for the server's own, understudy keys init FOLDER --renew), then install the "
            "new reply",
        )
    if now < (start := certificate.not_valid_before_utc):
        raise KeysError(
            f"{who} to be valid today",
            f"it is valid from {start:%d %B %Y, %H:%M} UTC on",
            "check the clock of this machine",
        )
