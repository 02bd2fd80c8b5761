"""A site's end without a network: what it refuses, what it keeps, and what it answers."""

from __future__ import annotations

import re
import resource
import sys
import time
from io import StringIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
import studies
from parties import SITES, enrol

from understudy.cli import app
from understudy.cli.attending import _leaving
from understudy.deployment.attendance import Attendant
from understudy.deployment.joining import Joining, prepare
from understudy.deployment.keys import load_keys
from understudy.errors import BudgetError, KeysError, ReleaseError, StudyError, WireError
from understudy.federation.budget import Budget
from understudy.federation.sites import Sites
from understudy.privacy.ledger import Ledger
from understudy.runtime import flare, greeting
from understudy.runtime.greeting import Farewell, Terms, kind_of
from understudy.runtime.wire import Envelope, decode_sealed, encode_call
from understudy.study import Study

RUN, OTHER = "ab" * 16, "cd" * 16


def ready(folder: Path, *, cap: float | None = None, seed: int | None = None) -> Joining:
    study = Study.load(studies.write(folder, studies.VOTES))
    return prepare(study, folder / "north.csv", Budget("north", cap), folder / "state", None, seed)


def hello(site: Joining, run: str = RUN, **changes: object) -> bytes:
    terms = site.terms
    return Terms(**{**vars(terms), **changes}).encode("hello", run, "north")  # type: ignore[arg-type]


def task(site: Joining, run: str = RUN, round: int = 0) -> tuple[bytes, Envelope]:
    state = site.recipe.init(rng=site.sites.streams.child("init"))
    envelope = Envelope(site.agreement, run, "north", round)
    return encode_call(envelope, site.recipe.task(state, round)), envelope


def test_nothing_is_spent_before_the_first_answer(tmp_path: Path) -> None:
    site = ready(tmp_path)
    attendant = Attendant(site)
    assert kind_of(attendant.handle(hello(site))) == "welcome"
    book = tmp_path / "state" / "ledger.jsonl"
    with Ledger(book) as ledger:
        assert not ledger.entries
    message, envelope = task(site)
    decode_sealed(attendant.handle(message), envelope)
    with Ledger(book) as ledger:
        assert [entry["kind"] for entry in ledger.entries] == ["reserve", "join"]


def test_a_site_that_is_started_again_resends_the_same_bytes(tmp_path: Path) -> None:
    site = ready(tmp_path)
    message, _ = task(site)
    attendant = Attendant(site)
    first = attendant.handle(message)
    del attendant
    again = ready(tmp_path)
    assert again.run == RUN
    assert Attendant(again).handle(message) == first
    assert again.spent().before == again.spent().after > 0  # it is paid for, once


def test_another_run_of_the_study_is_refused_until_this_one_is_over(tmp_path: Path) -> None:
    site = ready(tmp_path)
    attendant = Attendant(site)
    attendant.handle(task(site)[0])
    del attendant
    again = Attendant(ready(tmp_path))
    assert kind_of(again.handle(hello(site, OTHER))) == "refusal"
    assert again.over.is_set() and "pay again" in str(again.error)
    last = Attendant(ready(tmp_path))
    farewell = Farewell(RUN, "head", "model", b"{}")
    assert kind_of(last.handle(farewell.encode("north"))) == "signed"
    assert last.over.is_set() and last.error is None
    after = ready(tmp_path)
    assert after.run == ""
    assert kind_of(Attendant(after).handle(hello(site, OTHER))) == "welcome"
    assert kind_of(Attendant(after).handle(task(site)[0])) == "refusal"  # the old one is over


def test_a_run_that_ended_before_round_one_gives_way_to_the_next(tmp_path: Path) -> None:
    site = ready(tmp_path)
    attendant = Attendant(site)
    assert kind_of(attendant.handle(hello(site, OTHER))) == "welcome"
    assert kind_of(attendant.handle(hello(site))) == "welcome"
    message, envelope = task(site)
    decode_sealed(attendant.handle(message), envelope)
    assert kind_of(attendant.handle(hello(site, OTHER))) == "refusal"  # now one is paid for


def test_a_run_whose_state_is_lost_is_never_answered_afresh(tmp_path: Path) -> None:
    site = ready(tmp_path)
    Attendant(site).handle(task(site)[0])
    for place in (tmp_path / "state").iterdir():
        if place.is_dir():
            place.rename(tmp_path / "lost")
    assert b"newest copy of the state folder" in Attendant(ready(tmp_path)).handle(task(site)[0])


def test_a_full_disk_spends_nothing_and_the_site_goes_on_when_there_is_room(tmp_path: Path) -> None:
    site = ready(tmp_path)
    attendant, (message, envelope) = Attendant(site), task(site)
    attendant.handle(hello(site))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        refused = attendant.handle(message)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert kind_of(refused) == "refusal" and b"room on disk" in refused
    with Ledger(tmp_path / "state" / "ledger.jsonl") as ledger:
        assert not ledger.entries
    decode_sealed(attendant.handle(message), envelope)


def test_a_site_that_dies_while_it_pays_pays_once_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ready(tmp_path)
    charge = type(site.sites).charge

    def dies(sites: Sites, *terms: object) -> None:
        charge(sites, *terms)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(Sites, "charge", dies)
    with pytest.raises(KeyboardInterrupt):
        Attendant(site).handle(task(site)[0])
    monkeypatch.undo()
    message, envelope = task(site)
    decode_sealed(Attendant(ready(tmp_path)).handle(message), envelope)
    with Ledger(tmp_path / "state" / "ledger.jsonl") as ledger:
        assert [entry["kind"] for entry in ledger.entries] == ["reserve", "join"]


def test_an_older_copy_of_the_ledger_is_refused(tmp_path: Path) -> None:
    site = ready(tmp_path)
    Attendant(site).handle(task(site)[0])
    (tmp_path / "state" / "ledger.jsonl").write_text("")
    with pytest.raises(ReleaseError, match="must never go back"):
        ready(tmp_path).spent()


def test_an_older_copy_of_the_state_draws_no_second_noise_for_a_round(tmp_path: Path) -> None:
    site = ready(tmp_path)
    Attendant(site).handle(task(site)[0])
    kept = next(path for path in (tmp_path / "state").glob("*/site.state"))
    older = kept.read_bytes()
    attendant = Attendant(ready(tmp_path))
    message, envelope = task(site, round=1)
    decode_sealed(attendant.handle(message), envelope)
    del attendant
    kept.write_bytes(older)
    refused = Attendant(ready(tmp_path))
    assert b"newest copy of the state folder" in refused.handle(message)
    kept.write_bytes(older)  # also where only the round itself is looked at
    with Ledger(tmp_path / "state" / "ledger.jsonl") as ledger:
        assert ledger.joined(RUN) == 1
        with pytest.raises(BudgetError, match="older copy of its state"):
            ledger.join(RUN, 1)


def test_a_server_that_means_something_else_is_told_so_and_left(tmp_path: Path) -> None:
    site = ready(tmp_path)
    attendant = Attendant(site)
    reply = attendant.handle(hello(site, noise="simulation"))
    assert kind_of(reply) == "welcome"  # so that the server can compare for itself
    assert attendant.over.is_set() and "noise comes from" in str(attendant.error)


def test_a_server_whose_clock_is_wrong_is_told_so_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ready(tmp_path)
    attendant, now = Attendant(site), time.time()
    with monkeypatch.context() as patched:
        patched.setattr(greeting, "time", SimpleNamespace(time=lambda: now - 4000))
        late = hello(site)
    reply = attendant.handle(late)
    assert kind_of(reply) == "refusal" and b"behind there" in reply
    assert attendant.over.is_set() and "timedatectl" in str(attendant.error)
    with Ledger(tmp_path / "state" / "ledger.jsonl") as ledger:
        assert not ledger.entries


def test_a_greeting_that_waits_for_an_earlier_answer_is_no_wrong_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site that trains for long answers the next greeting late, though it came in at once."""
    site = ready(tmp_path)
    attendant, message = Attendant(site), hello(site)
    monkeypatch.setattr(greeting, "_SKEW", 0.2)
    with attendant._lock:
        thread = Thread(target=attendant.handle, args=(message,))
        thread.start()
        time.sleep(0.5)
    thread.join()
    assert attendant.error is None


def test_a_run_above_the_cap_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        ready(tmp_path, cap=0.5)


def test_a_run_above_the_cap_with_earlier_ones_is_refused_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    cost = ready(tmp_path).spent().after
    site = ready(tmp_path, cap=1.5 * cost)
    assert site.spent().after == cost
    site.budget.charge("earlier", site.recipe.plan, "elsewhere")
    with pytest.raises(BudgetError, match="north"):
        site.spent()


def test_a_site_that_the_study_does_not_name_is_refused(tmp_path: Path) -> None:
    study = Study.load(studies.write(tmp_path, studies.VOTES))
    with pytest.raises(StudyError, match="north, south, east"):
        prepare(study, tmp_path / "north.csv", Budget("west"), tmp_path / "state", None)


def test_noise_comes_from_the_system_unless_a_test_seeds_it(tmp_path: Path) -> None:
    assert ready(tmp_path).terms.noise == "os"
    assert ready(tmp_path, seed=3).terms.noise == "simulation"


def test_errors_at_a_site_stay_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attendant = Attendant(ready(tmp_path))

    def secret(run: str) -> None:
        raise ValueError("age 47")

    monkeypatch.setattr(attendant, "_in", secret)
    assert b"47" not in attendant.handle(task(attendant.joining)[0])
    assert kind_of(attendant.handle(b"nonsense")) == "refusal"


def commanded(folder: Path, *options: object) -> tuple[int, str]:
    arguments = ("join", folder / "study.toml", "--data", folder / "north.csv", *options)
    done = CliRunner().invoke(app, [str(each) for each in arguments], terminal_width=200)
    return done.exit_code, re.sub(r"[\s│]+", " ", done.output)


def test_a_dry_run_shows_what_leaves_and_what_it_costs(tmp_path: Path) -> None:
    studies.write(enrol(tmp_path), studies.VOTES)
    code, said = commanded(tmp_path, "--keys", tmp_path / "north", "--cap", 9, "--dry-run")
    assert code == 0, said
    shown = ("what leaves north", "in each of 2 rounds", "Against the server", "the cap is 9")
    compared = (Study.load(tmp_path / "study.toml").hash, load_keys(tmp_path / "hub").fingerprint)
    for part in (*shown, *compared):
        assert part in said
    with Ledger(tmp_path / "north.understudy" / "ledger.jsonl") as book:
        assert not book.entries


@pytest.mark.parametrize("text", [studies.VOTES, studies.MOMENTS])
def test_no_answer_is_longer_than_what_a_dry_run_shows(tmp_path: Path, text: str) -> None:
    site = prepare(
        Study.load(studies.write(tmp_path, text)), tmp_path / "north.csv", Budget("north"),
        tmp_path / "state", None,
    )  # fmt: skip
    Console(width=300, file=(shown_at := StringIO())).print(_leaving(site))
    said = shown_at.getvalue().split("greeting")[0]
    shown = sum(1000 * float(size) for size in re.findall(r"up to ([\d.,]+) kB", said))
    reply = Attendant(site).handle(task(site)[0])
    assert shown / 4 < len(reply) <= shown


def test_a_site_may_say_no(tmp_path: Path) -> None:
    studies.write(enrol(tmp_path), studies.VOTES)
    arguments = ["join", tmp_path / "study.toml", "--data", tmp_path / "north.csv"]
    arguments += ["--keys", tmp_path / "north"]
    done = CliRunner().invoke(app, [str(each) for each in arguments], input="n\n")
    assert done.exit_code == 1 and "nothing was spent" in done.output


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), StudyError.exit_code, "--insecure"),
        (("--keys", "nowhere"), KeysError.exit_code, "understudy keys"),
        (("--insecure", "--site", "west", "--dry-run"), StudyError.exit_code, "north, south, east"),
        (("--insecure", "--site", "north", "--yes", "--server", "hub"), 4, "HOST:PORT"),
        (("--insecure", "--site", "north", "--cap", "0.1", "--dry-run"), 6, "cap"),
    ],
)
def test_bad_options_are_refused(
    tmp_path: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    studies.write(tmp_path, studies.VOTES)
    found, text = commanded(tmp_path, *options)
    assert found == code and said in text


def test_flare_is_missed_before_anything_is_read_or_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies.write(tmp_path, studies.VOTES)
    monkeypatch.setattr(flare, "FLARE", "9.9.9")
    (tmp_path / "north.csv").unlink()
    code, text = commanded(tmp_path, "--insecure", "--site", "north")
    assert code == StudyError.exit_code and "pip install -e '.[federated]'" in text


def test_another_schema_at_a_site_is_named_at_both_ends_and_costs_nothing(tmp_path: Path) -> None:
    site = ready(tmp_path)
    theirs = hello(site)
    schema = tmp_path / "schema.toml"
    schema.write_text(schema.read_text().replace("high = 100", "high = 120"))
    other = prepare(
        Study.load(tmp_path / "study.toml"), tmp_path / "north.csv", Budget("north"),
        tmp_path / "state", None,
    )  # fmt: skip
    attendant = Attendant(other)
    reply = attendant.handle(theirs)
    assert attendant.over.is_set() and "schema files differ" in str(attendant.error)
    with pytest.raises(WireError, match="schema files differ"):
        site.terms.check(Terms.decode(reply, "welcome", "north"), "north", time.time())
    with Ledger(tmp_path / "state" / "ledger.jsonl") as ledger:
        assert not ledger.entries


@pytest.mark.parametrize("name", ["site.state", "ledger.jsonl"])
def test_a_file_that_was_cut_off_is_refused_and_nothing_is_drawn_anew(
    tmp_path: Path, name: str
) -> None:
    site = ready(tmp_path)
    message, _ = task(site)
    Attendant(site).handle(message)
    (found,) = (tmp_path / "state").rglob(name)
    found.write_bytes(found.read_bytes()[:-10])
    with pytest.raises(ReleaseError, match=r"damaged|must never go back"):
        again = ready(tmp_path)
        again.spent()


def test_a_simulation_still_needs_the_rows_of_every_site(tmp_path: Path) -> None:
    from understudy import run

    study = Study.load(studies.write(tmp_path, studies.VOTES))
    with pytest.raises(StudyError, match=r"site\.data of site north.*serve"):
        run(study)
    assert len(study.sites) == len(SITES)


def test_one_run_id_is_paid_for_by_each_state_that_joins_it(tmp_path: Path) -> None:
    """The server chooses ids: two that are equal must not cost as one."""
    study = Study.load(studies.write(tmp_path, studies.VOTES))
    budget = Budget("north", ledger=tmp_path / "north.jsonl")
    pair = []
    for place in ("one", "two"):
        site = prepare(study, tmp_path / "north.csv", budget, tmp_path / place, None)
        pair.append((site, Attendant(site)))
    for site, attendant in pair:
        assert kind_of(attendant.handle(hello(site))) == "welcome"
    replies = [attendant.handle(task(site)[0]) for site, attendant in pair]
    assert b'"sealed"' in replies[0] and kind_of(replies[1]) == "refusal"


def test_only_the_end_of_a_run_that_was_answered_is_signed_and_once(tmp_path: Path) -> None:
    site = ready(tmp_path)
    attendant = Attendant(site)
    attendant.handle(hello(site))
    bye = Farewell(RUN, "0" * 64, "model", b"{}")
    assert kind_of(attendant.handle(bye.encode("north"))) == "refusal"
    attendant.handle(task(site)[0])
    assert kind_of(attendant.handle(bye.encode("north"))) == "signed"
    assert kind_of(attendant.handle(bye.encode("north"))) == "signed"
    other = Farewell(RUN, "0" * 64, "model", b'{"another": 1}')
    assert kind_of(attendant.handle(other.encode("north"))) == "refusal"


def test_the_cap_of_the_study_file_is_the_sites(tmp_path: Path) -> None:
    path = studies.write(tmp_path, studies.VOTES)
    path.write_text(path.read_text().replace('name = "north"\n', 'name = "north"\nepsilon = 0.1\n'))
    code, said = commanded(tmp_path, "--insecure", "--site", "north", "--dry-run")
    assert code == BudgetError.exit_code and "cap" in said


@pytest.mark.parametrize("trust", ["central", "distributed"])
def test_what_is_not_private_on_its_way_needs_keys(tmp_path: Path, trust: str) -> None:
    text = studies.MOMENTS.replace('trust = "local"', f'trust = "{trust}"')
    study = Study.load(studies.write(tmp_path, text, name=trust))
    with pytest.raises(KeysError, match="not private on its way"):
        prepare(study, tmp_path / "north.csv", Budget("north"), tmp_path / "state", None)
