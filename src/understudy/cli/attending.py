"""What ``serve`` and ``join`` show: who is there, what leaves a site, and what it costs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.align import beside, read_bytes
from understudy.cli.claims import claims_panel
from understudy.cli.console import print_hanging
from understudy.cli.training import say_done
from understudy.deployment.console import start
from understudy.deployment.joining import Joining
from understudy.deployment.keys import Keys, load_keys
from understudy.deployment.status import Status
from understudy.errors import StudyError
from understudy.federation.budget import Standing
from understudy.federation.products import product_part
from understudy.privacy.claim import claims, round_up
from understudy.privacy.plan import Part, Phase, PrivacyPlan
from understudy.release.bundle import Release
from understudy.runtime.flare import Address, Tls
from understudy.study import Study

if TYPE_CHECKING:
    from understudy.data.align import Alignment

__all__ = [
    "address_of",
    "agree",
    "alignment_of",
    "check_simulation",
    "follow",
    "key_folder",
    "needed",
    "say_served",
    "show_page",
    "site_name",
    "stopped",
]


def site_name(given: str, keys: Keys | None) -> str:
    """A site's name is that of its keys."""
    if keys is not None and given not in ("", keys.name):
        raise StudyError(f"--site {keys.name}, as its keys have it", given, "leave --site out")
    return given or (keys.name if keys else "")


def check_simulation(workers: int | None, seed: int | None, resume: bool = False) -> None:
    """A seed is for simulations, whose noise can be repeated; they are not resumed."""
    if workers is None and seed is not None:
        raise StudyError("--seed with --simulate", "--seed alone", "leave it out: noise is secret")
    if workers is not None and resume:
        raise StudyError(
            "--simulate or --resume", "both", "start it again: one seed gives one release"
        )


def needed(data: Path | None) -> Path:
    """The file of a site's rows."""
    if data is None:
        raise StudyError("--data FILE, this site's rows", "none", "add it")
    return data


def alignment_of(study: Study, data: Path, given: Path | None) -> Alignment | None:
    """The alignment file of a party: the one that is named, or the one by its rows."""
    from understudy.data.align import Alignment

    path = given or beside(data)
    if given is None and not (study.parties and path.is_file()):
        return None
    return Alignment.from_bytes(read_bytes(path))


@contextmanager
def stopped(kept: str) -> Iterator[None]:
    """Ctrl-C ends with a word on what was kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        console = Console(stderr=True)
        console.print(f"[yellow]Stopped.[/] {escape(kept)}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None


def key_folder(folder: Path | None, insecure: bool) -> Keys | None:
    """The keys to use; none only with --insecure."""
    if folder is not None and insecure:
        raise StudyError("--keys or --insecure", "both", "leave --insecure out")
    if folder is None and not insecure:
        raise StudyError(
            "keys, for an encrypted connection between known parties",
            "none",
            "add --keys FOLDER (understudy keys init at the server, request at a site); or, for "
            "tests on one machine, --insecure",
        )
    return None if folder is None else load_keys(folder)


def follow(quiet: bool) -> Callable[[Status], None]:
    """Prints each new line of a run's log."""
    seen: tuple[str, ...] = ()

    def tell(status: Status) -> None:
        nonlocal seen
        fresh, seen = [line for line in status.log if line not in seen], status.log
        for line in () if quiet else fresh:
            print(line, flush=True)

    return tell


def show_page(folder: Path, port: int | None) -> None:
    """Open the console page of a run, and print its address, which has a token in it."""
    if port is not None:
        print(f"the run is shown at {start(folder, port)}", flush=True)


def say_served(release: Release, out: Path) -> None:
    """What the run claims, who signed it, and what to do with it."""
    say_done(release, out)
    if release.signed is not None:
        print(f"  signed by {', '.join(release.signed.signatures)}")
        print(f"  understudy verify {shlex.quote(str(out))} --trust ROSTER")


def agree(joining: Joining, yes: bool) -> None:
    """Show what will leave this site and what it costs, and ask."""
    console, plan = Console(), joining.recipe.plan
    console.print(_leaving(joining))
    console.print(claims_panel(claims(plan, joining.sites.source.name)))
    for line in (*_agreed(joining), *_cost(joining.spent(), plan, joining.budget.ledger)):
        print_hanging(console, "  ", line)
    if run := joining.run:
        print_hanging(console, "  ", f"This site has joined run {run[:8]} and goes on with it.")
    if not yes and not typer.confirm("Take part?"):
        console.print("Nothing was sent, and nothing was spent.")
        raise typer.Exit(1)


def _leaving(joining: Joining) -> Table:
    plan = joining.recipe.plan
    title = f"what leaves {escape(joining.name)} for {escape(joining.study.name)}, and nothing else"
    table = Table(title=title, title_justify="left", header_style="dim")
    for heading in ("part", "size", "how often", "how it is protected"):
        table.add_column(heading, overflow="fold")
    for phase in plan.phases:
        for part in _sent(joining, phase):
            shape = " × ".join(map(str, part.shape))
            size = f"{shape} numbers, up to {part.bytes / 1e3:,.3g} kB"
            done = part.mechanism.describe(part).removeprefix(f"{part.name}: ")
            table.add_row(part.name, size, _often(phase), done)
    for row in _besides(plan):
        table.add_row(*row)
    return table


def _sent(joining: Joining, phase: Phase) -> Sequence[Part]:
    """The parts that this site sends: of parties each has its own."""
    if joining.recipe.plan.held == "rows":
        return phase.parts
    return phase.sent_by(joining.study.site_names.index(joining.name))


def _often(phase: Phase) -> str:
    times, rounds = phase.participations, phase.rounds
    if times >= rounds:
        return "once" if rounds == 1 else f"in each of {rounds:,} rounds"
    return f"in up to {times:,} of {rounds:,} rounds"


def _besides(plan: PrivacyPlan) -> Iterator[tuple[str, str, str, str]]:
    """What travels beside the parts."""
    heads = max(_heading(plan, i) for i in range(len(plan.phases)))
    said = "run, round, hashes, and how much noise was added: nothing of the rows"
    yield "headings", f"up to {heads / 1e3:,.1f} kB", "once for each round", said
    if plan.trust == "distributed":
        size = f"about {(400 + 300 * plan.sites) / 1e3:.1f} kB"
        said = "fresh public keys, encrypted shares and signatures: nothing of the rows"
        yield "keys of a secure sum", size, "in each round that it joins", said
    if any(product_part(plan, plan.start(phase)) for phase in range(len(plan.phases))):
        said = "each number hidden by a random one, and locked so that the server cannot read it"
        yield "masked rows", "in the size of products", "once for each, to other parties", said
    yield "greeting", "about 2 kB", "once per connection", "study, hashes, version, clock: no rows"
    yield "signature", "64 bytes", "once, at the end", "that it took part in this run"


def _heading(plan: PrivacyPlan, phase: int) -> int:
    """Bytes of an answer in a phase that are no numbers, at most: a receipt for each noise."""
    receipts, parts = plan.receipts(plan.start(phase), "simulation"), plan.phases[phase].parts
    return 1000 + 250 * len(receipts) + 120 * len(parts)


def _agreed(joining: Joining) -> Iterator[str]:
    """What people at the sites compare, and sign off."""
    yield f"The study's hash: {joining.study.hash}"
    if joining.keys is not None:
        yield f"The roster's fingerprint: {joining.keys.fingerprint}"
    if joining.study.parties:
        yield "Compare it with the other parties, by telephone say, not with the server: one that"
        yield "made up a party's keys could read your rows."


def _cost(spent: Standing, plan: PrivacyPlan, ledger: Path | None) -> Iterator[str]:
    if not plan.private:
        yield "No noise is added: this study protects nothing, and no ledger can add it up."
        return
    yield f"By this site's ledger {ledger}: ε = {round_up(spent.before)} spent before,"
    left = "no cap is set (--cap)"
    if spent.cap is not None:
        left = f"the cap is {spent.cap:g}, {spent.cap - spent.after:.3g} would be left"
    yield f"ε = {round_up(spent.after)} with this run; {left}."
    yield "It is charged before the first answer."


def address_of(server: str, keys: Keys | None) -> Address:
    """The server's address, as ``--server`` has it."""
    host, _, port = server.rpartition(":")
    if not host or not port.isdigit():
        raise StudyError("--server HOST:PORT", repr(server), "e.g. --server hub.example:8702")
    tls = None if keys is None else Tls(keys.ca, keys.cert, keys.key, keys.server)
    return Address(host, int(port), tls)
