"""Take a safeguard of the exchange away: the test of what it refuses fails, so it rests on it.

Each is taken away in the text of one function, and its test is run again.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from exchange import test_admission as admission_tests
from exchange import test_integrity as integrity_tests
from exchange import test_service as service_tests
from exchange.conftest import Join
from understudy.exchange import access, admission, members, pool, pushes, service
from understudy.exchange.blobs import Blobs
from understudy.exchange.models import Member
from understudy.exchange.rates import Rates
from understudy.exchange.signing import Stamp
from understudy.release import archive

LOADED = 'type("", (), {"release": release, "checks": ("it leads to it",), "notes": ()})()'
TESTS = {
    name: test
    for module in (admission_tests, service_tests, integrity_tests)
    for name, test in vars(module).items()
    if name.startswith("test_")
}
REQUIRED = "test_what_does_not_meet_the_requirements_is_refused"
SIGNED = "test_what_is_not_signed_for_this_request_is_refused_and_logged"
UPLOADS = "test_oversized_truncated_and_altered_uploads_are_refused"
CLAIMS = "test_no_claim_and_noise_from_a_seed_are_refused"
FULL = "test_a_disk_that_is_full_when_a_push_is_admitted_refuses_it"
WAY = "test_a_generator_is_pushed_approved_and_pulled"

Safeguard = tuple[Callable[..., Any], str, str, str, dict[str, Any]]


def guard(function: Callable[..., Any], text: str, test: str, **given: Any) -> Any:
    """A condition that is never met, or a line that does nothing."""
    instead = "if False:" if text.startswith("if ") else "pass"
    return swap(function, text, instead, test, **given)


def swap(function: Callable[..., Any], text: str, instead: str, test: str, **given: Any) -> Any:
    return pytest.param((function, text, instead, test, given), id=f"{function.__name__}: {text}")


def lacking(change: dict[str, Any], found: str = "-") -> dict[str, Any]:
    return {"change": change, "found": found}


GUARDS = [
    # what a push has to be
    swap(admission._check_claim, "claim.epsilon is None", "False", CLAIMS),
    guard(
        admission._check_manifest,
        'if manifest.get("source") != "os" and not rules.simulated:',
        CLAIMS,
    ),
    guard(
        admission.examine,
        "_check_total(claim, together, rules, len(earlier))",
        "test_the_cap_is_on_all_pushes_together",
    ),
    swap(
        admission.examine,
        "[*(Share.from_dict(each) for each in earlier), own]",
        "[own]",
        "test_the_cap_is_on_all_pushes_together",
    ),
    swap(
        admission.examine,
        "verify(path)",
        LOADED,
        "test_forged_claims_and_receipts_are_refused",
    ),
    guard(
        admission.examine,
        "_check_sample(checked)",
        "test_a_sample_that_nobody_can_draw_again_is_refused",
    ),
    guard(admission.examine, "_check_rows(release)", "test_a_generator_that_draws_nan_is_refused"),
    guard(
        admission.examine,
        "_check_sizes(archive)",
        "test_files_far_smaller_than_a_reader_would_take_are_too_large",
    ),
    guard(
        admission._check_manifest,
        'if manifest.get("schema") != rules.schema:',
        REQUIRED,
        **lacking({"schema": "0" * 64}),
    ),
    guard(
        admission._check_claim,
        "if claim.unit != rules.unit:",
        REQUIRED,
        **lacking({"unit": "site"}),
    ),
    guard(
        admission._check_claim,
        "if plan.trust not in rules.trust:",
        REQUIRED,
        **lacking({"trust": ("central",)}),
    ),
    guard(
        admission._check_claim,
        "if claim.delta > rules.delta:",
        REQUIRED,
        **lacking({"delta": 1e-9}, "δ of at most"),
    ),
    guard(
        admission._check_claim,
        "if rules.kinds and release.generator.kind not in rules.kinds:",
        REQUIRED,
        **lacking({"kinds": ("decoder",)}),
    ),
    guard(
        admission._check_manifest,
        "if type(rows) is not int or not 0 <= rows <= rules.sample_rows:",
        REQUIRED,
        **lacking({"sample_rows": 3}),
    ),
    swap(archive._unzipped, "_zipped(files) != data", "False", "test_a_zip_that_swells_is_refused"),
    swap(
        archive._unzipped,
        "_zipped(files) != data",
        "False",
        "test_paths_that_lead_elsewhere_are_refused",
    ),
    # uploads
    guard(pushes.begin, "if not 0 < size <= most:", UPLOADS),
    guard(pushes.receive, "if there + len(data) > push.size:", UPLOADS),
    guard(pushes.finish, "if file_hash(exchange.blobs.upload(id)) != push.sha256:", UPLOADS),
    guard(
        service.Guard.__call__,
        "if taken > most:",
        "test_a_body_larger_than_a_piece_is_refused_and_logged",
    ),
    guard(
        pushes.begin,
        "dataset = dataset.lower()",
        "test_a_dataset_under_another_case_is_the_same_data",
    ),
    guard(
        pushes._checked,
        "if [other.id for other in _earlier(session, push)] != [other.id for other in earlier]:",
        "test_two_pushes_that_are_checked_at_once_do_not_both_spend_what_is_left",
    ),
    swap(
        Blobs.append,
        "os.truncate(path, offset)",
        "pass",
        "test_a_full_disk_refuses_a_piece_and_loses_nothing",
    ),
    guard(pushes._admit, "return _refuse(exchange, session, push, why)", FULL),
    swap(Blobs.keep, "partial.unlink(missing_ok=True)", "pass", FULL),
    # who may do what
    guard(
        pool.pull, "if push.member != member.name and not may_pull(exchange, session, member):", WAY
    ),
    guard(members.allow, 'if member.role not in (*roles, "admin"):', WAY),
    guard(
        pushes.decide,
        "if approve and push.member == steward.name:",
        "test_nobody_approves_a_push_of_its_own",
    ),
    guard(
        members.authenticate,
        "if member is not None and member.revoked is not None:",
        "test_a_revoked_member_is_turned_away",
    ),
    guard(Rates.take, "if left < 1:", "test_too_many_requests_are_told_to_wait"),
    # signed requests
    guard(members.authenticate, "_use_up(session, stamp)", SIGNED, ask=service_tests.replayed),
    guard(Stamp.check_time, "if abs(apart) > WINDOW:", SIGNED, ask=service_tests.late),
    *(
        guard(
            members.authenticate,
            "if not holds(key, stamp, exchange_id(session), method, target, body):",
            SIGNED,
            ask=ask,
        )
        for ask in (
            service_tests.other_path,
            service_tests.other_body,
            service_tests.other_exchange,
            service_tests.borrowed_name,
        )
    ),
    # pages
    guard(
        access._form,
        'if not own or request.headers.get("sec-fetch-site", "same-origin") != "same-origin":',
        "test_a_steward_decides_on_the_page_and_forms_of_others_do_not",
    ),
]


@pytest.mark.parametrize("safeguard", GUARDS)
def test_without_it_its_test_fails(
    safeguard: Safeguard, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, text, instead, test, given = safeguard
    names = inspect.signature(TESTS[test]).parameters.keys() - given.keys()
    given = {**given, **{name: request.getfixturevalue(name) for name in names}}
    without(monkeypatch, function, text, instead)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        TESTS[test](**given)


def without(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], text: str, instead: str
) -> None:
    """The same function with other words in one place, for all who have imported it."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(text) == 1
    made: dict[str, Any] = {}
    exec(source.replace(text, instead), function.__globals__, made)
    monkeypatch.setattr(function, "__code__", made[function.__name__].__code__)


@pytest.mark.parametrize("ask", [service_tests.unsigned, service_tests.unknown])
def test_without_any_look_at_who_asks_strangers_are_answered(
    join: Join, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]
) -> None:
    north = join("north")
    assert ask(north).status_code == 401
    known = Member(name="north", identity=north.identity, role="member")
    monkeypatch.setattr(access, "signed_by", lambda *_: known)
    assert ask(north).status_code == 200
