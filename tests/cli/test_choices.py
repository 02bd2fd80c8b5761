"""What ``plan`` and ``run`` say of studies whose sites send choices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.data.schema import Schema

runner = CliRunner()
WIDE = {"COLUMNS": "400"}
FEWER = "fewer than the {} coordinates"
CHANCE = "close to random"
FEW = "too few to protect a whole site"


def study(
    folder: Path, epsilon: float = 8.0, sites: int = 40, own: str = "", more: str = ""
) -> Path:
    """A study of 4 × 4 images: logistic regression on pixels has 34 coordinates."""
    schema = Schema("image", "noise", 80, classes=("a", "b"), shape=(4, 4))
    (folder / "schema.toml").write_text(schema.to_toml())
    pixels = np.random.default_rng(0).integers(0, 256, (80, 4, 4)).astype(np.uint8)
    np.savez(folder / "rows.npz", X=pixels, y=np.arange(80) % 2)
    path = folder / "study.toml"
    own = own if "outputs" in own else f"outputs = 1\n{own}"
    path.write_text(
        '[study]\nname = "choices"\nschema = "schema.toml"\nrecipe = "signds"\n'
        f"[privacy]\nepsilon = {epsilon}\n"
        f'[simulation]\ndata = "rows.npz"\nsites = {sites}\n{more}\n'
        f'[recipe]\nview = "pixels"\n{own}\n'
    )
    return path


def told(*words: object) -> str:
    result = runner.invoke(app, [str(word) for word in words], env=WIDE)
    assert result.exit_code == 0, result.output
    return result.output


def warned(path: Path) -> list[str]:
    found: list[str] = json.loads(told("plan", path, "--json"))["warnings"]
    assert all(f"! {warning}" in told("plan", path) for warning in found)
    return [warning for warning in found if FEW not in warning]


def test_enough_votes_at_a_large_epsilon_are_no_cause_to_warn(tmp_path: Path) -> None:
    assert warned(study(tmp_path, sites=34)) == []
    path = study(tmp_path, sites=100)
    schema = tmp_path / "schema.toml"
    schema.write_text(schema.read_text().replace("records = 80", "records = 100"))
    assert "!" not in told("plan", path)


def test_plan_and_run_warn_in_strong_words_of_too_few_sites_for_votes(tmp_path: Path) -> None:
    path = study(tmp_path, sites=34)
    words = f"34 sites are {FEW}: signds learns from the votes of hundreds of sites"
    advice = 'set privacy.unit = "record" and study.recipe = "fedmoments".'
    said = told("plan", path)
    assert words in said and "barely better than random" in said and advice in said
    assert words in told("run", path, "--out", tmp_path / "release", "--quiet")


CASES = [(19, "site", 1), (20, "site", 0), (5, "record", 0)]


@pytest.mark.parametrize(("sites", "unit", "few"), CASES)
def test_plan_warns_of_noise_that_hides_what_few_sites_send(
    sites: int, unit: str, few: int, tmp_path: Path
) -> None:
    path = study(tmp_path, sites=sites)
    text = path.read_text().partition("[recipe]")[0].replace('"signds"', '"dpd_fvae"')
    path.write_text(text.replace("epsilon = 8.0", f'epsilon = 8.0\nunit = "{unit}"'))
    found = json.loads(told("plan", path, "--json"))["warnings"]
    assert sum(FEW in warning for warning in found) == few
    if few:
        assert found[0].startswith("19 sites are") and "hides almost everything" in found[0]
        assert 'set privacy.unit = "record".' in found[0], "the recipe itself can do it"


def test_no_warning_of_few_sites_where_nothing_is_promised(tmp_path: Path) -> None:
    path = study(tmp_path, sites=5)
    path.write_text(path.read_text().replace("epsilon = 8.0", 'trust = "none"'))
    assert FEW not in told("plan", path)


def test_plan_says_that_pure_epsilon_is_added_up_and_not_that_it_was_checked(
    tmp_path: Path,
) -> None:
    said = told("plan", study(tmp_path))
    assert "ε, added up" in said and "RDP" not in said


def test_plan_without_trust_promises_nothing_and_speaks_of_no_bound(tmp_path: Path) -> None:
    path = study(tmp_path)
    text = path.read_text().replace("epsilon = 8.0", 'trust = "none"')
    path.write_text(text)
    said = told("plan", path)
    assert "nothing: trust = none" in said and "none trust" not in said
    assert "1e+09" not in said and "bound and noise" not in said
    assert "The published ε" not in said
    path.write_text(text.replace('"signds"', '"fedvae"').partition("[recipe]")[0])
    assert "sent as it is, clipped to norm 0.2" in told("plan", path), (
        "clipping without noise is still told"
    )


def test_plan_warns_where_votes_are_fewer_than_coordinates(tmp_path: Path) -> None:
    (found,) = warned(study(tmp_path, sites=33))
    assert FEWER.format(34) in found and found.startswith("33 votes")
    (found,) = warned(study(tmp_path, own='model = "nn"'))
    assert FEWER.format("1,826") in found and found.startswith("40 votes")


def test_plan_warns_of_sites_that_can_have_no_rows(tmp_path: Path) -> None:
    (found,) = warned(study(tmp_path, sites=90))
    assert found.startswith("90 sites for the 80 records of the schema: 10 or more have no rows")
    assert warned(study(tmp_path, sites=80)) == []


@pytest.mark.parametrize(
    ("own", "net"),
    [
        ("", "logistic on pixels, 34 weights"),
        ('model = "nn"\nhidden = 3', "nn on pixels, 59 weights"),
        ('view = "strokes"', "logistic on strokes, 130 weights"),
    ],
)
def test_plan_tells_which_net_is_trained(tmp_path: Path, own: str, net: str) -> None:
    path = study(tmp_path, own=own)
    if "view" in own:
        path.write_text(path.read_text().replace('view = "pixels"\n', ""))
    assert json.loads(told("plan", path, "--json"))["net"].endswith(net)
    assert net in told("plan", path)


def test_all_votes_of_all_sites_count(tmp_path: Path) -> None:
    assert warned(study(tmp_path, sites=17, own="outputs = 2")) == []
    path = study(tmp_path, sites=17, more="[cohort]\nsize = 17")
    assert len(warned(path)) == 1
    path.write_text(path.read_text().replace("[privacy]", "rounds = 2\n[privacy]"))
    assert warned(path) == [], "called twice"


def test_plan_refuses_options_that_the_split_does_not_have(tmp_path: Path) -> None:
    path = study(tmp_path, more="alpha = 0.3")
    result = runner.invoke(app, ["plan", str(path)], env=WIDE)
    assert result.exit_code == 4 and "options (none) for split 'uniform'" in result.output


def capped(folder: Path, cap: float) -> Path:
    """Two sites that are called three times at ε = 2 each; the first has a cap of its own."""
    path = study(folder)
    text = path.read_text().replace("epsilon = 8.0", "epsilon_per_update = 2.0")
    text = text.replace('recipe = "signds"', 'recipe = "signds"\nrounds = 3')
    before, own = text.split("[simulation]")[0], text[text.index("[recipe]") :]
    site = '[[site]]\nname = "{}"\ndata = "rows.npz"\n'
    path.write_text(f"{before}{own}{site.format('north')}epsilon = {cap}\n{site.format('south')}")
    return path


def test_plan_and_run_tell_of_calls_that_a_site_s_cap_does_not_allow(tmp_path: Path) -> None:
    path = capped(tmp_path, cap=4.5)
    refused = "Site north may be called 3 times, and its cap ε = 4.5 allows 2: it refuses the rest"
    assert any(refused in warning for warning in warned(path))
    assert refused in told("run", path, "--out", tmp_path / "release", "--quiet")
    assert not any("cap" in warning for warning in warned(capped(tmp_path, cap=6.0)))


def test_plan_refuses_a_cap_below_one_update(tmp_path: Path) -> None:
    result = runner.invoke(app, ["plan", str(capped(tmp_path, cap=1.9))], env=WIDE)
    assert result.exit_code == 6 and "site north's cap ε=1.9" in result.output


def test_plan_warns_where_a_choice_is_close_to_chance(tmp_path: Path) -> None:
    (found,) = warned(study(tmp_path, epsilon=0.2))
    assert CHANCE in found and "already answers only once" in found and "remove" not in found
    (found,) = warned(study(tmp_path, epsilon=2.0, more="[cohort]\nrate = 0.5"))
    assert CHANCE in found and "remove study.rounds and [cohort]" in found


def test_a_run_warns_as_its_plan_does(tmp_path: Path) -> None:
    path = study(tmp_path, sites=4)
    said = told("run", path, "--out", tmp_path / "release", "--quiet")
    assert all(f"! {warning}" in said for warning in warned(path)) and FEWER.format(34) in said


@pytest.mark.parametrize(("epsilon", "share"), [(8.0, "0.998"), (20.0, "0.999"), (2.0, "0.69")])
def test_a_share_below_one_is_not_shown_as_one(tmp_path: Path, epsilon: float, share: str) -> None:
    shown = told("plan", study(tmp_path, epsilon=epsilon))
    assert f"largest {share} (by chance 0.24)" in shown
