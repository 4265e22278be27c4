"""`python -m benchmarks.chaos --seeds 0..499 [--minutes M] [--workers N]`: play schedules of faults and count those that left all in order.

Every finished seed is a line of `results/chaos.jsonl`; seeds that have one are not played again (`--again` plays them anew), so that the
whole may be collected in pieces. A seed is begun only if its schedule can end within the minutes left. Schedules that only wait for a limit
of the product sleep beside the others. Those that keep memory from the node would spoil what is proven of any boot beside them: they are
left out unless `--alone` is given, and come last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.play import Played, World, make_world, play
from tests.chaos.schedules import ORDINARY_S, Schedule, schedule_of

RESULTS = Path(__file__).parent / "results" / "chaos.jsonl"
_USUALLY_S, _SLEEPERS = 60.0, 1


def seeds_of(text: str) -> range:
    """`A..B`, both included, or one number."""
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def recorded(path: Path) -> dict[int, dict[str, Any]]:
    """The newest line of every seed that was played."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    return {line["seed"]: line for line in lines}


def summary(lines: Iterable[dict[str, Any]]) -> str:
    """A table by kind, and every violation."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        kinds.setdefault(line["kind"], []).append(line)
    rows = ["| kind | schedules | all in order | outcomes |", "|---|---|---|---|"]
    for kind, played in sorted(kinds.items()):
        outcomes = {str(o): sum(p["outcome"] == o for p in played) for o in sorted({p["outcome"] for p in played}, key=str)}
        good = sum(not p["violations"] for p in played)
        rows.append(f"| {kind} | {len(played)} | {good} | {', '.join(f'{o} {n}' for o, n in outcomes.items())} |")
    everything = [p for played in kinds.values() for p in played]
    rows.append(f"| **all** | {len(everything)} | {sum(not p['violations'] for p in everything)} | |")
    bad = [f"- seed {p['seed']} ({p['kind']}): {'; '.join(p['violations'])}" for p in everything if p["violations"]]
    return "\n".join([*rows, "", *bad])


def _one(seed: int, world: World, root: Path, results: Path, revision: str, *, keep: bool) -> None:
    folder = root / str(seed)
    try:
        played = play(schedule_of(seed), world, folder)
    except Exception as error:  # noqa: BLE001 - a fault of the game itself is a line too, and ends no other game
        played = Played(seed, schedule_of(seed).kind, None, None, 0.0, (f"the game itself failed: {error!r}",))
    line = {**asdict(played), "revision": revision, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{seed:4d} {played.kind:24s} {played.outcome!s:14s} {played.exit_code!s:4s} {played.seconds:6.1f} s ", end="", file=sys.stderr)
    print("; ".join(played.violations)[:600] or "in order", file=sys.stderr, flush=True)
    if not (keep and played.violations):
        shutil.rmtree(folder, ignore_errors=True)


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown"


def main() -> int:
    """1 if any schedule asked for left something out of order or was not played."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("0..499"), metavar="A..B")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing that could end later")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--alone", action="store_true", help="also those that take memory from the node, after all others")
    parser.add_argument("--again", action="store_true", help="play seeds that have a line too; the newest counts")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the folders of schedules that left something out of order")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="print what is recorded; play nothing")
    arguments = parser.parse_args()
    done = recorded(arguments.results)
    wanted = [] if arguments.show else [s for s in arguments.seeds if arguments.again or s not in done]
    until = time.monotonic() + 60 * arguments.minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments.results.parent.mkdir(exist_ok=True)
    if arguments.keep is not None:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="chaos-", dir=arguments.keep))
    revision = _revision()
    if wanted:
        world = make_world(root / f"world-{os.getpid()}")

        def begin(seed: int) -> None:
            if time.monotonic() + _needs(schedule_of(seed)) < until:
                _one(seed, world, root, arguments.results, revision, keep=arguments.keep is not None)

        for alone in (False, True) if arguments.alone else (False,):
            seeds = [s for s in wanted if schedule_of(s).alone == alone]
            waiting = [s for s in seeds if schedule_of(s).longest_s > ORDINARY_S]
            with ThreadPoolExecutor(_SLEEPERS) as sleepers, ThreadPoolExecutor(arguments.workers) as pool:
                begun = [(sleepers if seed in waiting else pool).submit(begin, seed) for seed in seeds]
                try:
                    for future in begun:
                        future.result()
                except BaseException:
                    sleepers.shutdown(wait=False, cancel_futures=True)
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
    if arguments.keep is None:
        shutil.rmtree(root, ignore_errors=True)
    done = recorded(arguments.results)
    asked = [done[seed] for seed in arguments.seeds if seed in done]
    print(summary(asked))
    return int(len(asked) < len(arguments.seeds) or any(line["violations"] for line in asked))


def _needs(schedule: Schedule) -> float:
    """Seconds that a schedule is likely to take at most: its own waits, and a minute."""
    return _USUALLY_S + max(0.0, schedule.longest_s - ORDINARY_S)


if __name__ == "__main__":
    raise SystemExit(main())
