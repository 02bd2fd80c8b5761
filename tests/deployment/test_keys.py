"""Keys, through the command line and as a library: who is trusted, and what is refused."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.verification import PolicyBuilder, Store
from typer.testing import CliRunner

from understudy.cli import app
from understudy.deployment import certificates
from understudy.deployment.enrolment import (
    approve,
    install,
    make_server,
    make_site,
    read_reply,
    read_request,
    renew_server,
)
from understudy.deployment.keys import Keys, load_keys
from understudy.errors import KeysError, OutputError
from understudy.federation.secure.roster import identities

SITES = ("north", "south", "east")


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    """A server and three sites, all enrolled."""
    make_server(tmp_path / "hub", "hub", ["hub.example"])
    requests = [read_request(make_site(tmp_path / name, name)[1]) for name in SITES]
    replies = approve(tmp_path / "hub", requests)
    for name in SITES:
        keep(tmp_path / name, replies[name])
    return tmp_path


def keep(folder: Path, reply: Path) -> Keys:
    return install(folder, read_reply(folder, reply))


def altered(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def test_all_parties_hold_the_same_roster_and_their_own_identity(federation: Path) -> None:
    hub = load_keys(federation / "hub")
    assert (hub.role, hub.name, hub.identity.client) == ("server", "hub", -1)
    for client, name in enumerate(SITES):
        keys = load_keys(federation / name)
        assert (keys.role, keys.name, keys.server) == ("site", name, "hub")
        assert keys.roster == hub.roster and keys.fingerprint == hub.fingerprint
        assert keys.listed.server_fingerprint == hub.listed.server_fingerprint
        assert keys.identity.client == client
        assert hub.roster.verify(client, b"said", keys.identity.sign(b"said"))


def test_the_order_of_a_study_gives_the_places(federation: Path) -> None:
    keys = load_keys(federation / "north")
    roster, own = keys.seated(["south", "north"])
    assert roster.names == ("south", "north") and own.client == 1
    assert roster.verify(1, b"said", own.sign(b"said"))
    assert load_keys(federation / "hub").seated(["east"])[1].client == -1
    with pytest.raises(KeysError, match="none of west in the roster"):
        keys.seated(["north", "west"])
    with pytest.raises(KeysError, match="a study with the site north"):
        keys.seated(["south", "east"])


def test_certificates_satisfy_a_verifier_of_others(federation: Path) -> None:
    hub, north = load_keys(federation / "hub"), load_keys(federation / "north")
    authority = x509.load_pem_x509_certificate(north.ca.read_bytes())
    policy = PolicyBuilder().store(Store([authority]))
    server = x509.load_pem_x509_certificate(hub.cert.read_bytes())
    for host in ("hub", "hub.example", "localhost"):
        policy.build_server_verifier(x509.DNSName(host)).verify(server, [])
    site = x509.load_pem_x509_certificate(north.cert.read_bytes())
    policy.build_client_verifier().verify(site, [])
    with pytest.raises(x509.verification.VerificationError):  # a site cannot pose as the server
        policy.build_server_verifier(x509.DNSName("north")).verify(site, [])


def test_private_keys_are_for_their_owner_and_never_sent(federation: Path) -> None:
    private = sorted(path.name for path in federation.rglob("*.key"))
    assert len(private) == 3 + 2 * len(SITES)
    for path in federation.rglob("*.key"):
        assert path.stat().st_mode & 0o777 == 0o600
    for path in federation.rglob("*.json"):
        assert "PRIVATE" not in path.read_text()


def test_a_site_can_be_added_later_and_a_reply_is_never_older(federation: Path) -> None:
    hub = federation / "hub"
    first = (hub / "sites" / "north.reply.json").read_text()
    request = read_request(make_site(federation / "west", "west")[1])
    replies = approve(hub, [request])
    assert sorted(replies) == sorted((*SITES, "west"))
    assert keep(federation / "north", replies["north"]).roster.names == (*SITES, "west")
    (federation / "old.json").write_text(first)
    with pytest.raises(KeysError, match="an older reply"):
        keep(federation / "north", federation / "old.json")


def test_approving_again_renews_a_certificate_and_changes_no_roster(federation: Path) -> None:
    before = load_keys(federation / "north")
    request = read_request(federation / "north" / "north.request.json")
    after = keep(federation / "north", approve(federation / "hub", [request], 700)["north"])
    assert after.expires > before.expires + datetime.timedelta(days=300)
    assert after.roster == before.roster and after.listed.number == before.listed.number
    renew_server(federation / "hub", ["other.example"], 20)
    assert load_keys(federation / "hub").expires < before.expires


def test_other_keys_for_a_known_site_are_refused_at_the_server(federation: Path) -> None:
    again = read_request(make_site(federation / "again", "north")[1])
    with pytest.raises(KeysError, match="other keys for 'north'"):
        approve(federation / "hub", [again])
    alike = read_request(make_site(federation / "alike", "North")[1])
    with pytest.raises(KeysError, match="other keys for 'north'"):
        approve(federation / "hub", [alike])
    hub = read_request(make_site(federation / "posing", "hub")[1])
    with pytest.raises(KeysError, match="of its own for each party"):
        approve(federation / "hub", [hub])


def test_a_site_refuses_a_roster_that_changes_a_known_key(federation: Path) -> None:
    """The server is the adversary of secure sums: it signs whatever it likes."""
    hub = load_keys(federation / "hub")
    stranger = identities(["x"])[0].keys[0]
    keys = (hub.roster.keys[0], stranger, hub.roster.keys[2])
    forged = type(hub.listed)(
        hub.listed.server,
        hub.listed.identity,
        hub.listed.authority,
        hub.listed.number + 1,
        type(hub.roster)(hub.roster.names, keys),
    ).to_json(hub.identity)
    reply = federation / "hub" / "sites" / "north.reply.json"
    altered(reply, lambda data: data.update(roster=forged))
    with pytest.raises(KeysError, match="the sites that this folder knows"):
        keep(federation / "north", reply)


@pytest.mark.parametrize("field", ("name", "identity", "signature", "certificate_request"))
def test_an_altered_request_is_refused(tmp_path: Path, field: str) -> None:
    other = json.loads(make_site(tmp_path / "other", "other")[1].read_text())
    path = make_site(tmp_path / "north", "north")[1]
    altered(path, lambda data: data.update({field: other[field]}))
    with pytest.raises(KeysError, match=re.escape("north.request.json as it was made")):
        read_request(path)


@pytest.mark.parametrize(
    ("change", "words"),
    (
        (lambda d: d["roster"]["sites"].pop(), "a roster as the server signed it"),
        (lambda d: d["roster"].update(number=9), "a roster as the server signed it"),
        (lambda d: d["roster"].update(server="evil"), "a roster as the server signed it"),
        (lambda d: d.update(roster=[]), "a roster as the server signed it"),
        (lambda d: d.update(certificate="x"), "as Understudy writes it"),
        (lambda d: d.pop("authority"), "as it was made"),
        (lambda d: d.update(format="other"), "to be an Understudy key reply"),
    ),
)
def test_an_altered_reply_is_refused(
    federation: Path, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    reply = altered(federation / "hub" / "sites" / "north.reply.json", change)
    with pytest.raises(KeysError, match=re.escape(words)):
        keep(federation / "north", reply)


def test_a_reply_for_another_site_or_of_another_server_is_refused(federation: Path) -> None:
    with pytest.raises(KeysError, match="a certificate for north and the key in this folder"):
        keep(federation / "north", federation / "hub" / "sites" / "south.reply.json")
    make_server(federation / "foreign", "hub", [])
    request = read_request(federation / "north" / "north.request.json")
    replies = approve(federation / "foreign", [request])
    with pytest.raises(KeysError, match="the server that this folder knows"):
        keep(federation / "north", replies["north"])
    own = (federation / "hub" / "ca.pem").read_text()
    altered(replies["north"], lambda data: data.update(authority=own))
    with pytest.raises(KeysError, match=r"this federation.s authority|as the server signed it"):
        keep(federation / "north", replies["north"])


def test_a_certificate_of_a_foreign_authority_is_refused(federation: Path) -> None:
    make_server(federation / "foreign", "hub", [])
    (federation / "north" / "ca.pem").write_bytes((federation / "foreign/ca.pem").read_bytes())
    with pytest.raises(KeysError, match="signed by this federation's authority"):
        load_keys(federation / "north")


def test_keys_readable_by_others_are_refused_with_the_fix(federation: Path) -> None:
    (federation / "north" / "identity.key").chmod(0o640)
    with pytest.raises(KeysError, match=r"mode 640.*chmod 600"):
        load_keys(federation / "north")


def test_an_identity_that_is_not_in_the_roster_is_refused(federation: Path) -> None:
    path = federation / "north" / "identity.key"
    other = (federation / "south" / "identity.key").read_bytes()
    path.write_bytes(other)
    with pytest.raises(KeysError, match="a roster with north and the identity in this folder"):
        load_keys(federation / "north")
    path.write_bytes((federation / "north" / "tls.key").read_bytes())
    with pytest.raises(KeysError, match=re.escape("identity.key as Understudy writes it")):
        load_keys(federation / "north")


@pytest.mark.parametrize(("days", "words"), ((366, "it expired on"), (-1, "check the clock")))
def test_certificates_have_their_time(
    federation: Path, monkeypatch: pytest.MonkeyPatch, days: int, words: str
) -> None:
    then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return then

    monkeypatch.setattr(certificates.datetime, "datetime", Clock)
    with pytest.raises(KeysError, match=words):
        load_keys(federation / "north")


def test_a_folder_with_keys_is_never_overwritten(federation: Path) -> None:
    before = (federation / "north" / "identity.key").read_bytes()
    with pytest.raises(OutputError, match="a new or empty folder"):
        make_site(federation / "north", "north")
    with pytest.raises(OutputError, match="a new or empty folder"):
        make_server(federation / "hub", "hub", [])
    assert (federation / "north" / "identity.key").read_bytes() == before


@pytest.mark.parametrize("name", ("", "server", "a.b", "../x", "-x", "st mary", "é", "x" * 41))
def test_names_that_cannot_be_used_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeysError, match="a site's name"):
        make_site(tmp_path / "site", name)
    assert not (tmp_path / "site").exists()


def test_a_request_with_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    asked = x509.CertificateSigningRequestBuilder()
    asked = asked.subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "north")]))
    made = asked.sign(key, None).public_bytes(serialization.Encoding.PEM).decode()
    path = make_site(tmp_path / "north", "north")[1]
    altered(path, lambda data: data.update(certificate_request=made))
    with pytest.raises(KeysError):
        read_request(path)


def call(*words: object, code: int = 0, typed: str = "") -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], input=typed)
    assert result.exit_code == code, result.output
    return result.output


def test_four_commands_enrol_a_site_and_both_ends_show_the_same_fingerprints(
    tmp_path: Path,
) -> None:
    hub, north = tmp_path / "hub", tmp_path / "north"
    begun = call("keys", "init", hub, "--name", "hub", "--host", "10.0.0.1")
    asked = call("keys", "request", north, "--name", "north")
    request = north / "north.request.json"
    signed = call("keys", "approve", hub, request, typed="y\n")
    reply = hub / "sites" / "north.reply.json"
    kept = call("keys", "install", north, reply, typed="y\n")
    printed = re.compile(r"(?:[0-9a-f]{4} ){7}[0-9a-f]{4}")
    assert printed.findall(asked)[0] == printed.findall(signed)[0]
    server, roster = printed.findall(signed)[1:3]
    assert printed.findall(begun) == [server] and printed.findall(kept) == [server, roster]
    assert printed.findall(call("keys", "show", north))[:2] == [server, roster]
    assert json.loads(call("keys", "show", hub, "--json"))["sites"].keys() == {"north"}


def test_nothing_is_signed_or_kept_without_a_yes(tmp_path: Path) -> None:
    hub, north = tmp_path / "hub", tmp_path / "north"
    call("keys", "init", hub, "--name", "hub", "--json")
    request = json.loads(call("keys", "request", north, "--name", "north", "--json"))["request"]
    call("keys", "approve", hub, request, typed="n\n", code=1)
    assert not (hub / "sites").exists() and len(load_keys(hub).roster) == 0
    call("keys", "approve", hub, request, "--yes", "--json")
    call("keys", "install", north, hub / "sites" / "north.reply.json", typed="n\n", code=1)
    assert not (north / "tls.pem").exists()
    said = call("keys", "show", north, code=10)
    assert "the server's reply was not installed" in " ".join(said.split())


def test_bad_paths_and_days_have_an_answer(tmp_path: Path) -> None:
    assert "the file" in call("keys", "show", tmp_path / "none", code=10)
    assert "1 to 3650 days" in call(
        "keys", "init", tmp_path / "hub", "--name", "hub", "--days", "0", code=10
    )
    call("keys", "request", tmp_path / "north", "--name", "north")
    request = tmp_path / "north" / "north.request.json"
    assert "a site's" in call("keys", "approve", tmp_path / "north", request, "--yes", code=10)
    assert "a server's name" in call("keys", "init", tmp_path / "hub", "--name", "a b", code=10)
    for host in ("hub.example:8702", "https://hub.example", "a b", ""):
        assert "a host's name or IP address" in " ".join(
            call("keys", "init", tmp_path / "hub", "--name", "hub", "--host", host, code=10).split()
        )
    assert not (tmp_path / "hub").exists()
