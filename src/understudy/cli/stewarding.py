"""``understudy exchange``: what stewards and admins do, each a call of `exchange.client`."""

from __future__ import annotations

from pathlib import Path

import typer

from understudy.cli.console import JSON, done, plain_errors, print_json
from understudy.cli.exchanging import ID, KEYS, client_of, day, eps, table, table_of

__all__ = ["approve", "members", "queue", "reject", "revoke", "role"]

_MEMBER = typer.Argument(..., help="The member's name.")


def queue(keys: Path = KEYS, json: bool = JSON) -> None:
    """Stewards: list what waits for a decision.

    Example:

      understudy exchange queue --keys my-keys
    """
    with plain_errors(json):
        found = client_of(keys).queue()
        print_json({"ok": True, "releases": found}) if json else table_of(found)


def approve(id: str = ID, keys: Path = KEYS, json: bool = JSON) -> None:
    """Stewards: take a push into the pool.

    Example:

      understudy exchange approve 0123456789abcdef --keys my-keys
    """
    _decide(keys, id, True, "", json)


def reject(
    id: str = ID,
    keys: Path = KEYS,
    why: str = typer.Option(..., "--why", help="The reason, which the member is told."),
    json: bool = JSON,
) -> None:
    """Stewards: turn a push down.

    Example:

      understudy exchange reject 0123456789abcdef --keys k --why "swapped"
    """
    _decide(keys, id, False, why, json)


def _decide(keys: Path, id: str, take: bool, why: str, json: bool) -> None:
    with plain_errors(json):
        found = client_of(keys).decide(id, take, why)
        print_json({"ok": True, "push": found}) if json else done(f"{id} is {found['state']}")


def members(keys: Path = KEYS, json: bool = JSON) -> None:
    """Stewards: list members, and what each has spent on which data.

    Example:

      understudy exchange members --keys my-keys
    """
    with plain_errors(json):
        found = client_of(keys).members()
        if json:
            print_json({"ok": True, "members": found})
            return
        rows = [
            [
                each["name"], each["role"], "revoked" if each["revoked"] else "",
                day(each["joined"]), each["fingerprint"],
                ", ".join(f"{b['dataset']} ε = {eps(b['epsilon'])}" for b in each["budgets"]),
            ]
            for each in found
        ]  # fmt: skip
        table(["member", "role", "", "since", "key", "spent"], rows)


def revoke(name: str = _MEMBER, keys: Path = KEYS, json: bool = JSON) -> None:
    """Admins: take nothing from this member any more.

    Example:

      understudy exchange revoke north --keys my-keys
    """
    with plain_errors(json):
        found = client_of(keys).revoke(name)
        print_json({"ok": True, **found}) if json else done(f"{name} is revoked")


def role(
    name: str = _MEMBER,
    role: str = typer.Argument(..., help="member, steward or admin."),
    keys: Path = KEYS,
    json: bool = JSON,
) -> None:
    """Admins: give a member another role.

    Example:

      understudy exchange role north steward --keys my-keys
    """
    with plain_errors(json):
        found = client_of(keys).change_role(name, role)
        print_json({"ok": True, **found}) if json else done(f"{name} has the role of {role} now")
