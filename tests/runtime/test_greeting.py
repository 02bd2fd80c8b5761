from __future__ import annotations

import time
from dataclasses import asdict, replace

import pytest

from understudy.errors import WireError
from understudy.runtime.greeting import Farewell, Terms, kind_of, run_of
from understudy.runtime.wire import Agreement, Refused, encode_refusal, pack

AGREED = Agreement("s", "c", "p", "1.0")
OURS = Terms(AGREED, {"rounds": 3, "privacy": {"epsilon": 1.0}}, "roster", "os", 1000.0)
SAID = asdict(OURS)
HEAD = {"message": "hello", "site": "north", "run": "ab12"}


def test_terms_arrive_as_they_were_sent_with_the_time_at_which_they_were() -> None:
    data = OURS.encode("hello", "ab12", "north")
    found = Terms.decode(data, "hello", "north")
    assert replace(found, clock=1000.0) == OURS and abs(found.clock - time.time()) < 5
    assert (kind_of(data), run_of(data)) == ("hello", "ab12")


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (replace(OURS, study={"rounds": 3, "privacy": {"epsilon": 2.0}}), "privacy.epsilon is 1.0"),
        (replace(OURS, study={"rounds": 3, "privacy": {}}), "not set there"),
        (replace(OURS, agreement=replace(AGREED, schema="x")), "schema files differ"),
        (replace(OURS, agreement=replace(AGREED, version="2")), "differ: '1.0' here and '2' there"),
        (replace(OURS, agreement=replace(AGREED, plan="x")), "privacy plans differ"),
        (replace(OURS, roster="x"), "keys differ"),
        (replace(OURS, noise="simulation"), "noise comes from another source"),
    ],
)
def test_what_differs_is_named(theirs: Terms, said: str) -> None:
    with pytest.raises(WireError, match=said):
        OURS.check(theirs, "north", 1000.0)
    OURS.check(replace(theirs, **{n: getattr(OURS, n) for n in ("study", "agreement")},
                       roster="roster", noise="os"), "north", 1000.0)  # fmt: skip


@pytest.mark.parametrize(("clock", "said"), [(5000.0, "4000 s ahead"), (-3000.0, "4000 s behind")])
def test_clocks_that_differ_by_much_are_refused_with_the_fix(clock: float, said: str) -> None:
    OURS.check(replace(OURS, clock=1200.0), "north", 1000.0)
    with pytest.raises(WireError, match=rf"{said} there\. Do: set both clocks"):
        OURS.check(replace(OURS, clock=clock), "north", 1000.0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"UNDY",
        OURS.encode("hello", "ab12", "south"),
        OURS.encode("welcome", "ab12", "north"),
        pack({**HEAD, "terms": {"clock": 1}}, b""),
        pack(HEAD, b""),
        pack({**HEAD, "terms": SAID | {"study": 5}}, b""),
        pack({**HEAD, "terms": SAID | {"clock": "x"}}, b""),
        pack({**HEAD, "terms": SAID | {"agreement": 1}}, b""),
    ],
)
def test_other_messages_are_no_greeting(data: bytes) -> None:
    with pytest.raises(WireError):
        Terms.decode(data, "hello", "north")


@pytest.mark.parametrize("run", ["", "../../etc", "a b", "x" * 100, 3])
def test_a_run_is_no_path(run: object) -> None:
    with pytest.raises(WireError):
        run_of(pack({"message": "task", "run": run}, b""))


def test_a_farewell_and_its_signature_arrive() -> None:
    farewell = Farewell("ab12", "head", "model", b"{}")
    assert Farewell.decode(farewell.encode("north"), "north") == farewell
    answer = farewell.signed("north", b"signature")
    assert farewell.signature(answer, "north") == b"signature"
    with pytest.raises(WireError):
        farewell.signature(answer, "south")
    with pytest.raises(Refused, match="no"):
        farewell.signature(encode_refusal("no", AGREED, "north"), "north")
