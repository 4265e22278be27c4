"""What no module of the product does: start a shell, run text as code, read a format that can run code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from suites.recipes import Recipe, all_recipes

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = sorted(p for folder in ("runners", "results", "suites", "dashboard") for p in (REPOSITORY / folder).rglob("*.py"))
FORBIDDEN = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "asyncio.create_subprocess_shell"),
    *("eval", "exec", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load", "shelve.open"),
}


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def dangers(source: str) -> list[str]:
    found = []
    for name, call in calls(ast.parse(source)):
        if name in FORBIDDEN:
            found.append(name)
        found += [
            f"{name}({k.arg}=...)"
            for k in call.keywords
            if k.arg == "shell" and not (isinstance(k.value, ast.Constant) and not k.value.value)
        ]
    return found


@pytest.mark.parametrize("source", ["subprocess.run('ls', shell=True)", "os.system('ls')", "eval(text)", "run(x, shell=flag)"])
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert dangers(source)


def test_no_module_starts_a_shell_or_runs_text_as_code() -> None:
    assert len(MODULES) > 100
    assert {str(p.relative_to(REPOSITORY)): found for p in MODULES if (found := dangers(p.read_text(encoding="utf-8")))} == {}


def test_no_module_turns_remote_code_on_by_itself() -> None:
    """It is on only where a recipe's own arguments say so; the one module that knows the word looks for it there."""
    words = ("trust-remote-code", "trust_remote_code")
    said = [str(p.relative_to(REPOSITORY)) for p in MODULES if any(word in p.read_text(encoding="utf-8") for word in words)]
    assert said == ["runners/phases.py", "suites/recipes/__init__.py"]


@pytest.mark.parametrize("recipe", [r for r in all_recipes().values() if r.source.canary or r.kind == "shape"], ids=lambda r: r.name)
def test_no_recipe_of_our_own_models_runs_code_of_a_repository(recipe: Recipe) -> None:
    assert not any(recipe.runs_its_own_code(engine) for engine in ("vllm", "sglang"))


WRITES = {"writing", "exclusive", "ingest", "ingest_pending", "keep", "take_back", "rebuild", "vacuum", "store_boots", "store_kept"}


def test_no_page_of_the_dashboard_can_write_to_the_store() -> None:
    """Nothing that writes is called below `dashboard`, and nothing is opened but through the store's own reading."""
    found = {}
    for path in MODULES:
        if "dashboard" not in path.relative_to(REPOSITORY).parts[:1]:
            continue
        names = {name.rpartition(".")[2] for name, _ in calls(ast.parse(path.read_text(encoding="utf-8")))}
        found[path.name] = sorted(names & WRITES | names & {"write_text", "write_bytes", "unlink", "connect"})
    assert len(found) > 10
    assert {name: called for name, called in found.items() if called} == {}
