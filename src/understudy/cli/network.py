"""``understudy serve`` and ``understudy join``: a study over a network, one command at each end."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

import typer

from understudy.cli.console import QUIET, plain_errors
from understudy.cli.study import STUDY

__all__ = ["join", "serve"]

PORT = 8702
_KEPT = "Finished rounds are kept. To continue:"
SEED = typer.Option(None, help="With --simulate: one seed at the server and all workers.")
KEYS = typer.Option(None, "--keys", help="This party's key folder (understudy keys).")
INSECURE = typer.Option(
    False, "--insecure", help="Without keys: nothing is encrypted, and any party can be anyone."
)


def serve(
    study: Path = STUDY,
    out: Path = typer.Option(..., "--out", "-o", help="The release folder (or .zip) to make."),
    keys: Path | None = KEYS,
    host: str = typer.Option("localhost", help="The address of this machine to listen on."),
    port: int = typer.Option(PORT, help="The port that sites connect to."),
    resume: bool = typer.Option(
        False, "--resume", help="Continue a run that was interrupted, if there is one."
    ),
    wait: float = typer.Option(600.0, min=0, help="Seconds to wait for sites that are missing."),
    deadline: float = typer.Option(
        600.0,
        min=0.1,
        help="Seconds a site has for an answer: training, and both ways over a slow line.",
    ),
    rows: int = typer.Option(1000, help="Rows of the sample inside the release."),
    console: int | None = typer.Option(
        None, min=0, max=65535, help="Show the run on a page, at this port of this machine alone."
    ),
    insecure: bool = INSECURE,
    simulate: int | None = typer.Option(
        None, min=1, help="Spread a simulated study over this many workers; needs --seed."
    ),
    seed: int | None = SEED,
    quiet: bool = QUIET,
) -> None:
    """Coordinate a study with sites that join over a network.

    It waits for every site that the study names, compares study, plan and
    keys with each, and then trains. Sites may leave and come back. When too
    few are there it pauses, and --resume continues: after that, after Ctrl-C
    and after a crash, and no round is paid for twice.

    With --simulate the study is a simulation, spread over several workers
    that run join --simulate: one seed gives the release of understudy run.
    It is not resumed but started again.

    Examples:

      understudy serve study.toml --out release --keys hub-keys --host 0.0.0.0

      understudy serve study.toml --out release --keys hub-keys --resume

      understudy serve study.toml --out release --simulate 2 --seed 1 --insecure
    """
    with plain_errors():
        from understudy.cli.attending import (
            check_simulation,
            follow,
            key_folder,
            say_served,
            show_page,
            stopped,
        )
        from understudy.deployment.serving import Serving
        from understudy.deployment.serving import serve as run
        from understudy.deployment.spreading import spread
        from understudy.study import Study

        check_simulation(simulate, seed, resume)
        spreading = "" if simulate is None else f" --simulate {simulate} --seed {seed}"
        again = _again(study, out, keys, host, port, console)
        again += _told(wait=wait, deadline=deadline, rows=rows) + (spreading or " --resume")
        kept = "Nothing is kept. To start again:" if spreading else _KEPT
        with stopped(f"{kept}  {again}"):
            how = Serving(
                out=out,
                keys=key_folder(keys, insecure),
                host=host,
                port=port,
                resume=resume,
                wait=wait,
                deadline=deadline,
                rows=rows,
                again=again,
                seed=seed,
                preview=console is not None,
                tell=follow(quiet),
                opened=lambda folder: show_page(folder, console),
            )
            loaded = Study.load(study)
            release = run(loaded, how) if simulate is None else spread(loaded, how, simulate)
        say_served(release, out)


def join(
    study: Path = STUDY,
    data: Path | None = typer.Option(None, "--data", help="This site's rows."),
    server: str = typer.Option(f"localhost:{PORT}", help="HOST:PORT of the server."),
    keys: Path | None = KEYS,
    site: str = typer.Option(
        "", help="This site's name, with --insecure only: keys name it otherwise."
    ),
    state: Path | None = typer.Option(
        None,
        help="Folder for what this site must not lose; by default NAME.understudy by the data.",
    ),
    ledger: Path | None = typer.Option(
        None, help="This site's ledger; by default the study's, or in --state."
    ),
    cap: float | None = typer.Option(
        None, min=0, help="The most ε over all studies; by default the study's."
    ),
    alignment: Path | None = typer.Option(
        None, help="Where parties hold columns: the alignment file; by default the one by the data."
    ),
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Do everything but connect."),
    insecure: bool = INSECURE,
    simulate: int | None = typer.Option(
        None,
        min=1,
        help="Be one of this many workers of a simulation; the study says where the rows are.",
    ),
    seed: int | None = SEED,
) -> None:
    """Take part in a study with this site's own rows, or this party's own columns.

    Before it connects it shows what will leave this machine, how it is
    protected and what it costs by this site's ledger, and asks. It can be
    stopped and started again: it comes back where it was, and never draws
    noise twice for one round.

    Examples:

      understudy join study.toml --data rows.csv --keys my-keys --server hub:8702

      understudy join study.toml --data rows.csv --keys my-keys --cap 4 --dry-run

      understudy join study.toml --simulate 2 --seed 1 --insecure --site worker-1
    """
    with plain_errors():
        from understudy.cli.attending import (
            address_of,
            agree,
            alignment_of,
            check_simulation,
            key_folder,
            needed,
            site_name,
            stopped,
        )
        from understudy.deployment.attendance import Attendant, attend
        from understudy.deployment.joining import prepare
        from understudy.deployment.spreading import hold
        from understudy.federation.budget import Budget
        from understudy.runtime.flare import check_flare
        from understudy.study import Study

        check_simulation(simulate, seed)
        if not dry_run:
            check_flare()
        own = key_folder(keys, insecure)
        name, address = site_name(site, own), address_of(server, own)
        if simulate is not None:
            worker = hold(Study.load(study), name, simulate, seed, own)
            worker.tell = say
            with stopped("The simulation cannot go on without this worker."):
                return attend(worker, address, say)
        data = needed(data)
        folder = state or data.resolve().parent / f"{name}.understudy"
        loaded = Study.load(study)
        entry = next((each for each in loaded.owners if each.name == name), None)
        if entry is not None:
            cap = entry.epsilon if cap is None else cap
            ledger = loaded.base / entry.ledger if ledger is None and entry.ledger else ledger
        budget = Budget(name, cap, ledger, loaded.privacy.epsilon is not None)
        held = alignment_of(loaded, data, alignment)
        joining = prepare(loaded, data, budget, folder, own, alignment=held)
        agree(joining, yes or dry_run)
        if not dry_run:
            with stopped("The same command comes back to the run; nothing is paid for twice."):
                attend(Attendant(joining, say), address, say)


def say(line: str) -> None:
    """A line with the time, at once also into a file."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _again(
    study: Path, out: Path, keys: Path | None, host: str, port: int, console: int | None
) -> str:
    """The command that began this run."""
    secured = f"--keys {shlex.quote(str(keys))}" if keys else "--insecure"
    named = f"{shlex.quote(str(study))} --out {shlex.quote(str(out))}"
    where = f"--host {shlex.quote(host)} --port {port}"
    page = "" if console is None else f" --console {console}"
    return f"understudy serve {named} {secured} {where}{page}"


def _told(**given: float) -> str:
    """Options that were not left as they are."""
    from understudy.deployment.serving import Serving

    return "".join(f" --{n} {v}" for n, v in given.items() if v != getattr(Serving, n))
