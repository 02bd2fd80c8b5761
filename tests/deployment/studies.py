"""Small studies for tests of real processes: three sites, a handful of rows each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from parties import SITES

SCHEMA = """
kind = "table"
name = "visits"
records = 90
label = "smoker"

[columns.age]
kind = "integer"
low = 0
high = 100

[columns.smoker]
kind = "categorical"
categories = ["no", "yes"]
"""


def rows(folder: Path) -> None:
    rng = np.random.default_rng(7)
    for name in SITES:
        age = rng.integers(20, 90, 30)
        smoker = np.where(rng.random(30) < 0.4, "yes", "no")
        pd.DataFrame({"age": age, "smoker": smoker}).to_csv(folder / f"{name}.csv", index=False)


def write(folder: Path, text: str, *, data: bool = False, name: str = "study") -> Path:
    """A study file of three sites, with or without the paths of their rows."""
    (folder / "schema.toml").write_text(SCHEMA)
    if not (folder / "north.csv").exists():
        rows(folder)
    path = folder / f"{name}{'-here' if data else ''}.toml"
    entries = "".join(
        f'[[site]]\nname = "{site}"\n' + (f'data = "{site}.csv"\n' if data else "")
        for site in SITES
    )
    path.write_text(text + "\n" + entries)
    return path


def simulated(folder: Path, text: str, options: str = "", sites: int = 20) -> Path:
    """A study of sites that are simulated with the rows of all three."""
    write(folder, text)
    each = [pd.read_csv(folder / f"{site}.csv") for site in SITES]
    pd.concat(each).to_csv(folder / "all.csv", index=False)
    path = folder / "simulated.toml"
    cut = f'data = "all.csv"\nsites = {sites}\n{options}\n'
    path.write_text(f"{text}\n[simulation]\n{cut}")
    return path


MOMENTS = """
[study]
name = "three"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
trust = "local"
unit = "record"
noise = 2.0
"""

VAE = """
[study]
name = "three"
schema = "schema.toml"
recipe = "fedvae"
rounds = 2

[privacy]
trust = "local"
unit = "site"
noise = 2.0

[training]
epochs = 1
"""

VOTES = """
[study]
name = "three"
schema = "schema.toml"
recipe = "signds"
rounds = 2

[privacy]
trust = "local"
unit = "site"
epsilon_per_update = 2.0
"""

SHARED = """
[study]
name = "three"
schema = "schema.toml"
recipe = "fedmoments"

[privacy]
trust = "distributed"
unit = "record"
noise = 2.0
survivors = 3
colluders = 1
"""
