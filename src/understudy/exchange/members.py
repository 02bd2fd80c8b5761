"""Who may do what: invitations, identities, roles, and whether a request is from whom it says.

A member may push and pull; a steward may also decide on pushes; an admin may also invite, revoke
and change roles. Codes and tokens are kept as hashes only.
"""

from __future__ import annotations

import hashlib
import secrets
import time

from sqlalchemy import delete, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from understudy.exchange.auditlog import record
from understudy.exchange.models import Invitation, Member, Meta, Nonce, Pass
from understudy.exchange.refusal import Refused
from understudy.exchange.signing import WINDOW, Stamp, holds

__all__ = [
    "OPERATOR",
    "ROLES",
    "allow",
    "authenticate",
    "change_role",
    "enter",
    "exchange_id",
    "invite",
    "issue_link",
    "leave",
    "member_of",
    "revoke",
    "subscribe",
    "visitor",
]

ROLES = ("member", "steward", "admin")
OPERATOR = "operator"
"""Who acts on the machine of the service itself."""
_INVITED, _LINK, _BROWSER = 7 * 86_400.0, 120.0, 8 * 3_600.0  # seconds that each is good for


def hashed(secret: str) -> str:
    """What is kept of a code or token."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def exchange_id(session: Session) -> str:
    """What tells this exchange from others; it is part of what requests sign."""
    return session.get_one(Meta, "exchange").value


def invite(session: Session, by: str, role: str) -> tuple[str, float]:
    """A code that lets one person subscribe in this role, and until when."""
    if role not in ROLES:
        raise Refused(422, f"a role of {', '.join(ROLES)}", "another", "choose one of them")
    code, expires = secrets.token_hex(16), time.time() + _INVITED
    session.add(Invitation(code=hashed(code), role=role, by=by, expires=expires, used=None))
    record(session, by, "invite", role)
    return code, expires


def subscribe(session: Session, name: str, identity: str, code: str) -> Member:
    """Spend a code; the request was signed with the identity that is registered here."""
    found = session.get(Invitation, hashed(code))
    if found is None or found.used or found.expires < time.time():
        raise Refused(
            403, "an invitation that is still good", "none", "ask an admin for another code"
        )
    same = func.lower(Member.name) == name.lower()  # people could not tell them apart
    taken = select(Member).where(same | (Member.identity == identity))
    if name.lower() == OPERATOR or session.scalars(taken).first() is not None:
        raise Refused(
            409, "a name and a key of its own for each member", "one that is taken", "use another"
        )
    member = Member(name=name, identity=identity, role=found.role, joined=time.time(), revoked=None)
    session.add(member)
    found.used = name
    session.flush()
    record(session, name, "subscribe", found.role, identity=identity, invited_by=found.by)
    return member


def authenticate(
    session: Session, stamp: Stamp, method: str, target: str, body: bytes, identity: str = ""
) -> Member | None:
    """The member that signed this; with ``identity``, whoever has that key, known or not.

    The nonce is used up in the same transaction.
    """
    stamp.check_time()
    member = None if identity else session.get(Member, stamp.member)
    if member is None and not identity:
        raise Refused(401, "a member of this exchange", "an unknown one", "subscribe first")
    if member is not None and member.revoked is not None:
        raise Refused(403, "a member in good standing", "a revoked one", "ask an admin")
    key = member.identity if member else identity
    if not holds(key, stamp, exchange_id(session), method, target, body):
        raise Refused(
            401,
            "a signature by this member's key, of this request at this exchange",
            "one that does not hold",
            "sign with the key that subscribed",
        )
    _use_up(session, stamp)
    return member


def _use_up(session: Session, stamp: Stamp) -> None:
    session.execute(delete(Nonce).where(Nonce.expires < time.time()))
    session.add(Nonce(member=stamp.member, nonce=stamp.nonce, expires=stamp.time + 2.0 * WINDOW))
    try:
        session.flush()
    except IntegrityError as error:
        raise Refused(
            401, "a request that was not sent before", "one that was", "sign it again"
        ) from error


def allow(member: Member, *roles: str) -> None:
    """Refuse anybody whose role is not among these; an admin may do all."""
    if member.role not in (*roles, "admin"):
        asked = f"the role of {' or '.join(roles)}"
        raise Refused(403, asked, f"that of {member.role}", "ask somebody who has it")


def member_of(session: Session, name: str) -> Member:
    """The member of that name."""
    found = session.get(Member, name)
    if found is None:
        raise Refused(404, "a member of this exchange", "an unknown one", "look at the list")
    return found


def revoke(session: Session, by: str, name: str) -> None:
    """From now on nothing that this member signs is taken; what was accepted stays in the pool."""
    member = member_of(session, name)
    _keep_an_admin(session, member)
    member.revoked = time.time()
    session.execute(delete(Pass).where(Pass.member == name))
    record(session, by, "revoke", name)


def change_role(session: Session, by: str, name: str, role: str) -> None:
    """Give a member another role."""
    member = member_of(session, name)
    if role not in ROLES:
        raise Refused(422, f"a role of {', '.join(ROLES)}", "another", "choose one of them")
    if role != "admin":
        _keep_an_admin(session, member)
    record(session, by, "role", name, before=member.role, after=role)
    member.role = role


def _keep_an_admin(session: Session, member: Member) -> None:
    admins = select(Member.name).where(Member.role == "admin", Member.revoked.is_(None))
    if set(session.scalars(admins)) == {member.name}:
        raise Refused(409, "an admin besides", "the last one", "make another one first")


def issue_link(session: Session, member: Member) -> str:
    """A code that opens the pages once, within two minutes."""
    code = secrets.token_urlsafe(24)
    session.add(
        Pass(token=hashed(code), kind="link", member=member.name, expires=time.time() + _LINK)
    )
    return code


def enter(session: Session, code: str) -> tuple[str, int]:
    """Spend such a code: the token for a browser's cookie, and the seconds it is good for."""
    session.execute(delete(Pass).where(Pass.expires < time.time()))
    found = session.get(Pass, hashed(code))
    if found is None or found.kind != "link":
        raise Refused(
            403, "a link that was not used yet", "another", "understudy exchange open prints one"
        )
    token = secrets.token_urlsafe(32)
    session.delete(found)
    session.add(
        Pass(
            token=hashed(token), kind="browser", member=found.member, expires=time.time() + _BROWSER
        )
    )
    record(session, found.member, "sign in")
    return token, int(_BROWSER)


def visitor(session: Session, token: str) -> Member | None:
    """The member whose browser has this cookie."""
    found = session.get(Pass, hashed(token))
    if found is None or found.kind != "browser" or found.expires < time.time():
        return None
    member = session.get_one(Member, found.member)
    return member if member.revoked is None else None


def leave(session: Session, token: str) -> None:
    """Sign out."""
    found = session.get(Pass, hashed(token))
    if found is not None:
        record(session, found.member, "sign out")
        session.delete(found)
