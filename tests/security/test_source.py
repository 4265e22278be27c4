"""What no module of the product does: start a shell, run text as code, read a format that can run code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    """It is on only where a recipe's own arguments say so, and those are part of the command that is stored and shown."""
    said = [str(p.relative_to(REPOSITORY)) for p in MODULES if "trust-remote-code" in p.read_text(encoding="utf-8")]
    assert said == []
