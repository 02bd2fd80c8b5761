"""The documentation holds what the code declares, and its links lead somewhere."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.main import get_command

from understudy import errors, study
from understudy.cli import app
from understudy.data import schema
from understudy.data.bundled import bundled
from understudy.data.schema_toml import tomllib
from understudy.data.split import SPLITS, option_names
from understudy.recipes import build, infos
from understudy.settings import allowed

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = (
    study.Heading,
    study.Privacy,
    study.Cohort,
    study.Training,
    study.Simulation,
    study.SiteEntry,
    study.PartyEntry,
)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")


def slug(heading: str) -> str:
    """A heading's anchor, as Markdown readers make it."""
    kept = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"\s", "-", kept)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_study_page_has_every_setting_with_its_help(table: type) -> None:
    declared, hints = [f for f in fields(table) if f.name != "options"], get_type_hints(table)
    lines = [
        f"| `{f.name}` | {allowed(hints[f.name], f.metadata['range'])} | {f.metadata['help']} |"
        for f in declared
    ]
    assert [line for line in lines if line not in page("study.md")] == []


def test_study_page_has_every_split_and_its_options() -> None:
    options = {how: ", ".join(f"`{name}`" for name in option_names(how)) for how in SPLITS}
    lines = [f"| `{how}` | {names}" for how, names in options.items()]
    assert [line for line in lines if line not in page("study.md")] == []


WRITTEN = page("studies.md") + page("options.md")
STUDIES = [e for e in re.findall(r"```toml\n(.*?)```", WRITTEN, re.S) if "[study]" in e]


@pytest.mark.parametrize("example", STUDIES, ids=lambda example: example.split('"')[1])
def test_examples_of_studies_can_be_planned(example: str) -> None:
    data = tomllib.loads(example)
    images = data["study"]["recipe"] in ("fedvae", "dpd_fvae")
    public = bundled("digits" if images else "breast_cancer")[0]
    assert build(study.Study.parse(data, schema=public)).plan.sites >= 1


def test_schema_page_has_every_key() -> None:
    keys = [f.name for cls in (schema.Schema, schema.Column) for f in fields(cls)]
    tables = {"rules": "[[rule]]", "file": "[file]"}
    keys = [tables.get(key, key) for key in keys]
    assert [key for key in keys if f"`{key}`" not in page("schema.md") and key != "columns"] == []


SCHEMAS = page("schema.md") + page("series.md") + page("files.md")


@pytest.mark.parametrize("example", re.findall(r"```toml\n(.*?)```", SCHEMAS, re.S))
def test_examples_of_schemas_are_valid(example: str) -> None:
    assert schema.Schema.parse(example).width > 0


def test_the_study_of_the_classifiers_page_can_be_run(tmp_path: Path) -> None:
    for block in re.findall(r"```toml\n# (\S+)\n(.*?)```", page("classifiers.md"), re.S):
        (tmp_path / block[0]).write_text(block[1], "utf-8")
    found = study.Study.load(tmp_path / "study.toml")
    assert found.schema == bundled("digits")[0]
    assert build(found).plan.sites == 600


def test_the_page_of_the_tree_names_every_module() -> None:
    source = ROOT / "src" / "understudy"
    packages = [p for p in source.iterdir() if (p / "__init__.py").exists()]
    described = [p for p in packages if p.name != "cli"]  # said as a whole: a file per group
    names = [f.stem for p in described for f in p.glob("*.py") if not f.stem.startswith("_")]
    names += [p.name + "/" for p in packages]
    assert [n for n in names if not re.search(rf"\b{n}", page("tree.md"))] == []


def test_exit_codes_page_has_every_error() -> None:
    found = [e for e in vars(errors).values() if inspect.isclass(e)]
    rows = [f"| {e.exit_code} | `{e.__name__}` |" for e in found]
    assert [row for row in rows if row not in page("exit-codes.md")] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_are_short_and_so_are_their_lines(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    breakable = (n for n, line in enumerate(lines, 1) if not line.startswith(("|", "![")))
    assert [n for n in breakable if len(lines[n - 1]) > 120] == []
    most = {"CHANGELOG.md": 10_000, "benchmarks.md": 150}
    assert len(lines) <= most.get(path.name, 200)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text("utf-8")):
        if link.startswith("http"):
            continue
        target, _, anchor = link.partition("#")
        there = path.parent / target if target else path
        assert there.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text("utf-8"), re.M)
            assert anchor in map(slug, headings), link


def test_readme_lists_every_recipe_with_what_it_protects() -> None:
    for info in infos().values():
        rows, columns = (sorted(f"{u}/{t}" for u, t in p) for p in (info.supports, info.parties))
        protects = ", ".join(rows) or ", ".join(f"{pair} (columns)" for pair in columns)
        row = next((r for r in readme().splitlines() if r.startswith(f"| `{info.name}` |")), "")
        assert row.endswith(f"| {', '.join(info.kinds)} | {protects} |"), info.name


def test_readme_names_only_commands_that_exist() -> None:
    named = set(re.findall(r"^understudy (\w+)", readme(), re.M))
    assert named
    assert named <= set(get_command(app).commands)


@pytest.mark.slow
def test_readme_example_in_python_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", readme(), re.S)
    demo = ["-m", "understudy", "demo", "--no-open", "--quiet", "--out", "hospitals"]
    for command in (demo, ["-c", example]):
        subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, timeout=240)
    assert (tmp_path / "report" / "report.html").exists()
    assert (tmp_path / "synthetic.csv").exists()
