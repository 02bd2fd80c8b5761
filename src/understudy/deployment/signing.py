"""How a release comes to be signed: the server asks, and each site looks before it signs.

The server makes the files of a release, sends ``release.json`` to the sites, and puts the
signatures that come back beside it. What a site vouches for is that it joined this run of this
study under this plan, and knows of one model that came of it, no other (its ledger notes that). It
cannot vouch for how the model was made, which it did not see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from understudy.deployment.keys import ROSTER, Keys, Listed, read_json
from understudy.errors import KeysError, ReleaseError
from understudy.release.bundle import Release
from understudy.release.manifest import MANIFEST
from understudy.release.signature import Signed
from understudy.release.verify import Verdict

__all__ = ["check_trust", "countersign", "sign"]


def unsigned(keys: Keys, names: Sequence[str], run: str) -> Signed:
    """The parties of a run, before anyone has signed."""
    return Signed(run, keys.server, keys.listed.identity, keys.seated(names)[0])


def countersign(
    manifest: bytes, keys: Keys, names: Sequence[str], joined: Mapping[str, Any]
) -> bytes:
    """A site's signature, if the release is of the run, study and plan that it joined.

    ``joined`` has ``run``, the ``study`` hash and the ``plan`` as a dict; ``names`` are the sites
    of the study.
    """
    try:
        said = json.loads(manifest)
        found = {key: said[key] for key in ("study", "plan")}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ReleaseError("a readable release.json", "a damaged one", "ask again") from error
    for key, what in (("study", "study"), ("plan", "privacy plan")):
        if _plain(found[key]) != _plain(joined[key]):
            raise ReleaseError(
                f"a release of the {what} that {keys.name} joined",
                "another",
                "do not sign it; ask the server what it releases",
            )
    return keys.identity.sign(unsigned(keys, names, joined["run"]).statement(manifest))


def _plain(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def sign(
    release: Release, keys: Keys, names: Sequence[str], run: str, replies: Mapping[str, bytes]
) -> Release:
    """The release with the server's signature and those of the sites that replied.

    A reply that is no signature of this release is left out, so that no site can hold up what all
    have paid for; `Signed.missing` names the site, and so does every `verify`.
    """
    parties, manifest = unsigned(keys, names, run), release.files()[MANIFEST]
    held = {
        name: signature
        for name, signature in replies.items()
        if name in names and parties.holds(name, manifest, signature)
    }
    own = {keys.name: keys.identity.sign(parties.statement(manifest))}
    return replace(release, signed=replace(parties, signatures={**own, **held}))


def check_trust(verdict: Verdict, trusted: Path) -> str:
    """Refuse a release that the parties in a roster (or key folder) did not sign; else say so."""
    signed = verdict.release.signed
    if signed is None:
        raise ReleaseError(
            f"a release signed by the parties in {trusted.name}",
            "one without signatures",
            "ask for the signed one; do not trust this one on their account",
        )
    path = trusted / ROSTER if trusted.is_dir() else trusted
    listed = Listed.read(read_json(path))
    keys = dict(zip(listed.roster.names, listed.roster.keys, strict=True))
    if not keys:
        raise KeysError(f"sites in {path}", "none", "name the roster of the federation")
    signed.check_trusted(listed.identity, keys, path.name)
    return f"the keys are those in {path.name} (fingerprint {listed.fingerprint})"
