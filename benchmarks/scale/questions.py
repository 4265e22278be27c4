"""Every question that pages and commands ask: found by looking, so that a new one is measured without anybody remembering to."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any

from results import queries
from results.queries.query import Query
from results.store import Store


def all_questions(store: Store) -> Iterator[tuple[str, Query]]:
    """(name, question) of every function in `results.queries` that makes one, asked of the busiest things in the store.

    Optional arguments are left out: then a question covers most. Raises KeyError for an argument that has no answer here.
    """
    answers = _answers(store)
    for module in sorted(pkgutil.iter_modules(queries.__path__), key=lambda found: found.name):
        if module.name == "query":
            continue
        found = importlib.import_module(f"{queries.__name__}.{module.name}")
        for name, function in inspect.getmembers(found, inspect.isfunction):
            if function.__module__ == found.__name__ and not name.startswith("_") and _makes_a_query(function):
                yield from ((f"{module.name}.{label}", function(**given)) for label, given in _calls(name, function, answers))


def _makes_a_query(function: Any) -> bool:
    return inspect.signature(function).return_annotation in (Query, "Query")


def _calls(name: str, function: Any, answers: Mapping[str, list[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One call; for a parameter with several answers one call each."""
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]
    calls: list[tuple[str, dict[str, Any]]] = [(name, {})]
    for parameter in needed:
        answer = answers.get(f"{name}.{parameter}", answers.get(parameter))
        if answer is None:
            raise KeyError(f"{name} asks for {parameter!r}: say in benchmarks/scale/questions.py what to give it")
        calls = [
            (f"{label}[{value}]" if len(answer) > 1 else label, {**given, parameter: value}) for label, given in calls for value in answer
        ]
    return iter(calls)


def _answers(store: Store) -> dict[str, list[Any]]:
    (cell,) = store.query("SELECT * FROM histories ORDER BY boots DESC, history_id LIMIT 1")
    engine = str(cell["engine"])
    releases = [
        str(row["release"])
        for row in store.query(
            "SELECT release FROM releases WHERE engine = ? AND position IS NOT NULL ORDER BY position DESC LIMIT 2", [engine]
        )
    ]
    run = store.query("SELECT max(run_id) AS run_id FROM runs WHERE history_id = ?", [cell["history_id"]])[0]["run_id"]
    finding = [row["finding_id"] for row in store.query("SELECT min(finding_id) AS finding_id FROM findings")]
    return {
        "engine": [engine],
        "recipe": [cell["recipe_name"]],
        "recipe_id": [cell["recipe_id"]],
        "histories": [
            tuple(str(row["history_id"]) for row in store.query("SELECT history_id FROM histories ORDER BY history_id LIMIT 60"))
        ],
        "backend": [cell["backend_name"]],
        "node": [cell["node_id"]],
        "history": [cell["history_id"]],
        "run": [run],
        "control_of": [run],
        "release": releases[:1],
        "baseline": releases[-1:],
        "axis": ["release"],
        "value": releases[:1],
        "metric": ["decode_tok_s"],
        "beginning": [str(finding[0])[:6]],
        "table.name": ["samples", "phases", "coherence_results", "resources"],
    }
