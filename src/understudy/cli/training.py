"""A study under a progress bar: rounds and ε so far, Ctrl-C between rounds, what to do next."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from rich.console import Console

from understudy.cli.claims import claims_panel
from understudy.cli.console import READING, bar, spinner, telling
from understudy.cli.planning import SOLVING, warn
from understudy.federation.recipe import Recipe
from understudy.privacy.claim import claims, round_up, spent_so_far
from understudy.privacy.hints import on_disk
from understudy.privacy.spending import read, spending
from understudy.recipes import build
from understudy.release.bundle import Release
from understudy.simulation import Doing, run, run_apart
from understudy.simulation.budgets import site_budgets
from understudy.study import Study

__all__ = ["say_done", "say_interrupted", "say_left", "train"]


_FINISHING = "\nFinishing the current round; press Ctrl-C again to stop now.\n"


def train(
    study: Study, out: Path, quiet: bool, *, aloud: bool = True, wire: bool = False, **options: Any
) -> Release:
    """Run a study under a progress bar that shows rounds and ε so far; ``aloud``: warn first."""
    with spinner(SOLVING, quiet), on_disk():
        recipe = build(study)
        price = _price_so_far(recipe)
    if aloud:
        warn(study, recipe.plan, Console(stderr=True))
    with (
        telling(aloud),
        bar(f"training {study.name}", quiet) as tick,
        _between_rounds() as interrupted,
    ):
        tick("reading rows", 0, 1)

        def progress(doing: Doing, done: int, total: int) -> None:
            if not quiet:
                tick(READING if doing == "reading" else price(done), done, total)
            if interrupted() and (done < total or doing == "reading"):
                raise KeyboardInterrupt

        return (run_apart if wire else run)(study, out=out, progress=progress, **options)


@contextmanager
def _between_rounds() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C wait for the round to end, so that its charge is not wasted."""
    pressed = []

    def note(*_: object) -> None:
        pressed.append(True)
        os.write(2, _FINISHING.encode())  # not by the console: it may be drawing the bar
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _price_so_far(recipe: Recipe) -> Callable[[int], str]:
    """ε spent after so many rounds, at a dozen points of the run (accounting takes a moment)."""
    length = recipe.plan.length
    step = max(1, length // 12)
    known = lru_cache(lambda rounds: spent_so_far(recipe.plan, rounds))
    of = f"per {recipe.plan.unit} " if recipe.plan.unproven else ""
    found = [claim.epsilon for claim in claims(recipe.plan, "os") if claim.epsilon is not None]
    promised = found[0] if found else float("inf")

    def note(done: int) -> str:
        charged = min(done + 1, length)  # the round at hand is charged before its noise is drawn
        reached = length if charged == length else -(-charged // step) * step
        spent = min(known(min(reached, length)), promised)
        warm = "warm start and pre-training, " if done < recipe.plan.first else ""
        return f"{warm}{of}ε ≤ {round_up(spent)} so far"

    return note if recipe.plan.private else (lambda done: "not private")


def say_done(release: Release, out: Path) -> None:
    """What a finished run claims, and what to do with the release."""
    console = Console()
    console.print(claims_panel(release.claims))
    place = shlex.quote(str(out))
    console.print(f"[green]✓[/] release in [bold]{out}[/]", soft_wrap=True)
    console.print(f"  understudy verify {place}", soft_wrap=True)
    for use in _uses(release, place):
        console.print(f"  understudy {use}", soft_wrap=True)


def say_left(study: Study) -> None:
    """What each site with a ledger has spent, and what is left under its cap."""
    console = Console()
    for site in site_budgets(study):
        if site.ledger is not None:
            spent = spending(read(site.ledger))
            of = "" if spent.left is None else f" of {spent.cap:g}: about {spent.left:.3g} is left"
            said = f"{site.name} has spent ε = {round_up(spent.epsilon)}{of}"
            command = f"understudy ledger show {shlex.quote(str(site.ledger))}"
            console.print(f"  {said}  ({command})", highlight=False, markup=False, soft_wrap=True)


def _uses(release: Release, place: str) -> tuple[str, ...]:
    """Commands for a generator, or for a classifier."""
    if release.model.role == "classifier":
        return (f"predict {place} --data YOUR_ROWS -o predictions.csv",)
    in_tables = release.schema.kind == "table" or release.schema.layout is not None
    rows = "synthetic.csv" if in_tables else "synthetic.npz"
    evaluate = f"evaluate {place} --real YOUR_ROWS --out report"
    return f"sample {place} -n 1000 -o {rows}", evaluate


def say_interrupted(study: Path, out: Path) -> None:
    """What Ctrl-C left behind, and how to continue."""
    console = Console(stderr=True)
    if not out.with_name(out.name + ".partial").exists():
        console.print("[yellow]Interrupted.[/] Nothing was spent yet.")
        return
    console.print(
        "[yellow]Interrupted.[/] The finished rounds are kept, and so is what they spent."
    )
    command = f"understudy run {shlex.quote(str(study))} --out {shlex.quote(str(out))} --resume"
    console.print(f"To continue:  {command}", soft_wrap=True)
