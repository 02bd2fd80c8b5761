"""``understudy doctor``: what is missing or misconfigured on this machine, and the fix.

Each check is a small function that looks and never changes anything. Without ``--full`` no
library is loaded: versions are read from their metadata. With it they are imported inside the
checks, so that a broken one becomes a line in the table and not a traceback, and the accountant
is asked for a value known in closed form: a library that computes ε wrongly is worse than one
that is missing.
"""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from understudy.cli.console import JSON, print_json

__all__ = ["Check", "doctor", "examine"]

FREE_GB = 1.0
TORCH = (2, 10)  # below it, files made by others can run code while they load
# Φ(½−ε) − e^ε·Φ(−½−ε) = δ, solved for one Gaussian of z = 1 at δ = 1e-5.
GAUSSIAN_EPSILON = 4.37718
SETUP = "run scripts/setup"


@dataclass(frozen=True)
class Check:
    """One line of the table: what was looked at, what was found, how to fix it."""

    name: str
    ok: bool
    found: str
    do: str


def packages() -> Check:
    """Every run-time dependency is installed."""
    wanted = [r for r in metadata.requires("understudy") or () if ";" not in r]
    names = [re.split(r"[^\w.-]", r)[0] for r in wanted]
    missing = [name for name in names if not _version(name)]
    found = f"missing: {', '.join(missing)}" if missing else f"{len(names)} installed"
    return Check("packages", not missing, found, SETUP)


def torch_version() -> Check:
    """PyTorch is recent enough."""
    found = _version("torch")
    release = tuple(int(part) for part in re.findall(r"\d+", found or "")[:2])
    return Check("PyTorch", release >= TORCH, found or "not installed", SETUP)


def torch_build() -> Check:
    """PyTorch loads; how many threads and which device it will use."""
    import torch

    device = "GPU" if torch.cuda.is_available() else "CPU"
    found = f"loads, {torch.get_num_threads()} threads, {device}"
    return Check("PyTorch in use", True, found, SETUP)


def accountant() -> Check:
    """Our path through dp-accounting gives the closed-form ε of one Gaussian."""
    from understudy.privacy.account import Event, cost

    spent = cost([Event(noise=(1.0,), rate=None, count=1)], 1e-5)
    right = abs(spent.epsilon - GAUSSIAN_EPSILON) < 1e-3 and spent.epsilon_rdp >= spent.epsilon
    found = (
        f"{_version('dp-accounting')}; ε of one Gaussian (z = 1, δ = 1e-5) is "
        f"{spent.epsilon:.4f}, known {GAUSSIAN_EPSILON:.4f}"
    )
    return Check("dp-accounting", right, found, f"{SETUP}; make no claims until this is ✓")


def entropy() -> Check:
    """The operating system gives randomness, on which all noise rests."""
    fresh = os.urandom(32) != os.urandom(32)
    found = "available" if fresh else "repeats itself"
    return Check("system entropy", fresh, found, "do not run studies here: noise must be secret")


def disk_space(folder: Path = Path(".")) -> Check:
    """Room for checkpoints and a release in the present folder."""
    free = shutil.disk_usage(folder).free / 1e9
    do = f"free {FREE_GB:g} GB, or work in another folder"
    return Check("disk space", free >= FREE_GB, f"{free:.1f} GB free in this folder", do)


CHECKS: tuple[Callable[[], Check], ...] = (
    packages,
    torch_version,
    entropy,
    disk_space,
)
LOADED: tuple[Callable[[], Check], ...] = (torch_build, accountant)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _look(check: Callable[[], Check]) -> Check:
    """A check that cannot even run is a failed one."""
    try:
        return check()
    except Exception as error:
        name = check.__name__.replace("_", " ")
        return Check(name, False, f"{type(error).__name__}: {error}", SETUP)


def examine(checks: tuple[Callable[[], Check], ...] = CHECKS) -> tuple[Check, ...]:
    """All findings, in the order of the table."""
    return tuple(_look(check) for check in checks)


def _table(findings: tuple[Check, ...]) -> Table:
    table = Table(title="understudy doctor", title_justify="left", header_style="bold")
    for heading in ("", "what", "found", "do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        mark, do = ("[green]✓[/]", "") if finding.ok else ("[red]✗[/]", escape(finding.do))
        table.add_row(mark, finding.name, escape(finding.found), do)
    return table


def doctor(
    full: bool = typer.Option(
        False, "--full", help="Also load PyTorch and compute a known ε (takes some seconds)."
    ),
    json: bool = JSON,
) -> None:
    """Say what is missing or misconfigured on this machine, and the fix.

    Exit code 0 if everything is fine, 1 otherwise.

    Examples:

      understudy doctor

      understudy doctor --full
    """
    findings = examine(CHECKS + LOADED if full else CHECKS)
    well = all(finding.ok for finding in findings)
    if json:
        print_json({"ok": well, "checks": [asdict(f) for f in findings]})
    else:
        console = Console()
        console.print(_table(findings))
        console.print("Ready." if well else "Not ready: fix the lines marked ✗.")
    raise typer.Exit(0 if well else 1)
