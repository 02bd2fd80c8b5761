"""Three hospitals and a server, four processes on one machine, as they would run on four.

Every hospital has its own folder: rows, keys, ledger. The script types the commands that people
would type at each place, and shows them. It ends with a release that the server has signed and all
hospitals have counter-signed. Run it anywhere: it makes a folder ``three-hospitals``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from understudy.data.bundled import bundled
from understudy.data.table import write

HOSPITALS = ("north", "south", "west")
MINUTES = 8  # after which it is given up
STUDY = """[study]
name = "three hospitals"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"         # one patient's row
trust = "distributed"   # no server sees a hospital's sum
epsilon = 2.0
""" + "".join(f'\n[[site]]\nname = "{name}"\n' for name in HOSPITALS)


class Place:
    """A folder that stands for a machine, and what is typed there."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder / name, name
        self.folder.mkdir()

    def type(self, *words: str) -> None:
        """Run a command to its end, and show it."""
        self._show(words)
        done = subprocess.run(
            _command(words), cwd=self.folder, env=_narrower(), capture_output=True, text=True
        )
        print(_indented(done.stdout + done.stderr), end="", flush=True)
        if done.returncode:
            sys.exit(f"this command failed at {self.name}, with exit code {done.returncode}")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command that goes on; what it says is in ``output.txt``."""
        self._show(words)
        with open(self.folder / "output.txt", "w", encoding="utf-8") as file:
            return subprocess.Popen(
                _command(words),
                cwd=self.folder,
                env=_narrower(),
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def said(self) -> str:
        """What a started command has said."""
        return (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace")

    def send(self, file: str, other: Place) -> None:
        """As if by mail: nothing in these files is secret."""
        data = (self.folder / file).read_bytes()
        (other.folder / Path(file).name).write_bytes(data)
        print(f"  {self.name} sends {Path(file).name} to {other.name}")

    def _show(self, words: tuple[str, ...]) -> None:
        print(f"{self.name}$ understudy {shlex.join(words)}", flush=True)


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "understudy", *words]


def _narrower() -> dict[str, str]:
    """Room for what is said, indented, in this terminal."""
    return {**os.environ, "COLUMNS": str(min(shutil.get_terminal_size().columns, 102) - 2)}


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def main() -> None:
    """Rows, keys, run, release."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("three-hospitals"))
    folder = options.parse_args().out
    if folder.exists():
        sys.exit(f"{folder} exists: remove it, or choose another --out")
    folder.mkdir(parents=True)
    begun = time.monotonic()
    hub, sites = Place(folder, "hub"), [Place(folder, name) for name in HOSPITALS]
    prepare(hub, sites)
    exchange_keys(hub, sites)
    run(hub, sites)
    look(hub, sites)
    print(f"\nDone in {time.monotonic() - begun:.0f} s; all of it is in {folder}")


def prepare(hub: Place, sites: list[Place]) -> None:
    """Every hospital has its own rows; the study and the schema are public, the same for all."""
    print("# Each hospital has a third of the rows, and all have the same study file\n")
    schema, records = bundled("breast_cancer")
    for place in (hub, *sites):
        (place.folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
        (place.folder / "study.toml").write_text(STUDY, encoding="utf-8")
    for index, site in enumerate(sites):
        own = np.arange(index, len(records), len(sites))
        write(records.take(own), site.folder / "rows.csv")


def exchange_keys(hub: Place, sites: list[Place]) -> None:
    """Once per federation; --yes stands for the telephone calls in which people compare."""
    print("# Keys: made where they are used; only requests and replies travel\n")
    hub.type("keys", "init", "keys", "--name", "hub", "--host", "localhost")
    for site in sites:
        site.type("keys", "request", "keys", "--name", site.name)
        site.send(f"keys/{site.name}.request.json", hub)
    requests = [f"{site.name}.request.json" for site in sites]
    hub.type("keys", "approve", "keys", *requests, "--yes")
    for site in sites:
        hub.send(f"keys/sites/{site.name}.reply.json", site)
        site.type("keys", "install", "keys", f"{site.name}.reply.json", "--yes")


def run(hub: Place, sites: list[Place]) -> None:
    """One command at each place."""
    print("\n# The run: one command at each place\n")
    port = free_port()
    address = f"localhost:{port}"
    processes = {
        hub.name: hub.start(
            "serve", "study.toml", "--out", "release", "--keys", "keys", "--port", str(port)
        )
    }
    join = ("join", "study.toml", "--keys", "keys", "--data", "rows.csv", "--server", address)
    try:
        for site in sites:
            processes[site.name] = site.start(*join, "--state", "state", "--cap", "4", "--yes")
        follow(hub, processes)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
    for place in (hub, *sites):
        if code := processes[place.name].returncode:
            sys.exit(f"{place.name} ended with exit code {code}:\n{place.said()}")
    print(
        f"\n# What {sites[0].name} was shown before it took part\n\n{_indented(sites[0].said())}",
        end="",
    )


def follow(hub: Place, processes: dict[str, subprocess.Popen[str]]) -> None:
    """Show the server's log until all have ended, or one has failed, or the time is up."""
    shown, until, going = 0, time.monotonic() + 60 * MINUTES, True
    while going and time.monotonic() < until:
        codes = [process.poll() for process in processes.values()]
        going = None in codes and not any(codes)
        log = [line for line in hub.said().splitlines() if line[:2].isdigit()]
        print(_indented("\n".join(log[shown:])), end="", flush=True)
        shown = len(log)
        time.sleep(0.1)


def free_port() -> int:
    """A port that nobody uses just now."""
    with socket.create_server(("localhost", 0)) as found:
        return int(found.getsockname()[1])


def look(hub: Place, sites: list[Place]) -> None:
    """What anyone can check who has the roster, and what each hospital has spent."""
    print("\n# The release: signed by the server, counter-signed by every hospital\n")
    hub.type("verify", "release", "--trust", "keys/roster.json")
    print(f"  a synthetic sample is in {hub.folder / 'release' / 'sample.parquet'}")
    print("\n# What it cost, by the hospital's own ledger\n")
    sites[0].type("ledger", "show", "state/ledger.jsonl")


if __name__ == "__main__":
    main()
