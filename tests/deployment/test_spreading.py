"""Both ends of a simulation over workers, without a network: what they refuse and answer."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
import studies
from parties import enrol

from understudy.cli import app
from understudy.deployment.keys import load_keys
from understudy.deployment.spreading import Holding, hold
from understudy.errors import KeysError, StudyError
from understudy.runtime.greeting import Farewell, Terms, kind_of
from understudy.study import Study

RUN, OTHER = "ab" * 16, "cd" * 16


def held(folder: Path, name: str = "worker-1", seed: int = 3) -> Holding:
    return hold(Study.load(studies.simulated(folder, studies.VAE)), name, 2, seed, None)


def test_workers_hold_all_rows_between_them(tmp_path: Path) -> None:
    one, two = held(tmp_path), held(tmp_path, "worker-2")
    assert np.array_equal(np.concatenate((one.ids, two.ids)), np.arange(20))
    assert len(one.data.x) + len(two.data.x) == 90 and one.rows == two.rows
    assert one.data.total == len(one.data.x)


def test_a_worker_takes_part_in_the_run_it_was_greeted_for_and_leaves_when_it_is_over(
    tmp_path: Path,
) -> None:
    worker = held(tmp_path)
    assert kind_of(worker.handle(worker.terms.encode("hello", RUN, "worker-1"))) == "welcome"
    bye = Farewell(OTHER, "head", "model", b"{}").encode("worker-1")
    assert kind_of(worker.handle(bye)) == "refusal" and not worker.over.is_set()
    assert kind_of(worker.handle(worker.terms.encode("hello", OTHER, "worker-1"))) == "welcome"
    assert kind_of(worker.handle(bye)) == "signed"
    assert worker.over.is_set() and worker.error is None


@pytest.mark.parametrize(
    ("study", "said"), [({"workers": 3}, "workers is 2"), ({"seed (its hash)": "0"}, "seed")]
)
def test_another_number_of_workers_or_another_seed_is_refused(
    tmp_path: Path, study: dict[str, object], said: str
) -> None:
    worker = held(tmp_path)
    own = worker.terms
    theirs = Terms(own.agreement, {**own.study, **study}, own.roster, own.noise)
    worker.handle(theirs.encode("hello", RUN, "worker-1"))
    assert worker.over.is_set() and said in str(worker.error)


def test_a_worker_has_a_name_and_with_keys_the_name_of_its_keys(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="worker-1 to worker-2"):
        held(tmp_path, "north")
    enrol(tmp_path, ("worker-1", "worker-2"))
    study = Study.load(studies.simulated(tmp_path, studies.VAE))
    assert hold(study, "worker-1", 2, 3, load_keys(tmp_path / "worker-1")).terms.roster
    with pytest.raises(KeysError, match="worker-3"):
        hold(study, "worker-1", 3, 3, load_keys(tmp_path / "worker-1"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--seed", 3), "--simulate"),
        (("--simulate", 2, "--seed", 3, "--resume"), "start it again"),
        (("--simulate", 2), "--seed to each"),
        (("--simulate", 17, "--seed", 3), "1 to 16 workers"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, options: tuple[object, ...], said: str) -> None:
    study = studies.simulated(tmp_path, studies.VAE)
    arguments = ("serve", study, "--out", tmp_path / "out", "--insecure", *options)
    done = CliRunner().invoke(app, [str(each) for each in arguments], terminal_width=200)
    assert done.exit_code == StudyError.exit_code and said in " ".join(done.output.split())
    assert not list(tmp_path.glob("out*"))


def test_what_has_no_rows_for_all_or_wants_masks_is_not_spread(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"a \[simulation\]"):
        hold(Study.load(studies.write(tmp_path, studies.VAE)), "worker-1", 2, 3, None)
    masked = studies.simulated(tmp_path, studies.SHARED, 'masks = "checked"')
    with pytest.raises(StudyError, match="without masks"):
        hold(Study.load(masked), "worker-1", 2, 3, None)


def test_a_site_without_a_file_of_rows_is_told(tmp_path: Path) -> None:
    study = studies.write(tmp_path, studies.VAE)
    done = CliRunner().invoke(app, ["join", str(study), "--insecure", "--site", "north"])
    assert done.exit_code == StudyError.exit_code and "--data FILE" in done.output
