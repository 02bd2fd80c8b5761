"""`understudy align`: two parties and files that go between them."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from understudy.cli import app


def said(*words: object) -> str:
    found = CliRunner().invoke(app, ["align", *map(str, words)])
    assert found.exit_code == 0, found.output
    return " ".join(found.output.split())


def test_two_parties_align_by_files(tmp_path: Path) -> None:
    frames = {
        "clinic": pd.DataFrame({"ssn": [f"A{i}" for i in range(30)], "age": range(30)}),
        "insurer": pd.DataFrame({"ssn": [f"a{i} " for i in range(40, 9, -1)], "sum": range(31)}),
    }
    at = {name: tmp_path / name for name in frames}
    for name, frame in frames.items():
        frame.to_csv(f"{at[name]}.csv", index=False)
        blind = ("blind", f"{at[name]}.csv", "--id", "ssn", "--key", f"{at[name]}.key")
        told = said(*blind, "-o", f"{at[name]}.blind")
        assert "learn which of their own people" in told
        assert "how many people any of the others have in common" in told
    pairs = (("clinic", "insurer"), ("insurer", "clinic"))
    for me, other in pairs:
        sent = ("answer", f"{at[other]}.blind", "--key", f"{at[me]}.key")
        said(*sent, "-o", f"{at[other]}.answered")
    for me, other in pairs:
        match = ("match", f"{at[me]}.csv", "--id", "ssn", "--key", f"{at[me]}.key")
        files = ("--own", f"{at[me]}.answered", "--other", f"{at[other]}.answered")
        assert "20 people" in said(*match, *files, "-o", f"{at[me]}.out.csv")
    private = ("key", "blind", "answered", "out.csv.alignment")
    modes = {(Path(f"{at[name]}.{end}").stat().st_mode) for name in frames for end in private}
    assert {stat.S_IMODE(mode) for mode in modes} == {0o600}  # both answered lists make a secret
    made = [pd.read_csv(f"{at[name]}.out.csv") for name in frames]
    assert [list(frame.columns) for frame in made] == [["age"], ["sum"]]
    assert (made[0]["age"] == 40 - made[1]["sum"]).all()


BAD = {
    "repeated": (["secret", "Secret"], "ssn", "every person once"),
    "empty": (["secret", " "], "ssn", "an identifier in every row"),
    "unknown": (["secret", "other"], "id", "a column 'id'"),
}


@pytest.mark.parametrize(("names", "column", "message"), BAD.values(), ids=BAD)
def test_identifiers_that_cannot_be_used_are_refused_without_their_values(
    names: list[str], column: str, message: str, tmp_path: Path
) -> None:
    """And nothing is written that could be sent."""
    data = tmp_path / "x.csv"
    pd.DataFrame({"ssn": names, "a": [1, 2]}).to_csv(data, index=False)
    steps = {
        "blind": [str(data), "--key", str(tmp_path / "k")],
        "here": [str(data), str(data)],
    }
    for step, words in steps.items():
        asked = ["align", step, *words, "--id", column, "-o", str(tmp_path / "out")]
        found = CliRunner().invoke(app, asked)
        assert found.exit_code == 3 and message in " ".join(found.output.split())
        assert "ecret" not in found.output
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_nobody_in_common_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for path, name in zip(files, ("secret", "other"), strict=True):
        pd.DataFrame({"ssn": [name], "a": [1]}).to_csv(path, index=False)
    asked = ["align", "here", *map(str, files), "--id", "ssn", "-o", str(tmp_path / "out")]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 3 and "people that all parties know" in " ".join(found.output.split())
    assert "ecret" not in found.output and not (tmp_path / "out").exists()


def test_all_steps_on_one_machine(tmp_path: Path) -> None:
    files = []
    for name, start in (("one", 0), ("two", 5), ("three", 2)):
        files.append(tmp_path / f"{name}.csv")
        frame = pd.DataFrame({"id": range(start, start + 10), name: range(start, start + 10)})
        frame.to_csv(files[-1], index=False)
    assert "5 people" in said("here", *files, "--id", "id", "-o", tmp_path / "out")
    made = [pd.read_csv(tmp_path / "out" / path.name).iloc[:, 0].tolist() for path in files]
    assert made[0] == made[1] == made[2] and sorted(made[0]) == [5, 6, 7, 8, 9]
    alignments = [*(tmp_path / "out").glob("*.alignment")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in alignments] == [0o600] * 3


def test_an_alignment_file_of_another_study_is_not_replaced(tmp_path: Path) -> None:
    """It could be read by all before, and a study that was agreed on by it could not go on."""
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("ssn,x\n1,2\n", encoding="utf-8")
        key = ("--id", "ssn", "--key", tmp_path / f"{name}.key")
        said("blind", tmp_path / f"{name}.csv", *key, "-o", tmp_path / f"{name}.blind")
    for me, other in ("ab", "ba"):
        sent = ("answer", tmp_path / f"{other}.blind", "--key", tmp_path / f"{me}.key")
        said(*sent, "-o", tmp_path / f"{other}.answered")
    out, kept = tmp_path / "rows.csv", tmp_path / "rows.csv.alignment"
    kept.write_bytes(b"another")
    data = (tmp_path / "a.csv", "--id", "ssn", "-o", out)
    lists = ("--own", tmp_path / "a.answered", "--other", tmp_path / "b.answered")
    matched = refused("match", *data, "--key", tmp_path / "a.key", *lists)
    joined = refused("join", *data, "--keys", tmp_path / "none")
    assert "rows.csv.alignment exists" in matched and "rows.csv.alignment exists" in joined
    assert kept.read_bytes() == b"another" and not out.exists()


def test_what_cannot_be_aligned_here_is_said_with_a_remedy_that_exists(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("id,a\n1,2\n")
    here = ["align", "here", str(tmp_path / "one.csv"), "--id", "id", "-o"]
    alone = CliRunner().invoke(app, [*here, str(tmp_path / "out")])
    assert alone.exit_code == 3 and "two parties or more" in alone.output
    again = CliRunner().invoke(app, [*here, str(tmp_path)])
    assert again.exit_code == 9 and "choose another name" in again.output
    assert "--force" not in again.output  # align has none


def test_images_are_aligned_with_a_table(tmp_path: Path) -> None:
    table, scans, out = tmp_path / "table.csv", tmp_path / "scans.npz", tmp_path / "out"
    pd.DataFrame({"id": ["a", "b", "c"], "age": [1, 2, 3]}).to_csv(table, index=False)
    pixels = np.arange(4 * 6, dtype=np.uint8).reshape(4, 2, 3)
    np.savez(scans, id=np.array(["C", "x", "b ", "y"]), scan=pixels)
    assert "2 people" in said("here", table, scans, "--id", "id", "-o", out)
    ages = pd.read_csv(out / "table.csv")["age"].tolist()
    with np.load(out / "scans.npz") as made:
        assert list(made) == ["scan"] and made["scan"].dtype == np.uint8
        assert (made["scan"] == pixels[[{3: 0, 2: 2}[age] for age in ages]]).all()
    np.savez(scans, id=np.array(["a"]), scan=pixels)
    wrong = CliRunner().invoke(app, ["align", "here", str(table), str(scans), "--id", "id",
                                     "-o", str(tmp_path / "no")])  # fmt: skip
    assert wrong.exit_code == 3 and "arrays of one length" in wrong.output


def refused(*words: object) -> str:
    found = CliRunner().invoke(app, ["align", *map(str, words)])
    assert found.exit_code > 1, found.output
    return found.output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = ("--id", "ssn", "--key", tmp_path / "k", "-o", tmp_path / "b")
    assert "nothing at" in refused("blind", tmp_path / "none.csv", *words)
    assert not (tmp_path / "k").exists()


def test_files_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    files = [tmp_path / party / "rows.csv" for party in "ab"]
    for file in files:
        file.parent.mkdir()
        file.write_text("ssn,x\n1,2\n", encoding="utf-8")
    out = tmp_path / "deep" / "out"
    assert "one name twice" in refused("here", *files, "--id", "ssn", "-o", out)
    files[1] = files[1].rename(files[1].with_name("others.csv"))
    said("here", *files, "--id", "ssn", "-o", out)
    assert {path.name for path in out.glob("*.csv")} == {"rows.csv", "others.csv"}


def test_a_file_that_is_no_secret_is_not_taken_for_one(tmp_path: Path) -> None:
    data, key, sent = (tmp_path / name for name in ("x.csv", "k", "b"))
    data.write_text("ssn,x\n1,2\n", encoding="utf-8")
    said("blind", data, "--id", "ssn", "--key", key, "-o", sent)
    again = refused("blind", data, "--id", "ssn", "--key", key, "-o", tmp_path / "other")
    assert "choose another name" in again and "--force" not in again
    assert "which is none" in refused("answer", sent, "--key", data, "-o", tmp_path / "c")


def test_a_folder_that_is_not_there_is_found_before_a_secret_is_written(tmp_path: Path) -> None:
    data, key = tmp_path / "x.csv", tmp_path / "k"
    data.write_text("ssn,x\n1,2\n", encoding="utf-8")
    words = ("blind", data, "--id", "ssn", "--key", key, "-o", tmp_path / "none" / "b")
    assert "an existing folder" in refused(*words) and not key.exists()
