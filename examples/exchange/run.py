"""An exchange of generators and four members on one machine: the commands that people would type.

Each hospital has 100 rows of its own. It trains a generator alone, noised before it leaves, and
pushes it; a steward approves; then west pulls one balanced dataset made by the generators of the
others. East is not honest: its labels are swapped. West pulls once as it is, and once with
``--screen``, which tries the generators on west's own rows. Run it anywhere: it makes a folder
``exchange-example``.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from understudy.data.bundled import bundled
from understudy.data.table import write

MEMBERS = ("north", "south", "east", "west")
SETTINGS = """[exchange]
name = "Four hospitals"
schema = "schema.toml"
licence = "for research in these hospitals"

[requirements]
epsilon = 8.0      # of one member's data, over all its pushes of it
unit = "record"    # one patient's row
"""
STUDY = """[study]
name = "{name}"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
unit = "record"
trust = "local"    # noised before it leaves
epsilon = 7.0

[simulation]
data = "rows.csv"
sites = 1          # a member trains alone
"""


def main() -> None:
    """Rows, service, members, pushes, pulls."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("exchange-example"))
    folder = options.parse_args().out
    if folder.exists():
        sys.exit(f"{folder} exists: remove it, or choose another --out")
    folder.mkdir(parents=True)
    test = deal_rows(folder)
    service, url = serve(folder / "hub")
    try:
        join(folder, url)
        push(folder)
        approve(folder)
        pull(folder, test)
    finally:
        service.terminate()
        service.wait()
    print("\n# Store, database and audit log agree\n")
    typed(folder / "hub", "exchange", "check", "exchange.toml")
    print(f"\nAll of it is in {folder}")


def typed(place: Path, *words: str) -> None:
    """Run a command in a place, and show it."""
    print(f"{place.name}$ understudy {shlex.join(words)}", flush=True)
    done = subprocess.run(_command(words), cwd=place, capture_output=True, text=True)
    print("".join(f"  {line}\n" for line in (done.stdout + done.stderr).splitlines()), end="")
    if done.returncode:
        sys.exit(f"this command failed at {place.name}, with exit code {done.returncode}")


def asked(place: Path, *words: str) -> Any:
    """What a command says, for machines."""
    done = subprocess.run(
        [*_command(words), "--json"], cwd=place, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _command(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "understudy", *words]


def deal_rows(folder: Path) -> pd.DataFrame:
    """100 rows for each member; those that nobody gets are kept for the test at the end."""
    schema, records = bundled("breast_cancer")
    order = np.random.default_rng(0).permutation(len(records))
    for i, name in enumerate(("hub", "mara", *MEMBERS)):
        (folder / name).mkdir()
        (folder / name / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
        if name in MEMBERS:
            rows = records.take(order[100 * (i - 2) : 100 * (i - 1)])
            write(rows, folder / name / "rows.csv")
            text = STUDY.format(name=f"{name}'s generator")
            (folder / name / "study.toml").write_text(text, encoding="utf-8")
    swap_labels(folder / "east" / "rows.csv")
    (folder / "hub" / "exchange.toml").write_text(SETTINGS, encoding="utf-8")
    frame = records.take(order[100 * len(MEMBERS) :]).frame
    assert frame is not None
    return frame


def swap_labels(path: Path) -> None:
    """Poison: benign becomes malignant, and malignant benign."""
    frame = pd.read_csv(path)
    swapped = frame["diagnosis"].map({"benign": "malignant", "malignant": "benign"})
    frame.assign(diagnosis=swapped).to_csv(path, index=False)


def serve(hub: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start the service; on a real network it has a certificate: --host, --cert and --key."""
    with socket.create_server(("localhost", 0)) as found:
        port = found.getsockname()[1]
    words = ("exchange", "serve", "exchange.toml", "--port", str(port))
    print(f"hub$ understudy {shlex.join(words)} &", flush=True)
    process = subprocess.Popen(_command(words), cwd=hub)
    while process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://localhost:{port}"
        time.sleep(0.2)
    sys.exit("the service did not start")


def join(folder: Path, url: str) -> None:
    """Each with a key of its own and an invitation; mara is the steward."""
    print("\n# Subscribe: a key, an invitation, and the requirements as the answer\n")
    for name in ("mara", *MEMBERS):
        typed(folder / name, "keys", "request", "keys", "--name", name)
        role = "steward" if name == "mara" else "member"
        code = asked(folder / "hub", "exchange", "invite", "exchange.toml", "--role", role)["code"]
        typed(folder / name, "exchange", "subscribe", url, "--keys", "keys", "--code", code)


def push(folder: Path) -> None:
    """Train alone, then give."""
    print("\n# Push: each trains on its own rows, and gives its generator\n")
    for name in MEMBERS:
        typed(folder / name, "run", "study.toml", "--out", "release", "--quiet")
        words = ("exchange", "push", "release", "--keys", "keys", "--data", "biopsies", "--quiet")
        typed(folder / name, *words)


def approve(folder: Path) -> None:
    """Mara looks at claim and sample (on the page: understudy exchange open), and takes all."""
    print("\n# A steward approves\n")
    typed(folder / "mara", "exchange", "queue", "--keys", "keys")
    for waiting in asked(folder / "mara", "exchange", "queue", "--keys", "keys")["releases"]:
        typed(folder / "mara", "exchange", "approve", waiting["id"], "--keys", "keys")


def pull(folder: Path, test: pd.DataFrame) -> None:
    """West, with and without looking at what the generators teach."""
    print("\n# Pull: one balanced dataset from the generators of the others\n")
    west = folder / "west"
    shutil.copy(west / "rows.csv", west / "own.csv")
    words = ("exchange", "pull", "--keys", "keys", "-n", "2000", "--seed", "0", "--quiet")
    typed(west, *words, "-o", "unscreened.csv")
    typed(west, *words, "-o", "screened.csv", "--screen", "own.csv")
    print("\n# What a classifier of these rows gets right, of rows that nobody held\n")
    for name in ("own.csv", "unscreened.csv", "screened.csv"):
        print(f"  {name:<16} {accuracy(pd.read_csv(west / name), test):.3f}")


def accuracy(train: pd.DataFrame, test: pd.DataFrame) -> float:
    """Of logistic regression."""
    x, y = train.drop(columns="diagnosis"), train["diagnosis"]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x, y)
    return float(model.score(test.drop(columns="diagnosis"), test["diagnosis"]))


if __name__ == "__main__":
    main()
