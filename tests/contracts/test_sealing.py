"""Read the source: who may make the values that prove something, and who may draw noise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import understudy

SOURCE = Path(understudy.__file__).parent
MAKERS = {
    "Bounded": {
        "privacy/clip.py",
        "privacy/gaussian.py",  # the sum of bounded replies, for the server's noise
        "federation/site.py",
        "training/dpsgd.py",  # gradients of records are clipped from their factors, unformed
        "audit/canary.py",  # made-up canaries of a known norm: audits see no rows
        "audit/inputs.py",  # what the recipe made of made-up rows, clipped by it before
    },
    "Sealed": {
        "federation/site.py",
        "federation/masking.py",  # one site of a stack of sealed shares
        "federation/secure/party.py",  # a sealed share under masks
        "federation/product_party.py",  # a party's noised shares of products, under masks
        "runtime/wire.py",
    },
    "Receipt": {
        "privacy/clipped.py",
        "privacy/products.py",
        "privacy/pure.py",
        "privacy/ledger.py",
        "runtime/wire.py",
    },
    "add_noise": {
        "privacy/gaussian.py",
        "privacy/integer.py",
        "federation/site.py",
        "audit/inputs.py",  # the same use again and again, on made-up rows
    },
    "Columned": {"federation/site.py"},  # rows within a party's bound, for products
    "discrete_gaussian": {"privacy/integer.py", "privacy/products.py"},
    "choose": {"privacy/select.py"},
    "respond": {"privacy/respond.py"},
    "NoiseSource": {
        "rng.py",
        "simulation/journal.py",
        "deployment/joining.py",  # a site's own
        "deployment/spreading.py",  # seeded, for sites of a simulation
        "audit/trace.py",  # repeatable on purpose: replay sees no rows
    },
}


def calls() -> Iterator[tuple[str, str, int]]:
    """(file, name called, line) of every call in the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                yield path.relative_to(SOURCE).as_posix(), name, node.lineno


@pytest.mark.parametrize("name", MAKERS)
def test_proofs_are_made_only_where_they_are_earned(name: str) -> None:
    found = {
        file
        for file, called, _ in calls()
        if name in (called, called.split(".")[-1]) or called.startswith(f"{name}.")
    }
    assert found <= MAKERS[name], f"{name} is made in {sorted(found - MAKERS[name])}"
    assert found, f"nobody makes {name}: the test shows nothing"


FORBIDDEN = {
    "pickle.loads",
    "pickle.load",
    "torch.load",
    "eval",
    "exec",
    "__import__",
    "np.random.seed",
    "torch.manual_seed",
    "np.random.rand",
    "np.random.normal",
    "random.random",
    "logging.info",
    "print",
}


def test_nothing_is_unpickled_imported_by_name_or_drawn_from_a_global_generator() -> None:
    found = [(file, name, line) for file, name, line in calls() if name in FORBIDDEN]
    pipes = ("runtime/forks.py", "pickle.loads")  # between a process and its own forks alone
    assert not [f for f in found if not f[0].startswith("cli/") and f[:2] != pipes]


def test_recipes_do_not_reach_for_the_sources_of_privacy() -> None:
    for path in (SOURCE / "recipes").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for word in ("NoiseSource", "os.urandom", "Ledger", "add_noise", "Sealed", "Bounded("):
            assert word not in text, f"{path.name} uses {word}"
