"""Parties that hold columns, over a network: aligned, joined and served, each a process."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from parties import HERE, Process, enrol, eventually, free_port, processes

from understudy import run
from understudy.cli import app
from understudy.cli.attending import _leaving, alignment_of
from understudy.data.align import Alignment
from understudy.data.bundled import bundled
from understudy.deployment.joining import Joining, prepare
from understudy.deployment.keys import load_keys
from understudy.deployment.serving import Serving, _least, serve
from understudy.errors import DataError, KeysError, StudyError, UnderstudyError
from understudy.federation.budget import Budget
from understudy.federation.product_party import ProductParty
from understudy.privacy.ledger import Ledger
from understudy.recipes import build
from understudy.rng import NoiseSource
from understudy.simulation import verify
from understudy.study import Simulation, SiteEntry, Study

Start = Callable[..., Process]
HELD = {"clinic": ["age", "smoker"], "insurer": ["income", "claims"]}
SCHEMA = """
kind = "table"
name = "registers"
records = 100
label = "smoker"

[columns.age]
kind = "integer"
low = 0
high = 100

[columns.smoker]
kind = "categorical"
categories = ["no", "yes"]

[columns.income]
kind = "numeric"
low = 0
high = 10

[columns.claims]
kind = "boolean"
"""
MOMENTS = """
[study]
name = "two"
schema = "schema.toml"
recipe = "fedmoments"
{alignment}

[privacy]
noise = 0.5
"""
GAN = MOMENTS.replace("fedmoments", "vertigan").replace("{alignment}", "rounds = 3\n{alignment}")
GAN += "\n[training]\nbatch = 20\n"


def people(folder: Path, rows: int = 60) -> None:
    """A file for each party, with identifiers, of mostly the same people in other orders."""
    rng = np.random.default_rng(0)
    age, claims = rng.integers(20, 90, rows), rng.random(rows) < 0.4
    whole = pd.DataFrame({
        "ssn": [f"P{i}" for i in range(rows)], "age": age,
        "smoker": np.where(claims, "yes", "no"),
        "income": np.round(rng.random(rows) * 10, 2), "claims": claims,
    })  # fmt: skip
    for name, columns in HELD.items():
        frame = whole[["ssn", *columns]].sample(rows - 5, random_state=len(name))
        frame.to_csv(folder / f"{name}-raw.csv", index=False)


def aligned(folder: Path) -> Alignment:
    """Both files aligned here; the alignment lies beside each."""
    people(folder)
    files = [str(folder / f"{name}-raw.csv") for name in HELD]
    asked = ["align", "here", *files, "--id", "ssn", "-o", str(folder / "aligned")]
    assert CliRunner().invoke(app, asked).exit_code == 0
    for name in HELD:
        for ending in ("", ".alignment"):
            made = folder / "aligned" / f"{name}-raw.csv{ending}"
            made.rename(folder / f"{name}.csv{ending}")
    return Alignment.from_bytes((folder / "clinic.csv.alignment").read_bytes())


def written(folder: Path, mark: str = "", *, text: str = MOMENTS, data: bool = False) -> Path:
    (folder / "schema.toml").write_text(SCHEMA)
    entries = "".join(
        f'[[party]]\nname = "{name}"\ncolumns = {columns}\n'
        + (f'data = "{name}.csv"\n' if data else "")
        for name, columns in HELD.items()
    )
    path = folder / f"{'gan' if text is GAN else 'study'}{'-here' if data else ''}.toml"
    line = f'alignment = "{mark}"' if mark else ""
    path.write_text(text.format(alignment=line) + entries)
    return path


def ready(folder: Path, alignment: Alignment | None, mark: str) -> Joining:
    study, keys = Study.load(written(folder, mark)), load_keys(folder / "clinic")
    state, data = folder / "state", folder / "clinic.csv"
    return prepare(study, data, Budget("clinic"), state, keys, alignment=alignment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return enrol(tmp_path, tuple(HELD))


def test_a_party_joins_with_its_own_columns_and_the_alignment_that_the_study_names(
    folder: Path,
) -> None:
    alignment = aligned(folder)
    joining = ready(folder, alignment, alignment.mark)
    assert joining.sites.data.x.shape == (alignment.rows, 1)  # age; the label apart
    run = joining.participant("ab" * 16)
    assert isinstance(run.party, ProductParty) and run.sites.names == ["clinic"]
    assert "masked rows" in _leaving(joining).columns[0].cells
    assert all(e.data is None or e.name == "clinic" for e in joining.study.parties)


def test_the_batches_of_a_run_follow_from_what_the_parties_share_and_the_run(folder: Path) -> None:
    """The same coins at both parties, others in another run, and none without the alignment."""
    alignment = aligned(folder)
    joining = ready(folder, alignment, alignment.mark)
    source = joining.participant("ab" * 16).sites.source
    expected = NoiseSource.system(alignment.agreed(joining.study.hash, "ab" * 16))
    other = NoiseSource.system(alignment.agreed(joining.study.hash, "cd" * 16))
    coins = [each.together(0).coins(500, 0.5) for each in (source, expected, other)]
    assert np.array_equal(coins[0], coins[1]) and not np.array_equal(coins[0], coins[2])
    assert not source.is_simulation


@pytest.mark.parametrize("which", ["missing", "other", "rows"])
def test_rows_of_another_alignment_are_refused_before_anything_is_spent(
    folder: Path, which: str
) -> None:
    alignment = aligned(folder)
    mark = alignment.mark
    given = {"missing": None, "other": Alignment.fresh(alignment.rows), "rows": alignment}[which]
    if which == "rows":
        frame = pd.read_csv(folder / "clinic.csv")
        frame.iloc[1:].to_csv(folder / "clinic.csv", index=False)
    expected = "rows, as the alignment" if which == "rows" else "study.alignment names"
    with pytest.raises(UnderstudyError, match=expected):
        ready(folder, given, mark)
    assert not (folder / "state" / "ledger.jsonl").exists()


def test_a_study_of_parties_says_which_alignment_at_both_ends(folder: Path) -> None:
    alignment = aligned(folder)
    with pytest.raises(StudyError, match=r"study\.alignment: which"):
        ready(folder, alignment, "")
    with pytest.raises(StudyError, match=r"study\.alignment: which"):
        serve(Study.load(written(folder)), Serving(folder / "out", load_keys(folder / "hub")))
    one, other = (Study.load(written(folder, mark)) for mark in (alignment.mark, "00"))
    assert one.hash != other.hash  # the greeting compares it
    assert not (folder / "out.partial").exists()


def test_parties_need_keys_and_no_simulation(folder: Path) -> None:
    alignment = aligned(folder)
    study = Study.load(written(folder, alignment.mark))
    with pytest.raises(KeysError, match="parties that hold columns"):
        serve(study, Serving(folder / "out", None))
    rows = replace(study, parties=(), alignment=None, sites=(SiteEntry("clinic"),))
    state = folder / "state"
    with pytest.raises(StudyError, match="no alignment where sites hold rows"):
        prepare(rows, folder / "clinic.csv", Budget("clinic"), state, None, alignment=alignment)
    cut = Simulation("x.csv", split="columns")
    with pytest.raises(StudyError, match=r"no \[simulation\]"):
        serve(replace(study, simulation=cut), Serving(folder / "out", load_keys(folder / "hub")))


def test_no_round_is_begun_without_all_parties() -> None:
    """It would be void, and charged."""
    tables = {
        "study": {"name": "three", "recipe": "fedmoments"},
        "privacy": {"noise": 0.5},
        "simulation": {"data": "bundled:breast_cancer", "split": "columns", "sites": 3},
    }
    study = Study.parse(tables, schema=bundled("breast_cancer")[0])
    assert _least(build(study).plan) == 3


def test_more_people_than_declared_are_refused(folder: Path) -> None:
    alignment = aligned(folder)
    study = Study.load(written(folder, alignment.mark, text=GAN))
    few = replace(study, schema=replace(study.schema, records=20))
    with pytest.raises(DataError, match="at most 20 rows"):
        prepare(
            few, folder / "clinic.csv", Budget("clinic"), folder / "state",
            load_keys(folder / "clinic"), alignment=alignment,
        )  # fmt: skip


def test_files_in_one_order_already_need_an_alignment_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "study.alignment"
    found = CliRunner().invoke(app, ["align", "agree", "--rows", "7", "-o", str(path)])
    alignment = Alignment.from_bytes(path.read_bytes())
    assert found.exit_code == 0 and alignment.rows == 7
    assert alignment.mark in found.output and path.stat().st_mode & 0o077 == 0
    study = Study.load(written(tmp_path, alignment.mark))
    assert alignment_of(study, tmp_path / "clinic.csv", path) == alignment
    assert alignment_of(study, tmp_path / "clinic.csv", None) is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_parties_on_a_network_make_the_release_of_one_process(folder: Path) -> None:
    """Products and a GAN, with one seed, to the last bit; every party signs."""
    mark, port = aligned(folder).mark, free_port()
    files = [written(folder, mark, text=text) for text in (MOMENTS, GAN)]
    end = (HERE / "end.py", 3, port, folder)
    (folder / "out").mkdir()
    with processes() as start:
        hub = start(folder / "hub.log", *end, "hub", folder / "out", *files)
        for name in HELD:
            start(folder / f"{name}.log", *end, name, folder / f"{name}.csv", *files)
        assert hub.ended(200) == 0, hub.said[-3000:]
    for text, path in zip((MOMENTS, GAN), files, strict=True):
        here = run(Study.load(written(folder, mark, text=text, data=True)), seed=3, rows=20)
        release = verify(folder / "out" / path.stem).release
        assert release.model_hash == here.model_hash and release.ledger == here.ledger
        assert release.ran == "network" and set(release.signed.signatures) == {"hub", *HELD}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_from_two_files_to_a_signed_release_with_the_commands(folder: Path) -> None:
    """Aligned over the network, then joined; a party that is killed and comes back."""
    people(folder)
    mark = _aligned_over_the_network(folder)
    study, port = written(folder, mark, text=GAN.replace("rounds = 3", "rounds = 40")), free_port()
    with processes() as start:
        serve = ("-m", "understudy", "serve", study, "--out", folder / "out")
        hub = start(
            folder / "hub.log", *serve, "--keys", folder / "hub", "--port", port, "--rows", 20
        )

        def join(name: str) -> Process:
            given = ("--data", folder / f"{name}.csv", "--keys", folder / name, "--yes")
            command = ("-m", "understudy", "join", study, "--server", f"localhost:{port}", *given)
            return start(folder / f"{name}.log", *command)

        sites = {name: join(name) for name in HELD}
        eventually(lambda: "round 4 of 40" in hub.said, 120)
        sites["insurer"].kill()
        sites["insurer"] = join("insurer")
        assert hub.ended(120) == 0, hub.said[-3000:]
        assert [site.ended(30) for site in sites.values()] == [0, 0]
    release = verify(folder / "out").release
    assert set(release.signed.signatures) == {"hub", *HELD}
    for name in HELD:
        with Ledger(folder / f"{name}.understudy" / "ledger.jsonl") as book:
            kinds = [entry["kind"] for entry in book.entries]
        assert kinds[0] == "reserve" and kinds[-1] == "release" and kinds.count("reserve") == 1


def _aligned_over_the_network(folder: Path) -> str:
    port = free_port()
    with processes() as start:
        command = ("-m", "understudy", "align")
        hub = start(
            folder / "align.log", *command, "serve", "--keys", folder / "hub", "--port", port
        )
        ends = [
            start(
                folder / f"{name}-align.log", *command, "join", folder / f"{name}-raw.csv",
                "--id", "ssn", "--keys", folder / name, "--server", f"localhost:{port}",
                "--yes", "-o", folder / f"{name}.csv",
            )
            for name in HELD
        ]  # fmt: skip
        assert hub.ended(60) == 0, hub.said[-3000:]
        assert [end.ended(30) for end in ends] == [0, 0]
    said = {re.search('alignment = "([0-9a-f]{64})"', end.said).group(1) for end in ends}
    (mark,) = said  # both parties are told the same
    assert mark not in hub.said
    return mark
