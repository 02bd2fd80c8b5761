"""Real runs: a server and three sites, each a process of its own, on loopback under mutual TLS."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import studies
from faulty import FAULTS
from parties import HERE, SITES, Line, Process, enrol, eventually, free_port, processes

from understudy import run
from understudy.deployment.signing import check_trust
from understudy.deployment.status import Status
from understudy.privacy.ledger import Ledger, receipts_in
from understudy.release.bundle import Release
from understudy.simulation import verify
from understudy.study import Study

Start = Callable[..., Process]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ALL = {"moments": studies.MOMENTS, "vae": studies.VAE, "votes": studies.VOTES}
ALL |= {"shared": studies.SHARED}


def test_processes_on_a_network_make_the_release_of_one_process(tmp_path: Path) -> None:
    """With one seed, to the last bit: local noise, choices, and sums under masks."""
    enrol(tmp_path)
    files = [studies.write(tmp_path, text, name=name) for name, text in ALL.items()]
    port = free_port()
    end = (HERE / "end.py", 3, port, tmp_path)
    with processes() as start:
        hub = start(tmp_path / "hub.log", *end, "hub", tmp_path / "out", *files)
        for name in SITES:
            start(tmp_path / f"{name}.log", *end, name, tmp_path / f"{name}.csv", *files)
        (tmp_path / "out").mkdir()
        assert hub.ended(240) == 0, hub.said[-3000:]
    for name, text in ALL.items():
        here = run(Study.load(studies.write(tmp_path, text, data=True, name=name)), seed=3, rows=20)
        verdict = verify(tmp_path / "out" / name)
        assert verdict.release.model_hash == here.model_hash, name
        assert verdict.release.ran == "network" and here.ran == "one process"
        check_trust(verdict, tmp_path / "hub")
        assert set(verdict.release.signed.signatures) == {"hub", *SITES}
        assert verdict.release.ledger == here.ledger


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_on_a_network_make_the_release_of_one_process(tmp_path: Path, workers: int) -> None:
    """The real commands; sites keep encoders between rounds, and cohorts are drawn."""
    text = studies.VAE.replace('trust = "local"', 'trust = "central"') + "\n[cohort]\nrate = 0.5\n"
    path, port = studies.simulated(tmp_path, text, sites=40), free_port()
    terms = ("--simulate", workers, "--seed", 3, "--insecure")
    with processes() as start:
        serve = ("-m", "understudy", "serve", path, "--out", tmp_path / "out", "--port", port)
        hub = start(tmp_path / "hub.log", *serve, "--rows", 20, *terms)
        names = [f"worker-{i + 1}" for i in range(workers)]
        join = ("-m", "understudy", "join", path, "--server", f"localhost:{port}", *terms)
        each = [start(tmp_path / f"{n}.log", *join, "--site", n) for n in names]
        assert hub.ended(240) == 0, hub.said[-3000:]
        assert [worker.ended(30) for worker in each] == [0] * workers
    here, there = run(Study.load(path), seed=3, rows=20), verify(tmp_path / "out").release
    assert there.model_hash == here.model_hash and there.ledger == here.ledger
    assert (here.ran, there.ran) == ("one process", "workers")
    assert any("simulated in several processes" in said for said in there.claims[0].caveats)


ROUNDS = 16
LONG = studies.VAE.replace("rounds = 2", f"rounds = {ROUNDS}").replace("epochs = 1", "epochs = 20")


class Federation:
    """A run that is disturbed. Every end is the real command."""

    def __init__(self, folder: Path, start: Start, text: str = LONG) -> None:
        self.folder, self.start, self.port = enrol(folder), start, free_port()
        self.study = studies.write(folder, text)
        self.out = folder / "out"

    def serve(self, *options: object) -> Process:
        command = ("-m", "understudy", "serve", self.study, "--out", self.out)
        keys = ("--keys", self.folder / "hub", "--port", self.port)
        patience = ("--wait", 15, "--deadline", 3, "--rows", 20)
        return self.start(self.folder / "hub.log", *command, *keys, *patience, *options)

    def join(self, name: str, *options: object) -> Process:
        command = ("-m", "understudy", "join", self.study, "--data", self.folder / f"{name}.csv")
        where = ("--server", f"localhost:{self.port}", "--keys", self.folder / name, "--yes")
        return self.start(self.folder / f"{name}.log", *command, *where, *options)

    @property
    def status(self) -> Status | None:
        folder = self.out.with_name("out.partial")
        return Status.read(folder) if (folder / "status.json").exists() else None

    def reached(self, round: int) -> Callable[[], bool]:
        return lambda: self.status is not None and self.status.round >= round

    def book(self, name: str) -> list[dict[str, Any]]:
        with Ledger(self.folder / f"{name}.understudy" / "ledger.jsonl") as book:
            return book.entries

    def check(self, rounds: int) -> Release:
        """The release is sound; rounds were charged once; sites paid and noted theirs once."""
        release = verify(self.out).release
        charged = [receipt.round for receipt in receipts_in(_entries(release.ledger))]
        assert charged == list(range(rounds))
        for name in SITES:
            kinds = [entry["kind"] for entry in self.book(name)]
            assert kinds == ["reserve", *["join"] * (len(kinds) - 2), "release"]
            joined = [entry["body"]["round"] for entry in self.book(name)[1:-1]]
            assert joined == sorted(set(joined)) and set(joined) <= set(range(rounds))
        return release


def _entries(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_run_survives_sites_that_die_hang_and_leave(tmp_path: Path) -> None:
    """Killed mid-round and back; stopped past the deadline; too few left; then it goes on."""
    with processes() as start:
        here = Federation(tmp_path, start)
        hub = here.serve()
        sites = {name: here.join(name) for name in SITES}
        eventually(here.reached(2), 120)

        sites["north"].kill()  # in the middle of a round, and back while it is waited for
        sites["north"] = here.join("north")
        sites["south"].send(signal.SIGSTOP)  # as if its line were cut
        eventually(lambda: "south was left out" in hub.said, 90)
        sites["south"].send(signal.SIGCONT)
        eventually(here.reached(5), 90)

        for name in ("north", "south"):  # too few are left: no round is begun
            sites[name].kill()
        assert hub.ended(90) == 7
        assert "--resume" in hub.said and here.status.phase == "paused"
        assert here.status.round < ROUNDS

        hub = here.serve("--resume")
        sites |= {name: here.join(name) for name in ("north", "south")}
        assert hub.ended(120) == 0, hub.said[-3000:]
        assert [site.ended(30) for site in sites.values()] == [0, 0, 0]
        here.check(ROUNDS)


FAULTY = studies.VAE.replace("rounds = 2", f"rounds = {len(FAULTS)}")


def test_whatever_a_site_sends_or_does_costs_no_more_than_its_own_part(tmp_path: Path) -> None:
    """A fault a round (`faulty.py`): replies that are late, malformed, cut off, not finite,
    oversized or replayed, a full disk, and a process that dies before, during and after a round."""
    with processes() as start:
        here = Federation(tmp_path, start, FAULTY)
        hub = here.serve("--wait", 60)
        sites = [here.join(name) for name in ("south", "east")]
        north = (HERE / "faulty.py", here.study, here.port, tmp_path / "north",
                 tmp_path / "north.csv", tmp_path / "north.understudy")  # fmt: skip
        begun = [start(tmp_path / "north.log", *north)]
        while hub.process.poll() is None:
            if begun[-1].process.poll() is not None:
                begun.append(start(tmp_path / "north.log", *north))
            time.sleep(0.05)
        assert hub.ended(1) == 0, hub.said[-3000:]
        assert [site.ended(90) for site in (*sites, begun[-1])] == [0, 0, 0]
        assert len(begun) == 4  # it died three times
        for why in ("malformed", "no answer before the deadline of 3 s (--deadline)", "refused"):
            assert why in hub.said, hub.said[-3000:]
        release = here.check(len(FAULTS))
        assert set(release.signed.signatures) == {"hub", *SITES}


CUT = float(os.environ.get("UNDERSTUDY_CUT", 12))  # s; FLARE's longest pause between two attempts


def test_a_run_waits_for_a_site_whose_line_is_cut(tmp_path: Path) -> None:
    """The line is a tunnel that is up before the server is, and is cut in the middle of a round.

    UNDERSTUDY_CUT=60 cuts it for a whole minute.
    """
    with processes() as start:
        here = Federation(tmp_path, start)
        line = Line(here.port)
        north = here.join("north", "--server", f"localhost:{line.port}")
        eventually(lambda: "hangs up, as a tunnel does" in north.said, 60)  # no server is up yet
        hub = here.serve("--wait", 60 + CUT, "--deadline", 600)
        sites = [north, *(here.join(name) for name in ("south", "east"))]
        eventually(here.reached(2), 120)
        line.cut()
        eventually(lambda: "north: lost" in hub.said, 30)
        time.sleep(CUT)
        assert here.status.round < ROUNDS
        line.mend()
        assert hub.ended(90) == 0, hub.said[-3000:]
        assert [site.ended(30) for site in sites] == [0, 0, 0]
        assert hub.said.count("north: joined") == 2
        here.check(ROUNDS)
        line.end()


def test_a_server_that_is_killed_goes_on_and_charges_no_round_twice(tmp_path: Path) -> None:
    """Killed mid-round; a second server on its ledger is refused; sites come back by themselves."""
    with processes() as start:
        here = Federation(tmp_path, start)
        hub = here.serve()
        sites = [here.join(name) for name in SITES]
        eventually(here.reached(4), 120)
        hub.send(signal.SIGSTOP)  # in the middle of a round
        second = here.serve("--resume", "--port", free_port())
        assert second.ended(180) == 9 and "another process" in second.said
        hub.kill()
        hub = here.serve("--resume")
        assert hub.ended(120) == 0, hub.said[-3000:]
        assert [site.ended(30) for site in sites] == [0, 0, 0]
        release = here.check(ROUNDS)
        assert set(release.signed.signatures) == {"hub", *SITES}


MASKED = LONG.replace('trust = "local"', 'trust = "distributed"\nsurvivors = 2\ncolluders = 0')
MASKED = MASKED.replace(f"rounds = {ROUNDS}", "rounds = 8")


def test_a_sum_under_masks_survives_a_site_and_a_server_that_die(tmp_path: Path) -> None:
    """Wherever in its five exchanges a round is: what was begun is void, or summed without it."""
    with processes() as start:
        here = Federation(tmp_path, start, MASKED)
        hub = here.serve()
        sites = {name: here.join(name) for name in SITES}
        eventually(here.reached(2), 120)
        sites["north"].kill()
        eventually(lambda: "north: lost" in hub.said, 30)
        sites["north"] = here.join("north")
        eventually(here.reached(4), 90)
        hub.kill()
        sites["south"].kill()  # and stays away: two are enough to go on
        hub = here.serve("--resume", "--wait", 12)
        assert hub.ended(150) == 0, hub.said[-3000:]
        assert "going on without south" in hub.said
        assert [sites[name].ended(30) for name in ("north", "east")] == [0, 0]
        release = verify(here.out).release
        charged = [receipt.round for receipt in receipts_in(_entries(release.ledger))]
        assert sorted(set(charged)) == list(range(8))
        assert set(release.signed.signatures) == {"hub", "north", "east"}


def test_another_study_and_an_older_copy_of_a_ledger_are_refused_at_a_site(tmp_path: Path) -> None:
    """Each is refused where it happens, in words, and nothing is spent twice."""
    with processes() as start:
        here = Federation(tmp_path, start, studies.VAE)
        other = studies.write(tmp_path, studies.VAE.replace("2.0", "3.0"), name="edited")
        hub, south = here.serve("--wait", 60), here.join("south")
        here.study = other
        north = here.join("north")
        assert hub.ended(180) == 7 and north.ended(60) == 7
        for said in (hub.said, north.said):
            assert "privacy.noise" in said and "3.0" in said
        assert not here.out.with_name("out.partial").exists()
        here.study = tmp_path / "study.toml"

        hub = here.serve("--wait", 60)
        for name in ("north", "east"):
            here.join(name)
        assert hub.ended(120) == 0, hub.said[-3000:]
        assert south.ended(30) == 0
        here.check(2)

        ledger = tmp_path / "north.understudy" / "ledger.jsonl"
        ledger.write_text("")  # an older backup, from before the run
        assert here.join("north", "--dry-run").ended(60) == 8
        assert "must never go back" in (tmp_path / "north.log").read_text()
