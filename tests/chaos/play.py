"""Play one schedule through the whole pipeline, as a user would start it, and look at what is left.

Trap: a fault test looks at what it has just broken and not at the rest: the row is right, and a process lives on. Rule: after every
schedule everything is looked at: outcome, exit code, rows, folders, processes, port, and a database made anew from the folders.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from results.maintenance import check
from results.store import Store
from results.vocabulary import Outcome, Phase
from tests.chaos.schedules import Schedule
from tests.chaos.troubles import Calm, trouble_at
from tests.planted import REPOSITORY, Planted, plant

ENGINE = REPOSITORY / "tests" / "chaos" / "engine.py"
SUITE = """
name = "chaos"
recipes = ["canary-dense"]

[[workloads]]
name = "alone"
prompt_tokens = 32
completion_tokens = 32
concurrency = 1
repeats = 1

[[workloads]]
name = "together"
prompt_tokens = 32
completion_tokens = 32
concurrency = 4
repeats = 1
"""
_PHASES = [str(p) for p in Phase]
_POLL_S, _SLOW_POLL_S = 0.005, 0.1
_NOBODY_S = 20.0
"""Processes that were killed a moment ago may need so long to go on a busy machine."""
EXIT_CODES = {
    **dict.fromkeys((Outcome.CRASH, Outcome.HANG, Outcome.OOM), 1),
    **{Outcome.PASS: 0, Outcome.INFRASTRUCTURE: 3, Outcome.INTERRUPTED: 130},
}


@dataclass(frozen=True)
class World:
    """A cache with the misbehaving engine in it, shared by all schedules; `tools` holds what is made once."""

    planted: Planted
    tools: Path

    @property
    def suite(self) -> Path:
        return self.tools / "chaos.toml"


def make_world(root: Path) -> World:
    """Plant the engine below `root`."""
    tools = root / "tools"
    tools.mkdir(parents=True)
    world = World(plant(root / "planted", engine=ENGINE), tools)
    world.suite.write_text(SUITE)
    return world


@dataclass(frozen=True)
class Played:
    """What came of a schedule. `violations` is empty if everything was as it must be."""

    seed: int
    kind: str
    outcome: str | None
    exit_code: int | None
    seconds: float
    violations: tuple[str, ...]


def play(schedule: Schedule, world: World, folder: Path) -> Played:
    """Play it in `folder`, which must not exist; nothing that was started lives afterwards."""
    folder.mkdir(parents=True)
    (folder / "cache").symlink_to(world.planted.root / "cache")
    started = time.monotonic()
    trouble = trouble_at(folder / "home", schedule.trouble, world.tools)
    game = _Game(schedule, world, Planted(folder, world.planted.version), trouble)
    try:
        violations = game.play()
    finally:
        game.end()
    return Played(schedule.seed, schedule.kind, game.outcome, game.exit_code, round(time.monotonic() - started, 1), tuple(violations))


class _Game:
    def __init__(self, schedule: Schedule, world: World, planted: Planted, trouble: Calm) -> None:
        self.schedule, self.world, self.planted, self.trouble = schedule, world, planted, trouble
        self.mark = f"{os.getpid()}-{schedule.seed}"
        self.outcome: str | None = None
        self.exit_code: int | None = None
        self.struck_after: str | None = None
        self.troubled = False

    def play(self) -> list[str]:
        if self.schedule.trouble is not None and self.schedule.trouble.phase == "":
            self._make_trouble()
        runner = self._start("--suite", str(self.world.suite), "--engine", f"vllm=={self.planted.version}", "--no-controls")
        if not self._watch(runner):
            return [f"the runner still lives after {self.schedule.longest_s:.0f} s"]
        self.exit_code = runner.returncode
        self.trouble.clear()
        first = self._runs_in_folders()
        violations = self._of_words()
        if any(run["outcome"] is None for run in first) or self.schedule.trouble is not None or "SIGKILL" in self._signals:
            violations += self._recover()
        stored = self._stored_home()
        self._look_at_first(stored, len(first), violations)
        violations += self._of_processes() + _of_store(stored)
        return violations

    @property
    def _signals(self) -> tuple[str, ...]:
        return self.schedule.strike.signals if self.schedule.strike is not None else ()

    # -- the runner ------------------------------------------------------------------------------------------------------------------

    def _start(self, *arguments: str, name: str = "first") -> subprocess.Popen[bytes]:
        folder = self.planted.root
        environment = self.planted.environment(
            CHAOS=json.dumps(asdict(self.schedule.engine)), CHAOS_WORLD=self.mark, SPARKPROOF_PROBE="0", **self.trouble.environment()
        )
        command = self.trouble.wrap(self.planted.command("run", "--json", *arguments))
        with (folder / f"{name}.out").open("wb") as out, (folder / f"{name}.err").open("wb") as err:
            return subprocess.Popen(command, env=environment, stdout=out, stderr=err, stdin=subprocess.DEVNULL, start_new_session=True)

    def _watch(self, runner: subprocess.Popen[bytes]) -> bool:
        """Whether it ended; strike and trouble come when their phase has."""
        until = time.monotonic() + self.schedule.longest_s
        due: list[tuple[float, str]] | None = None
        while runner.poll() is None:
            if time.monotonic() > until:
                return False
            trouble, strike = self.schedule.trouble, self.schedule.strike
            if trouble is not None and not self.troubled and self._reached(trouble.phase):
                self._make_trouble()
            if strike is not None and due is None and self._reached(strike.phase):
                now = time.monotonic() + strike.delay_s
                due = [(now + number * strike.gap_s, name) for number, name in enumerate(strike.signals)]
            while due and due[0][0] <= time.monotonic():
                self._signal(runner, due.pop(0)[1])
            waiting = (strike is not None and due != []) or (trouble is not None and not self.troubled)
            time.sleep(_POLL_S if waiting else _SLOW_POLL_S)
        return True

    def _reached(self, phase: str) -> bool:
        """Whether the boot is in `phase` or beyond. A stolen port must be known before it can be stolen."""
        now = _newest(self.trouble.seen)
        if now is None or _PHASES.index(now["phase"]) < _PHASES.index(phase):
            return False
        kind = self.schedule.trouble.kind if self.schedule.trouble is not None else ""
        return kind != "port" or any(self.trouble.seen.glob("boots/*/process.json"))

    def _make_trouble(self) -> None:
        self.troubled = True
        self.trouble.strike()

    def _signal(self, runner: subprocess.Popen[bytes], name: str) -> None:
        now = _newest(self.trouble.seen)
        if runner.poll() is None:
            self.struck_after = ("finished" if now and now["finished_at"] else str(now["outcome"] or "")) if now else ""
            os.kill(runner.pid, signal.Signals[name])

    def _recover(self) -> list[str]:
        """The next start: it files what was left and stores what was not. An endpoint that is not there needs no engine."""
        endpoint = f"vllm=={self.planted.version}@endpoint:http://127.0.0.1:9"
        runner = self._start("--engine", endpoint, "--model", "served:nothing", "--no-controls", name="second")
        try:
            runner.wait(_NEXT_S)
        except subprocess.TimeoutExpired:
            return [f"the next start still lives after {_NEXT_S:.0f} s"]
        found = [] if runner.returncode == 3 else [f"the next start ended with {runner.returncode}, not 3: {self._said('second')}"]
        return found + _traceback(self._said("second"))

    def end(self) -> None:
        """Whatever happened: nothing of this schedule stays."""
        for process in self._alive():
            process.kill()
        self.trouble.close()
        (Path("/dev/shm") / f"chaos-{self.mark}").unlink(missing_ok=True)

    # -- what is left ----------------------------------------------------------------------------------------------------------------

    def _runs_in_folders(self) -> list[dict[str, Any]]:
        return [json.loads(p.read_text())["run"] for p in sorted(self.trouble.seen.glob("boots/*/run.json"))]

    def _stored_home(self) -> Path:
        """The store where this process can work with it: DuckDB opens no file through another mount namespace."""
        if self.trouble.seen == self.trouble.home:
            return self.trouble.home
        copy = self.planted.root / "copied"
        shutil.copytree(self.trouble.seen, copy, ignore=shutil.ignore_patterns("lost+found"))
        return copy

    def _look_at_first(self, stored: Path, boots: int, violations: list[str]) -> None:
        if boots != bool(self.schedule.outcomes):
            violations.append(f"{boots} boots instead of {int(bool(self.schedule.outcomes))}")
        rows = _rows(stored)
        if not self.schedule.outcomes:
            violations += [] if self.exit_code == 3 else [f"exit code {self.exit_code} for no boot"]
            return
        (row,) = [r for r in rows if "@endpoint" not in r["distribution"] and r["distribution"] != "endpoint"] or [{}]
        self.outcome = row.get("outcome")
        if self.outcome not in self.schedule.outcomes:
            violations.append(f"outcome {self.outcome} ({row.get('reason')}), right: {', '.join(sorted(self.schedule.outcomes))}")
        elif self.exit_code not in self._right_codes(row):
            violations.append(f"exit code {self.exit_code} for {self.outcome} ({row.get('reason')}), struck after {self.struck_after!r}")

    def _right_codes(self, row: dict[str, Any]) -> set[int]:
        """Signals end a runner with 130, or by themselves before and after it can handle them; only an end that was there first stands."""
        by_itself = {EXIT_CODES[Outcome(row["outcome"])]}
        if self.schedule.kind == "memory_kept" or any("could not prove" in w for w in row["warnings"]):
            by_itself = {3 if code == 0 else code for code in by_itself}
        trouble = self.schedule.trouble
        if trouble is not None and trouble.kind == "disk_full":
            return {3}
        if trouble is not None and trouble.kind == "database" and trouble.amount > 100:
            return {3}
        if self.struck_after is None:
            return by_itself
        killed = {-signal.Signals[name] for name in self._signals}
        if "SIGKILL" in self._signals and len(self._signals) == 1:
            return killed
        return {130} | ({*by_itself, *killed} if self.struck_after == "finished" or "SIGKILL" in self._signals else set())

    def _of_words(self) -> list[str]:
        """What was printed: no traceback, and JSON where there is a result."""
        found = _traceback(self._said("first"))
        printed = (self.planted.root / "first.out").read_bytes()
        if self.exit_code in (0, 1):
            try:
                json.loads(printed)
            except ValueError:
                found.append(f"exit code {self.exit_code}, but what it printed is no JSON: {printed[:200]!r}")
        return found

    def _said(self, name: str) -> str:
        return (self.planted.root / f"{name}.err").read_text(errors="replace")[-4000:]

    def _alive(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("CHAOS_WORLD") == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def _of_processes(self) -> list[str]:
        until = time.monotonic() + _NOBODY_S
        while (alive := self._alive()) and time.monotonic() < until:
            time.sleep(0.1)
        return [f"still alive: {p.pid} {' '.join(p.cmdline())[:200]}" for p in alive]


_NEXT_S = 900.0


def _newest(home: Path) -> dict[str, Any] | None:
    """The run of the newest boot, None while there is none."""
    for path in sorted(home.glob("boots/*/run.json"), reverse=True):
        try:
            run: dict[str, Any] = json.loads(path.read_text())["run"]
        except (OSError, ValueError):
            return None
        return run
    return None


def _traceback(text: str) -> list[str]:
    return [f"a traceback: {text[-1500:]}"] if "Traceback" in text else []


def _rows(home: Path) -> list[dict[str, Any]]:
    return Store(home).query("SELECT * FROM runs ORDER BY started_at") if (home / "sparkproof.duckdb").exists() else []


def _of_store(home: Path) -> list[str]:
    """One final row per folder, nothing that contradicts itself, and the same database made anew from the folders."""
    store = Store(home)
    if not store.database.exists():
        return ["no database"]
    found: list[str] = []
    finals = {row["run_id"]: row["outcome"] for row in _rows(home)}
    folders = {p.parent.name: json.loads(p.read_text())["run"]["outcome"] for p in home.glob("boots/*/run.json")}
    if finals != folders or None in finals.values():
        found.append(f"database {finals}, folders {folders}")
    if len(_rows(home)) != len(finals):
        found.append("two rows of one boot")
    report = check(store)
    found += [*report.problems, *(f"without a folder: {r}" for r in report.without_folder), *(f"not stored: {r}" for r in report.unstored)]
    before = _content(store)
    rebuilt = store.rebuild()
    if rebuilt.skipped:
        found.append(f"rebuild left out {rebuilt.skipped}")
    after = _content(store)
    found += [f"table {t} differs after rebuild: {_difference(before[t], after.get(t))}" for t in before if before[t] != after.get(t)]
    return found


def _content(store: Store) -> dict[str, list[str]]:
    """Every row of every table but the one that says when the file was made."""
    with store.reading() as connection:
        names = [row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() if row[0] != "schema_version"]
        return {name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}").fetchall())) for name in names}


def _difference(before: list[str], after: list[str] | None) -> str:
    only_before, only_after = set(before) - set(after or ()), set(after or ()) - set(before)
    return f"{len(before)} and {len(after or ())} rows; {sorted(only_before)[:1]} against {sorted(only_after)[:1]}"[:1500]
