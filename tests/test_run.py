from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from contracts.toys import ToyMean, plain, records, rows, schema, study, toys
from understudy.data.table import from_frame, write
from understudy.errors import (
    BudgetError,
    DataError,
    OutputError,
    PrivacyError,
    ReleaseError,
    StudyError,
    UnderstudyError,
)
from understudy.nets.stacked import torch_threads
from understudy.privacy.account import cost
from understudy.privacy.ledger import Ledger, read_entries, receipts_in
from understudy.release import archive
from understudy.release.verify import verify
from understudy.runtime import in_process
from understudy.simulation import run, run_apart, simulate
from understudy.study import Study

__all__ = ["toys"]
pytestmark = pytest.mark.usefixtures("toys")


def toy(recipe: str = "toy-mean", **tables) -> Study:
    tables.setdefault("privacy", {"noise": 4.0})
    return study(recipe, 4, **tables)


def charged(out: Path) -> list[int]:
    text = (out / "ledger.jsonl").read_text()
    return [r.round for r in receipts_in(list(read_entries(text)))]


def test_a_run_ends_in_a_release_that_verifies(tmp_path: Path) -> None:
    release = run(toy(), rows(4), out=tmp_path / "out", rows=20)
    assert [p.name for p in tmp_path.iterdir()] == ["out"], "the private folder is still there"
    verdict = verify(tmp_path / "out")
    assert verdict.release.claims == release.claims
    assert release.source == "os"
    assert charged(tmp_path / "out") == [0, 1, 2]


def test_a_release_says_nothing_of_who_took_part(tmp_path: Path) -> None:
    run(toy(cohort={"rate": 0.5}), rows(4), out=tmp_path / "out", rows=5)
    manifest = json.loads((tmp_path / "out" / "release.json").read_text())
    assert manifest["agreement"].pop("cohort") == {"rate": 0.5}, "more than the public rate"
    for path in (tmp_path / "out").glob("*.json*"):
        text = json.dumps(manifest) if path.name == "release.json" else path.read_text()
        for word in ("cohort", "allowance", "received", "counts", "root", "seed"):
            assert f'"{word}"' not in text, f"{path.name} holds {word}"


def test_the_ledger_is_the_same_whatever_the_rows(tmp_path: Path) -> None:
    ledgers = [
        run(toy(), [records(n, seed=n) for n in sizes], seed=1).ledger
        for sizes in ((1, 2, 3, 4), (9, 0, 0, 1))
    ]
    assert ledgers[0] == ledgers[1]


def test_a_seed_repeats_a_run_and_marks_it(tmp_path: Path) -> None:
    found = [way(toy(), rows(4), seed=s) for s, way in ((5, run), (5, run_apart), (6, run))]
    means = [release.generator.arrays["mean"] for release in found]
    assert torch.equal(means[0], means[1]), "the wire changed the result"
    assert not torch.equal(means[0], means[2])
    assert {release.source for release in found} == {"simulation"}
    assert any("simulation" in c for c in found[0].claims[0].caveats)


def test_two_cores_make_the_release_of_one(tmp_path: Path) -> None:
    """FedVAE's encoders stay with the sites, in a file that forks do not write to."""
    public = schema()
    asked = {
        "study": {"name": "s", "recipe": "fedvae", "rounds": 3},
        "privacy": {"noise": 1.0},
        "recipe": {"widths": [4], "decoder_widths": [4], "latent": 2, "warm_start": 0.0},
        "simulation": {"data": "-", "sites": 6},
    }
    found = []
    for cores in (1, 2):
        with torch_threads(cores), pytest.MonkeyPatch.context() as patched:
            patched.setattr(in_process, "_WORTH", 1)
            made = Study.parse(asked, schema=public)
            found.append(run(made, rows(6), seed=0, out=tmp_path / str(cores)))
        assert not active_children()
    assert found[0].model_hash == found[1].model_hash


@pytest.mark.parametrize("masks", ["off", "checked"])
def test_a_run_without_masks_does_not_claim_them(tmp_path: Path, masks: str) -> None:
    simulation = {"data": "-", "sites": 4, "masks": masks}
    terms = {"privacy": {"noise": 4.0, "trust": "distributed"}, "simulation": simulation}
    run(toy("toy-sum", **terms), rows(4), out=tmp_path / "out", rows=5)
    found = verify(tmp_path / "out").release.claims
    bare = any("without masks" in caveat for caveat in found[0].caveats)
    assert bare == (masks == "off")
    assert all(("only sums under masks are seen" in claim.trust) != bare for claim in found)


def test_named_sites_are_summed_under_masks(tmp_path: Path) -> None:
    release = run(hospital(tmp_path, "distributed", names="abcd", recipe="toy-sum"), rows=5)
    assert release.ran == "one process"


def test_without_a_seed_no_two_runs_agree() -> None:
    a, b = (run(toy(), rows(4)).generator.arrays["mean"] for _ in range(2))
    assert not torch.equal(a, b)


# Nothing is overwritten, nothing is left behind.


@pytest.mark.parametrize("name", ["out", "out.zip"])
def test_an_existing_output_is_never_touched(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match="exists"):
        run(toy(), rows(4), out=tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_an_output_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="parent"):
        run(toy(), rows(4), out=tmp_path / "no" / "out")
    assert not list(tmp_path.iterdir())


def unreachable() -> tuple:
    asked = toy(
        study={"rounds": 10**6},
        privacy={"epsilon": 1e-4, "delta": 1e-9},
        cohort={"rate": 0.9},
    )
    return asked, rows(4), {}


def bad_rows() -> list:
    frame = records(4).frame.copy()
    frame["height"] = np.nan
    from understudy.data.records import Records

    return [*rows(3), Records(frame=frame)]


@pytest.mark.parametrize(
    "make, kind",
    [
        (lambda: (toy("nothing"), rows(4), {}), StudyError),
        (lambda: (toy(), rows(3), {}), StudyError),
        (lambda: (toy(), bad_rows(), {}), DataError),
        (lambda: (toy(), rows(4), {"rows": -1}), UnderstudyError),
        (lambda: (toy(), rows(4), {"rows": 10**7}), UnderstudyError),
        (lambda: (toy(privacy={"unit": "record"}), rows(4), {}), PrivacyError),
        (
            lambda: (
                toy(privacy={"trust": "distributed", "noise": 1.0, "colluders": 3}),
                rows(4),
                {},
            ),
            PrivacyError,
        ),
        (unreachable, PrivacyError),
        (lambda: (toy(privacy={"delta": 0.25, "noise": 1.0}), rows(4), {}), PrivacyError),
        (lambda: (toy(), None, {}), UnderstudyError),
    ],
    ids=[
        "recipe",
        "sites",
        "nan",
        "rows",
        "many rows",
        "unit",
        "trust",
        "epsilon",
        "delta",
        "file",
    ],
)
def test_what_cannot_run_leaves_nothing_behind(tmp_path: Path, make, kind) -> None:
    asked, data, extra = make()
    with pytest.raises(kind):
        run(asked, data, out=tmp_path / "out", **extra)
    assert not list(tmp_path.iterdir())


# Interruptions.


def press(at: int):
    def progress(doing: str, done: int, total: int) -> None:
        if doing == "training" and done == at:
            raise KeyboardInterrupt

    return progress


def test_ctrl_c_keeps_the_state_and_resume_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(toy(), rows(4), out=out, progress=press(2))
    kept = tmp_path / "out.partial"
    assert kept.stat().st_mode & 0o077 == 0, "others can read the private folder"
    assert charged(kept) == [0, 1] and not out.exists()
    with pytest.raises(OutputError, match="interrupted run"):
        run(toy(), rows(4), out=out)
    assert charged(kept) == [0, 1]
    run(toy(), rows(4), out=out, resume=True)
    assert charged(out) == [0, 1, 2] and not kept.exists()
    verify(out)


def test_ctrl_c_before_the_first_round_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(toy(), rows(4), out=tmp_path / "out", progress=press(0))
    assert not list(tmp_path.iterdir())


def test_there_is_nothing_to_resume_where_nothing_was_begun(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="leave out --resume"):
        run(toy(), rows(4), out=tmp_path / "out", resume=True)
    assert not list(tmp_path.iterdir())


def test_only_the_same_study_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(toy(), rows(4), out=out, progress=press(1))
    with pytest.raises(StudyError, match="interrupted"):
        run(toy(privacy={"noise": 0.1}), rows(4), out=out, resume=True)
    assert charged(tmp_path / "out.partial") == [0]
    run(toy(), rows(4), out=out, resume=True)


@pytest.mark.parametrize("begun", [None, 3])
def test_a_run_is_not_resumed_under_another_seed(tmp_path: Path, begun: int | None) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(toy(), rows(4), out=out, seed=begun, progress=press(1))
    with pytest.raises(StudyError, match="seed"):
        run(toy(), rows(4), out=out, seed=4, resume=True)
    assert charged(tmp_path / "out.partial") == [0]
    run(toy(), rows(4), out=out, seed=begun, resume=True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\x00"])
def test_a_damaged_note_of_the_run_stops_it_and_stays(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(toy(), rows(4), out=tmp_path / "out", progress=press(1))
    note = tmp_path / "out.partial" / "run.json"
    note.write_text(text)
    with pytest.raises(ReleaseError, match=r"run\.json"):
        run(toy(), rows(4), out=tmp_path / "out", resume=True)
    assert charged(tmp_path / "out.partial") == [0]


def test_a_failed_resume_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "mine").touch()
    with pytest.raises(DataError):
        run(toy(), bad_rows(), out=tmp_path / "out", resume=True)
    assert (tmp_path / "out.partial" / "mine").exists()


def test_a_disk_that_is_full_from_the_start_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(OutputError, match="No space"):
        run(toy(), rows(4), out=tmp_path / "out")


def test_a_plan_that_changed_under_an_interrupted_run_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(toy(), rows(4), out=out, progress=press(1))
    build = ToyMean.build.__func__

    def other(cls, study: Study) -> ToyMean:
        made = build(cls, study)
        return cls(made.schema, made.plan.with_noise(0.01))

    monkeypatch.setattr(ToyMean, "build", classmethod(other))
    with pytest.raises(ReleaseError, match="plan"):
        run(toy(), rows(4), out=out, resume=True)
    assert charged(tmp_path / "out.partial") == [0]


def test_a_resumed_seeded_run_draws_other_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from understudy.rng import Draws

    draws: list[bytes] = []
    normal = Draws.normal

    def note(self: Draws, shape: tuple[int, ...]) -> np.ndarray:
        drawn = normal(self, shape)
        draws.append(drawn.tobytes())
        return drawn

    monkeypatch.setattr(Draws, "normal", note)
    for attempt in range(3):
        try:
            run(
                toy(study={"rounds": 5}),
                rows(4),
                out=tmp_path / "out",
                seed=3,
                resume=attempt > 0,
                progress=press(attempt + 1),
            )
        except KeyboardInterrupt:
            pass
    assert len(set(draws)) == len(draws) == 3


KILL = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from contracts.toys import TOYS, ToyMean, rows, study
from understudy.recipes import RECIPES
from understudy.simulation import run
RECIPES.update(TOYS)
step = ToyMean.step
def die(self, state, total, *, rng):
    folder = Path(sys.argv[2]).with_name("out.partial")
    if (folder / "checkpoint").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, state, total, rng=rng)
ToyMean.step = die
study = study("toy-mean", 4, privacy={"noise": 4.0})
run(study, rows(4), out=sys.argv[2])
"""


def test_a_run_killed_by_the_system_is_resumed_without_spending_twice(tmp_path: Path) -> None:
    out, tests = tmp_path / "out", Path(__file__).parent
    command = [sys.executable, "-c", KILL, str(tests), str(out)]
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert charged(tmp_path / "out.partial") == [0, 1]
    run(toy(), rows(4), out=out, resume=True)
    assert charged(out) == [0, 1, 2], "a round was charged twice or not at all"
    verify(out)


def test_a_full_disk_at_the_end_costs_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(files: dict, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "out"
    monkeypatch.setattr(archive, "_save_folder", full)
    with pytest.raises(OutputError, match="No space"):
        run(toy(), rows(4), out=out)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules["understudy.recipes"].RECIPES, "toy-mean", ToyMean)
    before = charged(tmp_path / "out.partial")
    run(toy(), rows(4), out=out, resume=True)
    assert charged(out) == before == [0, 1, 2]
    verify(out)


def test_a_full_disk_in_a_round_stops_before_noise_and_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, calls = os.fsync, Counter()

    def full(fd: int) -> None:
        calls["sync"] += 1
        if calls["sync"] == 3:  # the opening, the first round, then
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(fd)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="room on disk"):
            run(toy(), rows(4), out=out)
    assert charged(tmp_path / "out.partial") == [0]
    run(toy(), rows(4), out=out, resume=True)
    assert charged(out) == [0, 1, 2]


# A release needs its charges.


def test_without_charges_there_is_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "charge", lambda self, receipts: None)
    with pytest.raises(UnderstudyError, match="charge"):
        run(toy(), rows(4), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_charges_that_promise_less_noise_give_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    charge = Ledger.charge
    monkeypatch.setattr(
        Ledger, "charge", lambda self, rs: charge(self, tuple(replace(r, std=0.1) for r in rs))
    )
    with pytest.raises(UnderstudyError, match="promise"):
        run(toy(), rows(4), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# Sites with files, caps and ledgers of their own.


def hospital(tmp_path: Path, trust: str = "local", names: str = "ab", **extra) -> Study:
    """Named sites; ``extra`` maps a name to the rest of its entry."""
    sites = []
    for i, name in enumerate(names):
        if not (tmp_path / f"{name}.csv").exists():
            write(records(5, seed=i, kind=plain()), tmp_path / f"{name}.csv")
        entry = {"name": name, "data": f"{name}.csv", "ledger": f"{name}.ledger"}
        sites.append({**entry, **extra.get(name, {})})
    privacy = extra.get("privacy", {"noise": 4.0})
    data = {
        "study": {"name": "hospitals", "recipe": extra.get("recipe", "toy-mean")},
        "privacy": {"trust": trust, **privacy},
        "site": sites,
    }
    return Study.parse(data, schema=plain(), base=tmp_path)


def spent(tmp_path: Path, name: str) -> float:
    with Ledger(tmp_path / f"{name}.ledger") as ledger:
        return cost(ledger.spent(), 1e-5).epsilon


def test_a_sites_own_ledger_is_charged_with_the_promise(tmp_path: Path) -> None:
    release = run(hospital(tmp_path), out=tmp_path / "out")
    assert spent(tmp_path, "a") == pytest.approx(release.claims[0].epsilon, rel=1e-6)
    assert spent(tmp_path, "a") == spent(tmp_path, "b")
    for name in "ab":
        text = (tmp_path / f"{name}.ledger").read_text()
        assert text.count("\n") == 2 and text.count('"reserve"') == 1 and '"counts"' not in text


def test_a_cap_below_the_study_joins_fewer_rounds_or_adds_noise(tmp_path: Path) -> None:
    full = run(hospital(tmp_path)).claims[0].epsilon
    for name in "ab":
        (tmp_path / f"{name}.ledger").unlink()
    run(hospital(tmp_path, a={"epsilon": full * 0.8}))
    assert spent(tmp_path, "a") <= full * 0.8 < spent(tmp_path, "b")
    for name in "ab":
        (tmp_path / f"{name}.ledger").unlink()
    run(hospital(tmp_path, a={"epsilon": 1.0}, privacy={"epsilon": 3.0}))
    assert spent(tmp_path, "a") <= 1.0 < 2.9 < spent(tmp_path, "b") <= 3.0


@pytest.mark.slow
def test_a_cap_on_steps_limits_the_rounds_since_steps_are_noised_as_planned(
    tmp_path: Path,
) -> None:
    privacy = {"unit": "record", "epsilon": 1.0}
    asked = hospital(tmp_path, recipe="toy-step", privacy=privacy)
    full = run(asked).claims[0].epsilon
    for name in "ab":
        (tmp_path / f"{name}.ledger").unlink()
    capped = hospital(tmp_path, recipe="toy-step", privacy=privacy, a={"epsilon": full * 0.9})
    run(capped)
    with Ledger(tmp_path / "a.ledger") as a, Ledger(tmp_path / "b.ledger") as b:
        (own,), (other,) = a.spent(), b.spent()
    assert own.noise == other.noise, "promised more noise than the step slot adds"
    assert own.count < other.count


@pytest.mark.parametrize("trust", ["central", "none"])
def test_a_cap_that_cannot_be_kept_refuses_the_study(tmp_path: Path, trust: str) -> None:
    privacy = {"noise": 0.5} if trust == "central" else {}
    asked = hospital(tmp_path, trust, b={"epsilon": 1.0}, privacy=privacy)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BudgetError, match="cap"):
        run(asked, out=tmp_path / "out")
    left = [p for p in tmp_path.iterdir() if p.suffix != ".ledger" or p.stat().st_size]
    assert sorted(left) == before


def test_a_run_without_noise_is_written_into_the_sites_ledgers(tmp_path: Path) -> None:
    run(hospital(tmp_path, "none", privacy={}))
    assert spent(tmp_path, "a") == float("inf")
    with pytest.raises(BudgetError):
        run(hospital(tmp_path, a={"epsilon": 1e6}))


def test_a_cap_holds_across_studies_and_one_refusal_charges_nobody(tmp_path: Path) -> None:
    epsilon = run(hospital(tmp_path)).claims[0].epsilon
    ledgers = [(tmp_path / f"{n}.ledger").read_bytes() for n in "ab"]
    tight = hospital(tmp_path, b={"epsilon": epsilon * 1.01})
    with pytest.raises(BudgetError, match="spent already"):
        run(tight, out=tmp_path / "out")
    assert [(tmp_path / f"{n}.ledger").read_bytes() for n in "ab"] == ledgers
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()
    run(hospital(tmp_path, b={"epsilon": epsilon * 3}), out=tmp_path / "out")


def test_a_resumed_run_charges_its_sites_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(hospital(tmp_path), out=tmp_path / "out", progress=press(2))
    before = spent(tmp_path, "a")
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)
    assert spent(tmp_path, "a") == before


def test_a_run_cut_short_after_its_sites_were_charged_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self, *, rng):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ToyMean, "init", broken)
        with pytest.raises(KeyboardInterrupt):
            run(hospital(tmp_path), out=tmp_path / "out")
    before = spent(tmp_path, "a")
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)
    assert spent(tmp_path, "a") == before, "the sites paid twice for one run"


def test_a_sites_ledger_in_use_elsewhere_stops_the_run(tmp_path: Path) -> None:
    with Ledger(tmp_path / "b.ledger"), pytest.raises(OutputError, match="another process"):
        run(hospital(tmp_path), out=tmp_path / "out")
    with Ledger(tmp_path / "a.ledger") as ledger:
        assert not ledger.entries
    assert not (tmp_path / "out.partial").exists()


def test_bad_rows_are_laid_at_their_sites_door_without_quoting_them(tmp_path: Path) -> None:
    frame = records(3, kind=plain()).frame.assign(ill=["no", "secret-value", "yes"])
    asked = hospital(tmp_path)
    pd.DataFrame(frame).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(DataError, match="site b") as refusal:
        run(asked, out=tmp_path / "out")
    assert "secret-value" not in str(refusal.value)
    assert not (tmp_path / "out.partial").exists() and not (tmp_path / "a.ledger").exists()


# What the sites' ledgers and the run's own remember of each other.


def cut(tmp_path: Path, at: int, **terms) -> Path:
    """A run of the two hospitals that was interrupted; its private folder."""
    with pytest.raises(KeyboardInterrupt):
        run(hospital(tmp_path, **terms), out=tmp_path / "out", progress=press(at))
    return tmp_path / "out.partial"


@pytest.mark.parametrize("at", [1, 2])
def test_an_old_note_of_a_run_alone_gives_no_second_release(tmp_path: Path, at: int) -> None:
    note = (cut(tmp_path, at) / "run.json").read_bytes()
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)
    before = (tmp_path / "a.ledger").read_bytes()
    (tmp_path / "again.partial").mkdir()
    (tmp_path / "again.partial" / "run.json").write_bytes(note)
    for _ in range(2):  # the refusal must not leave what would let the next attempt pass
        with pytest.raises(ReleaseError, match="ledger"):
            run(hospital(tmp_path), out=tmp_path / "again", resume=True)
    assert (tmp_path / "a.ledger").read_bytes() == before and not (tmp_path / "again").exists()


def test_a_lost_run_ledger_is_refused_where_a_site_has_paid_for_the_run(tmp_path: Path) -> None:
    folder = cut(tmp_path, 1)
    for name in ("ledger.jsonl", "reserved", "cohort.json"):
        (folder / name).unlink()
    kept = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**kept, "heads": {}}))
    with pytest.raises(ReleaseError, match="paid for, says the ledger of site a"):
        run(hospital(tmp_path), out=tmp_path / "out", resume=True)


def test_a_release_is_written_into_each_sites_ledger(tmp_path: Path) -> None:
    release = run(hospital(tmp_path), out=tmp_path / "out")
    head = list(read_entries(release.ledger))[-1]["hash"]
    for name in "ab":
        with Ledger(tmp_path / f"{name}.ledger") as ledger:
            reserved, released = ledger.entries
        assert (reserved["kind"], released["kind"]) == ("reserve", "release")
        noted = {"run": reserved["body"]["run"], "head": head, "model": release.model_hash}
        assert released["body"] == noted


@pytest.mark.parametrize("kept", ["early", "opened"])
def test_a_run_that_was_released_is_not_run_again_from_a_backup(tmp_path: Path, kept: str) -> None:
    folder = cut(tmp_path, 1)
    shutil.copytree(folder, tmp_path / "again.partial")
    if kept == "opened":  # with the first line of the public ledger, and nothing trained
        lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "again.partial" / "ledger.jsonl").write_text(lines[0])
        (tmp_path / "again.partial" / "checkpoint").unlink()
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)
    with pytest.raises(ReleaseError, match="released already"):
        run(hospital(tmp_path), out=tmp_path / "again", resume=True)


def test_two_copies_of_a_run_in_progress_give_one_release(tmp_path: Path) -> None:
    """Their ledgers end alike, since receipts hold plan fields only; their noise does not."""
    shutil.copytree(cut(tmp_path, 1), tmp_path / "again.partial")

    def meanwhile(doing: str, done: int, total: int) -> None:
        if doing == "training" and done == 2:
            run(hospital(tmp_path), out=tmp_path / "out", resume=True)

    with pytest.raises(ReleaseError, match="other model"):
        run(hospital(tmp_path), out=tmp_path / "again", resume=True, progress=meanwhile)
    assert (tmp_path / "out").exists() and not (tmp_path / "again").exists()


def test_a_full_disk_after_the_release_was_noted_can_still_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(files: dict, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "_save_folder", full)
        with pytest.raises(OutputError, match="No space"):
            run(hospital(tmp_path), out=tmp_path / "out")
    noted = (tmp_path / "a.ledger").read_bytes()
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)
    assert (tmp_path / "a.ledger").read_bytes() == noted, "one release was noted twice"
    verify(tmp_path / "out")


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_sites_ledger_rolled_back_under_a_run_is_refused(tmp_path: Path, lines: int) -> None:
    run(hospital(tmp_path))  # two entries of an earlier run
    cut(tmp_path, 1)
    path = tmp_path / "a.ledger"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:lines]))
    with pytest.raises(ReleaseError, match="site a"):
        run(hospital(tmp_path), out=tmp_path / "out", resume=True)
    path.write_text(whole)
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)


def test_a_sites_ledger_that_went_on_in_between_is_fine(tmp_path: Path) -> None:
    cut(tmp_path, 1)
    run(hospital(tmp_path), out=tmp_path / "other")
    run(hospital(tmp_path), out=tmp_path / "out", resume=True)


def test_a_run_ledger_shorter_than_when_it_was_last_resumed_is_refused(tmp_path: Path) -> None:
    folder = cut(tmp_path, 2)
    with pytest.raises(KeyboardInterrupt):
        run(hospital(tmp_path), out=tmp_path / "out", resume=True, progress=press(2))
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_text("".join(lines[:-1]))
    for name in ("checkpoint", "checkpoint.previous"):  # else it would show that a round is missing
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(ReleaseError, match="the run's ledger"):
        run(hospital(tmp_path), out=tmp_path / "out", resume=True)


# A run that is still going on.

LIVE = """
import sys
sys.path.insert(0, sys.argv[1])
from contracts.toys import TOYS, rows, study
from understudy.recipes import RECIPES
from understudy.simulation import run
RECIPES.update(TOYS)
def wait(doing, done, total):
    if doing == "training" and done == 1:
        print("running", flush=True)
        sys.stdin.readline()
run(study("toy-mean", 4, privacy={"noise": 4.0}), rows(4), out=sys.argv[2], progress=wait)
"""


def test_a_live_run_is_recognised_and_left_alone(tmp_path: Path) -> None:
    out, tests = tmp_path / "out", Path(__file__).parent
    command = [sys.executable, "-c", LIVE, str(tests), str(out)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == "running\n"
        there = {p: p.read_bytes() for p in (tmp_path / "out.partial").iterdir()}
        for resume in (False, True):
            with pytest.raises(OutputError, match="another process is running there") as refusal:
                run(toy(), rows(4), out=out, resume=resume)
            assert "remove" not in str(refusal.value)
        assert {p: p.read_bytes() for p in (tmp_path / "out.partial").iterdir()} == there
        child.communicate("go\n", timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0
    verify(out)


def test_a_private_folder_removed_under_a_run_is_an_error_with_advice(tmp_path: Path) -> None:
    def remove(doing: str, done: int, total: int) -> None:
        if doing == "training" and done == 1:
            shutil.rmtree(tmp_path / "out.partial")

    with pytest.raises(OutputError):
        run(toy(), rows(4), out=tmp_path / "out", progress=remove)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("unit, counted", [("record", 3), ("person", 2)])
def test_the_cap_on_rows_per_person_is_off_where_records_are_protected(
    monkeypatch: pytest.MonkeyPatch, unit: str, counted: int
) -> None:
    """It would let another row in for one that is taken away: 1.41 times the bound, or up to 2."""
    frame = records(3).frame.assign(id=1)
    found = []
    original = simulate.load_sites

    def spy(*given: object, **terms: object) -> object:
        found.append(original(*given, **terms))
        return found[-1]

    monkeypatch.setattr(simulate, "load_sites", spy)
    asked = study("fedmoments", 1, privacy={"unit": unit, "trust": "central", "noise": 2.0})
    run(asked, [from_frame(frame, schema())], rows=1)
    assert found[0].total == counted
