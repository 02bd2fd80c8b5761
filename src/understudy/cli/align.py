"""``understudy align``: find the people that all parties know, without showing anyone else."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import typer

from understudy.cli.console import JSON, check_new, check_place, plain_errors, print_json, writing
from understudy.cli.network import PORT
from understudy.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from understudy.data.align import Alignment, Secret

__all__ = ["app", "beside", "read_bytes"]

app = typer.Typer(
    name="align",
    help="Find the people that all parties know, in one common order, by blinded identifiers.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
ID = typer.Option(..., "--id", help="The column that identifies a person; may be repeated.")
KEY = typer.Option(..., "--key", help="This party's secret file: never send it.")
OUT = typer.Option(..., "--output", "-o", help="The file to write.")
PARTY = typer.Option(
    [], "--party", help="A party that takes part, in one order everywhere; default: all with keys."
)


@app.command()
def blind(
    data: Path = typer.Argument(..., help="This party's rows, CSV, Parquet or npz."),
    identifier: list[str] = ID,
    key: Path = KEY,
    output: Path = OUT,
    json: bool = JSON,
) -> None:
    """Step 1: blind this party's identifiers, and send the output to another party.

    A fresh secret is written to the key file. With more than two parties the
    file goes round: each of the others answers it.

    Example:

      understudy align blind mine.csv --id ssn --key mine.key -o mine.blind
    """
    with plain_errors(json):
        from understudy.data.align import blind as blinded

        check_place(key)
        check_place(output)
        secret, points = blinded(_identifiers(_frame(data), identifier))
        _write(key, secret.scalar + secret.order.astype("<i8").tobytes())
        _write(output, points.to_bytes())
        _say(json, f"{len(points):,} identifiers, blinded", output)


@app.command()
def answer(
    theirs: Path = typer.Argument(..., help="Another party's blinded identifiers."),
    key: Path = KEY,
    output: Path = OUT,
    json: bool = JSON,
) -> None:
    """Step 2: blind another party's file with this party's secret too, keep it, and send it back.

    Nobody but the parties may read answered files: whoever has those of all
    parties can make their alignment file.

    Example:

      understudy align answer theirs.blind --key mine.key -o theirs.answered
    """
    with plain_errors(json):
        from understudy.data.align import Blinded
        from understudy.data.align import answer as answered

        check_place(output)
        points = answered(_secret(key), Blinded.from_bytes(read_bytes(theirs)))
        _write(output, points.to_bytes())
        _say(json, f"{len(points):,} identifiers of another party, answered", output)


@app.command()
def match(
    data: Path = typer.Argument(..., help="This party's rows, as they were blinded."),
    identifier: list[str] = ID,
    key: Path = KEY,
    own: Path = typer.Option(..., "--own", help="This party's file, as all others answered it."),
    other: list[Path] = typer.Option(
        ..., "--other", help="Another party's file, answered by all; repeat it for each party."
    ),
    output: Path = OUT,
    json: bool = JSON,
) -> None:
    """Step 3: write the rows of the people that all parties know, without identifiers.

    All parties get the same people in the same order. Beside the rows stands
    an alignment file, with which a party joins a study over a network.

    Example:

      understudy align match mine.csv --id ssn --key mine.key --own mine.answered
      --other theirs.answered -o aligned.csv
    """
    with plain_errors(json):
        from understudy.data.align import Blinded, common

        _check_rows_place(output)
        frame = _frame(data)
        _identifiers(frame, identifier)
        answers = [Blinded.from_bytes(read_bytes(path)) for path in (own, *other)]
        rows, alignment = common(_secret(key), answers[0], answers[1:])
        _save(frame.drop(columns=identifier).iloc[rows], output)
        _keep(json, alignment, output)


@app.command()
def here(
    data: list[Path] = typer.Argument(..., help="The rows of all parties, a file each."),
    identifier: list[str] = ID,
    output: Path = typer.Option(..., "--output", "-o", help="A folder for the aligned files."),
    json: bool = JSON,
) -> None:
    """All steps for files that are all on this machine: for tests and simulations.

    Example:

      understudy align here clinic.csv insurer.csv --id ssn -o aligned
    """
    with plain_errors(json):
        from understudy.data.align import align_here
        from understudy.errors import DataError

        check_new(output)
        if len(data) < 2:
            raise DataError("a file of each of two parties or more", "one", "name the others too")
        frames = [_frame(path) for path in data]
        names = [_identifiers(frame, identifier) for frame in frames]
        _check_names(data)
        found, alignment = align_here(names)
        with writing(output):
            output.mkdir(parents=True)
        for path, frame, rows in zip(data, frames, found, strict=True):
            _save(frame.drop(columns=identifier).iloc[rows], output / path.name)
            _write(beside(output / path.name), alignment.to_bytes())
        _say(json, f"{alignment.rows:,} people that all {len(data)} parties know", output)


@app.command()
def agree(
    rows: int = typer.Option(..., min=1, help="Rows of each party's file."),
    output: Path = OUT,
    json: bool = JSON,
) -> None:
    """Without aligning: an alignment file for rows that are in one order already.

    One party makes it, and sends it to the others, not to the server.

    Example:

      understudy align agree --rows 5000 -o study.alignment
    """
    with plain_errors(json):
        from understudy.data.align import Alignment

        check_place(output)
        alignment = Alignment.fresh(rows)
        _write(output, alignment.to_bytes())
        if json:
            print_json({"ok": True, "output": str(output), "alignment": alignment.mark})
        else:
            typer.echo(f"Send {output} to the other parties, not to the server.")
            typer.echo(_marked(alignment))


@app.command()
def serve(
    keys: Path = typer.Option(..., "--keys", help="The server's key folder (understudy keys)."),
    party: list[str] = PARTY,
    host: str = typer.Option("localhost", help="The address of this machine to listen on."),
    port: int = typer.Option(PORT, help="The port that parties connect to."),
    wait: float = typer.Option(600.0, min=0, help="Seconds to wait for parties."),
    deadline: float = typer.Option(600.0, min=0.1, help="Seconds a party has for a step."),
    json: bool = JSON,
) -> None:
    """Pass on what parties send each other, where they align over a network.

    It cannot read what it passes on, and is not told who or how many are in
    common; it learns how many identifiers each party has.

    Example:

      understudy align serve --keys hub-keys --host 0.0.0.0
    """
    with plain_errors(json):
        from understudy.deployment.aligning import relay, wait_for
        from understudy.deployment.keys import load_keys
        from understudy.deployment.serving import Serving, check_port
        from understudy.runtime.flare import FlareTransport

        own = load_keys(keys)
        own.check_role("server")
        names = list(party or own.roster.names)
        roster, _ = own.seated(names)
        how = Serving(Path(), own, host, port)
        check_port(how)
        tell = _quiet if json else typer.echo
        with FlareTransport(names, how.address, wait) as transport:
            wait_for(transport, names, wait, tell)
            relay(transport, roster, deadline, tell)
        if json:
            print_json({"ok": True, "parties": names})


@app.command()
def join(
    data: Path = typer.Argument(..., help="This party's rows, CSV, Parquet or npz."),
    identifier: list[str] = ID,
    keys: Path = typer.Option(..., "--keys", help="This party's key folder (understudy keys)."),
    output: Path = OUT,
    server: str = typer.Option(f"localhost:{PORT}", help="HOST:PORT of the server."),
    party: list[str] = PARTY,
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask for confirmation."),
    json: bool = JSON,
) -> None:
    """Align with the other parties over a network, and write the rows known to all.

    Example:

      understudy align join mine.csv --id ssn --keys my-keys -o aligned.csv
    """
    with plain_errors(json):
        from understudy.cli.attending import address_of, stopped
        from understudy.deployment.aligning import Aligning, check_parties
        from understudy.deployment.attendance import attend
        from understudy.deployment.keys import fingerprint, load_keys

        _check_rows_place(output)
        own, frame = load_keys(keys), _frame(data)
        address = address_of(server, own)
        own.check_role("site")
        roster, identity = own.seated(list(party or own.roster.names))
        check_parties(roster)
        found = Aligning(roster, identity, _identifiers(frame, identifier), _quiet)
        with_whom = ", ".join(name for name in roster.names if name != own.name)
        typer.echo(
            f"{len(frame):,} people, with {with_whom}.\n{fill(_TOLD, 80)}\n{_SERVER}", err=json
        )
        typer.echo(fill(f"{_COMPARE}: {fingerprint(roster.hash)}", 80), err=json)
        if not yes:
            typer.confirm("Take part?", abort=True, err=json)
        with stopped("Nothing is kept: start again at every end."):
            attend(found, address, _quiet if json else typer.echo)
        assert found.alignment is not None  # or `attend` has raised what went wrong
        _save(frame.drop(columns=identifier).iloc[found.rows], output)
        _keep(json, found.alignment, output)


def beside(data: Path) -> Path:
    """Where the alignment file of aligned rows lies."""
    return data.with_name(f"{data.name}.alignment")


def _quiet(line: str) -> None:
    """Where the output is for machines."""


def _frame(path: Path) -> pd.DataFrame:
    """All cells as they stand in the file; a cell of an npz file may be an image."""
    import pandas as pd

    from understudy.data.arrays import load_npz
    from understudy.data.table import read_frame

    if path.suffix != ".npz" or not path.is_file():
        return read_frame(path)
    arrays = load_npz(path)
    if len({held.shape[:1] for held in arrays.values()}) != 1:
        raise DataError(f"arrays of one length in {path.name}", "others", "one entry per person")
    return pd.DataFrame({name: list(held) for name, held in arrays.items()})


def _identifiers(frame: pd.DataFrame, columns: list[str]) -> list[str]:
    from understudy.data.align import identifiers

    if missing := [name for name in columns if name not in frame]:
        raise DataError(f"a column {missing[0]!r}", "none", "check the spelling of --id")
    return identifiers([frame[name].tolist() for name in columns])


def _secret(path: Path) -> Secret:
    import numpy as np

    from understudy.data.align import Secret

    data = read_bytes(path)
    if len(data) < 32 or len(data) % 8:
        found = f"{path.name}, which is none"
        raise DataError("a secret file that align blind wrote", found, "name that file as --key")
    return Secret(data[:32], np.frombuffer(data[32:], "<i8"))


def read_bytes(path: Path) -> bytes:
    """What a file holds."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"a file {path.name}", f"{error.strerror}", "check the path") from error


def _write(path: Path, data: bytes) -> None:
    """A new file for its owner alone: lists that all have multiplied make the alignment, too."""
    with writing(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)


def _check_rows_place(output: Path) -> None:
    """Aligned rows, and the alignment file beside them, replace nothing."""
    check_place(output)
    check_new(beside(output))


def _check_names(files: list[Path]) -> None:
    """Aligned files keep their names, in one folder."""
    names = [path.name for path in files]
    if len({*names}) < len(names):
        raise DataError("files of different names", "one name twice", "rename one of them")


def _save(frame: pd.DataFrame, path: Path) -> None:
    import numpy as np

    with writing(path):
        if path.suffix in (".parquet", ".pq"):
            frame.to_parquet(path, index=False)
        elif path.suffix == ".npz":
            arrays = {str(name): np.stack(cells.tolist()) for name, cells in frame.items()}
            np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
        else:
            frame.to_csv(path, index=False)


_TOLD = (
    "All parties learn which of their own people each of the others knows, how many it has, and, "
    "with three parties or more, how many people any of the others have in common."
)

_SERVER = "The server learns how many identifiers each party has."
_COMPARE = (
    "A server that made up a party, or its keys, could try guesses: compare this fingerprint of "
    "the parties' keys with them, by telephone say"
)


def _keep(json: bool, alignment: Alignment, output: Path) -> None:
    """Write the alignment file beside the aligned rows, and say what the study file needs."""
    _write(beside(output), alignment.to_bytes())
    done, more = f"{alignment.rows:,} people that all parties know", {"alignment": alignment.mark}
    _say(json, done, output, **more)
    if not json:
        typer.echo(_marked(alignment))


def _marked(alignment: Alignment) -> str:
    return f'For a study over a network, under [study]: alignment = "{alignment.mark}"'


def _say(json: bool, done: str, output: Path, **more: str) -> None:
    if json:
        print_json({"ok": True, "done": done, "output": str(output), "reveals": _TOLD, **more})
    else:
        typer.echo(f"{done}: {output}\n{fill(_TOLD, 80)}")
