"""`python -m benchmarks.judge [--json]`: how many megabytes of answers the structural judge reads per second.

Trap: a benchmark on one huge text hides what every small answer costs, and one repeated text measures a cache. Rule: many different
answers of the lengths that a gate sees, prose and code, and a few large ones, each timed apart; the goal is 5 MB/s for every kind.
The judge has one thread and does no I/O, so its CPU time is what it takes on an idle machine.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from runners.coherence.structural import judge_text

# ruff: noqa: SIM905 - the words read better as words
GOAL_MB_S = 5.0
_WORDS = """
river night lower fence barn stayed dry village spring oldest eighty noon water brown quick captain notebook passenger ladder sheep apples
winter doctor harbour light window stairs morning evening sledge flour medicine piano frozen engine shore people watches larger faster
""".split()
_SMALL_WORDS = "the and of with in a was to she he they that by for on it".split()
_NAMES = "total rows count names value index found lines start result items table width".split()

app = typer.Typer(add_completion=False)


@app.command()
def main(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="Rounds; the fastest one counts.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the made answers.")] = 1,
) -> None:
    """Time the judge on made answers; every one of them must pass, or the time says nothing."""
    result = measure(random.Random(seed), rounds)
    if as_json:
        typer.echo(json.dumps({"benchmark": "judge", "seed": seed, "goal_mb_s": GOAL_MB_S, "kinds": result}, indent=2))
        return
    for name, row in result.items():
        typer.echo(
            f"{name:16} {row['texts']:>5} texts {row['bytes'] / 1e6:7.2f} MB {row['mb_s']:8.1f} MB/s {row['times_goal']:6.1f} x goal"
        )


def measure(rng: random.Random, rounds: int) -> dict[str, Any]:
    """MB/s and multiple of the goal by kind of answer."""
    kinds: dict[str, tuple[Callable[[random.Random, int], str], int, int]] = {
        "prose_300": (_prose, 300, 1000),
        "prose_2000": (_prose, 2_000, 200),
        "code_300": (_code, 300, 1000),
        "prose_1000000": (_prose, 1_000_000, 3),
    }
    return {name: _timed([make(rng, chars) for _ in range(count)], rounds) for name, (make, chars, count) in kinds.items()}


def _timed(texts: list[str], rounds: int) -> dict[str, Any]:
    size = sum(len(text.encode()) for text in texts)
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        broken = [text for text in texts if judge_text(text).broken]
        best = min(best, time.process_time() - began)
        if broken:
            raise RuntimeError(f"a sound answer was called broken, so the time says nothing: {broken[0][:80]!r}")
    mb_s = size / 1e6 / best
    return {"texts": len(texts), "bytes": size, "best_s": best, "mb_s": mb_s, "times_goal": mb_s / GOAL_MB_S}


def _prose(rng: random.Random, chars: int) -> str:
    parts: list[str] = []
    length = 0
    while length < chars:
        words = rng.sample(_WORDS, 7)
        sentence = " ".join(f"{rng.choice(_SMALL_WORDS)} {word}" for word in words).capitalize() + ". "
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)


def _code(rng: random.Random, chars: int) -> str:
    lines: list[str] = [f"def {rng.choice(_NAMES)}_{rng.choice(_NAMES)}(rows: list[int]) -> int:"]
    while sum(map(len, lines)) < chars:
        a, b, c = rng.sample(_NAMES, 3)
        lines.append(rng.choice((f"    {a} = {b}[{rng.randrange(9)}] + {c}", f"    if {a} > {b}:", f"        {c}.append({a} * {b})")))
    return "\n".join(lines)


if __name__ == "__main__":
    app()
