"""Rules about the whole tree: who may import whom, and what no module may do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter import cli

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src" / "understudy").rglob("*.py"))
FORBIDDEN_IMPORTS = {"pickle", "cloudpickle", "dill", "marshal", "random"}
FORKS = ROOT / "src" / "understudy" / "runtime" / "forks.py"  # a process and its own forks alone
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "torch.save", "torch.manual_seed", "torch.seed"}
NUMPY_VALUES = {"default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "BitGenerator"}

each_module = pytest.mark.parametrize(
    "path", MODULES, ids=[str(p.relative_to(ROOT / "src")) for p in MODULES]
)


def imports(tree: ast.AST) -> Iterator[str]:
    """The top-level names of everything imported, wherever in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


def calls(tree: ast.AST) -> Iterator[str]:
    """The dotted names of everything called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def draws_from_global_numpy(call: str) -> bool:
    parts = call.split(".")
    return parts[:2] in (["np", "random"], ["numpy", "random"]) and parts[-1] not in NUMPY_VALUES


def test_imports_point_one_way(tmp_path: Path) -> None:
    config = str(ROOT / "pyproject.toml")
    assert (
        cli.lint_imports(config_filename=config, cache_dir=str(tmp_path)) == cli.EXIT_STATUS_SUCCESS
    )


@each_module
def test_module_loads_no_code_from_data(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert (FORBIDDEN_IMPORTS - ({"pickle"} if path == FORKS else set())).isdisjoint(imports(tree))
    assert FORBIDDEN_CALLS.isdisjoint(calls(tree))
    assert "allow_pickle=True" not in path.read_text("utf-8")


@each_module
def test_module_draws_from_no_global_generator(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert [call for call in calls(tree) if draws_from_global_numpy(call)] == []


@each_module
def test_module_holds_one_idea(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 400


def wide(tree: ast.AST) -> Iterator[str]:
    """Functions with more than seven parameters, ``self`` left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = node.args
            names = [a.arg for a in (*told.posonlyargs, *told.args, *told.kwonlyargs)]
            stars = [a for a in (told.vararg, told.kwarg) if a]
            if len(names) + len(stars) - (names[:1] in (["self"], ["cls"])) > 7:
                yield node.name


@each_module
def test_functions_take_few_parameters(path: Path) -> None:
    if "cli" not in path.parts:  # there they are a command's options
        assert [*wide(ast.parse(path.read_text("utf-8")))] == []


def test_the_rules_notice_what_they_forbid() -> None:
    tree = ast.parse("import pickle\nnp.random.normal(3)\nnp.random.default_rng(3)\ntorch.load(f)")
    assert "pickle" in set(imports(tree))
    assert [call for call in calls(tree) if draws_from_global_numpy(call)] == ["np.random.normal"]
    assert "torch.load" in set(calls(tree))
    assert [*wide(ast.parse("def f(self, a, b, c, d, e, *, f, g): ..."))] == []
    assert [*wide(ast.parse("def f(a, b, c, d, *e, f, g, **h): ..."))] == ["f"]
