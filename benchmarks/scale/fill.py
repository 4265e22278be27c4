"""Fill a store with a made-up world through bulk loads, release by release, in the order of time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.scale.plan import BOOTS, DAYS_BETWEEN_RELEASES, ENGINES, FIRST_ROUND, World, broken, levels
from results.engine_versions import add_versions
from results.ingest import derive_numbers, mark_whole
from results.records import NodeRecord
from results.series import history_id_of, node_state_row, series_key
from results.store import Store
from results.verdicts_stored import CHUNK, refresh_stale

_START = datetime(2025, 1, 6, tzinfo=UTC)
_BOOT_MINUTES = 4
_FAILURES = ("incoherent", "crash", "wrong", "hang", "oom", "fallback", "unsupported")


class Filler:
    """Everything that stays the same while the releases are written."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.levels = levels(world)
        self.broken = broken(world)
        self.chance = np.random.default_rng(world.seed + 2)
        names = np.indices((world.nodes, len(ENGINES), world.recipes, world.backends)).reshape(4, -1)
        self.node, self.engine, self.recipe, self.backend = names
        self.noise = self.chance.choice([0.004, 0.008, 0.02], size=world.cells)
        self.failure = self.chance.integers(0, len(_FAILURES), world.cells)
        self.history = np.array(
            [
                history_id_of(series_key(ENGINES[e], "venv", f"model-{r:02d}", f"backend-{b:02d}", f"node-{n}"))
                for n, e, r, b in zip(*names, strict=True)
            ]
        )

    def state_of(self, node: int, release: int) -> NodeRecord:
        """A driver update every ten releases, another month on each node."""
        driver = 580 + 10 * ((release + node) // 10)
        return NodeRecord(
            f"node-{node}", f"spark {node}", "NVIDIA GB10", "12.1", f"{driver}.95", "13.0", "6.14.0", memory_total_bytes=128 * 10**9
        )


def fill(store: Store, world: World, say: Callable[[str], None]) -> None:
    """Write the world and everything that is derived from it."""
    filler = Filler(world)
    with store.exclusive() as connection:
        connection.execute("SET memory_limit = '6GB'")
        _dimensions(connection, filler)
        for release in range(world.releases):
            connection.begin()
            _one_release(connection, filler, release)
            connection.commit()
            say(f"wrote release {release + 1} of {world.releases}")
        connection.begin()
        add_versions(connection, [(engine, world.release(number)) for engine in ENGINES for number in range(world.releases)])
        mark_whole(connection, filler.history.tolist())
        connection.commit()
    judge(store, say)


def judge(store: Store, say: Callable[[str], None]) -> int:
    """Judge every stale history, a chunk to a commit."""
    judged = 0
    while True:
        with store.writing() as connection:
            number = refresh_stale(connection, CHUNK)
        if not number:
            return judged
        judged += number
        say(f"judged {judged} cells")


def _dimensions(connection: duckdb.DuckDBPyConnection, filler: Filler) -> None:
    world = filler.world
    _load(
        connection, "nodes", _turned([{**asdict(filler.state_of(n, world.releases - 1)), "last_run_id": "9"} for n in range(world.nodes)])
    )
    states = {
        row["node_state_id"]: dict(row)
        for n in range(world.nodes)
        for r in range(world.releases)
        for row in [node_state_row(filler.state_of(n, r))]
    }
    _load(connection, "node_states", _turned(list(states.values())))
    recipes = [
        {
            "recipe_id": f"recipe-{r:02d}",
            "name": f"model-{r:02d}",
            "model": f"owner/model-{r:02d}",
            "quantization": ("nvfp4", "fp8", "int4", None)[r % 4],
            "kind": "canary" if r == 0 else "model",
            "definition": json.dumps({"weights": {"active_bytes": 10**9 * (r + 1)}}),
        }
        for r in range(world.recipes)
    ]
    _load(connection, "recipes", _turned(recipes))
    backends = [
        {"backend_id": f"{e}-{b:02d}", "engine": e, "name": f"backend-{b:02d}", "arguments": ["--x"]}
        for e in ENGINES
        for b in range(world.backends)
    ]
    _load(connection, "backends", _turned(backends))
    builds = [
        {
            "build_id": f"{e}-{world.release(r)}",
            "engine": e,
            "version": world.release(r),
            "distribution": "venv",
            "wheels": ["a==1", "b==2"],
        }
        for e in ENGINES
        for r in range(world.releases)
    ]
    _load(connection, "engine_builds", _turned(builds))


def _one_release(connection: duckdb.DuckDBPyConnection, filler: Filler, release: int) -> None:
    """BOOTS rounds of all cells; each node works through its own cells, one boot after the other."""
    cells = np.tile(np.arange(filler.world.cells), BOOTS)
    rounds = np.repeat(np.arange(BOOTS), filler.world.cells)
    per_node = filler.world.cells // filler.world.nodes
    older = (rounds >= FIRST_ROUND) & ((rounds - FIRST_ROUND) % 2 == 0) & (release > 0)
    number = np.where(older, release - 1, release)
    outcome = _outcomes(filler, cells, number)
    starts = [
        _START + timedelta(days=DAYS_BETWEEN_RELEASES * release, minutes=_BOOT_MINUTES * int(r * per_node + c % per_node))
        for r, c in zip(rounds, cells, strict=True)
    ]
    ids = np.array([f"{start:%Y%m%dT%H%M%SZ}-{cell:08x}" for start, cell in zip(starts, cells, strict=True)])
    order = np.argsort(ids)
    cells, rounds, number, outcome, ids, older = (part[order] for part in (cells, rounds, number, outcome, ids, older))
    starts = [starts[i] for i in order]
    sessions = [f"s{release:03d}-{filler.node[c]}-{int(r >= FIRST_ROUND)}" for c, r in zip(cells, rounds, strict=True)]
    _load_runs(connection, filler, release, _Boots(cells, number, outcome, ids, starts, sessions))
    _load_samples(connection, filler, cells, number, outcome, ids)
    _load_rows(connection, ids, outcome, starts)
    derive_numbers(connection, ids.tolist())
    if release % 4 == 0:
        _load_sessions(connection, sorted(set(sessions)), starts[0])


class _Boots:
    def __init__(self, cells: Any, number: Any, outcome: Any, ids: Any, starts: list[datetime], sessions: list[str]) -> None:
        self.cells, self.number, self.outcome, self.ids, self.starts, self.sessions = cells, number, outcome, ids, starts, sessions


def _outcomes(filler: Filler, cells: Any, number: Any) -> Any:
    fails = np.array(_FAILURES)[filler.failure[cells]]
    outcome = np.where(filler.broken[cells, number], fails, "pass").astype(object)
    draw = filler.chance.random(len(cells))
    outcome[draw < 0.01] = "infrastructure"
    outcome[(draw > 0.995) & (outcome == "pass")] = "crash"
    return outcome


def _load_runs(connection: duckdb.DuckDBPyConnection, filler: Filler, release: int, boots: _Boots) -> None:
    cells, count = boots.cells, len(boots.cells)
    engines = np.array(ENGINES)[filler.engine[cells]]
    nodes = filler.node[cells]
    recipes = np.char.mod("%02d", filler.recipe[cells])
    backends = np.char.mod("%02d", filler.backend[cells])
    versions = np.array([filler.world.release(n) for n in range(filler.world.releases)])[boots.number]
    states = np.array([node_state_row(filler.state_of(n, release))["node_state_id"] for n in range(filler.world.nodes)])
    failed = boots.outcome != "pass"
    reason = np.where(failed, np.char.add("failed: ", boots.outcome.astype(str)), None)
    signature = np.where(failed, np.char.add(boots.outcome.astype(str), np.char.mod("-%d", filler.failure[cells])), None)
    starts = np.array([start.replace(tzinfo=None) for start in boots.starts], dtype="datetime64[us]")
    memory = 4e9 * (1 + filler.recipe[cells]) * (1 + 0.002 * filler.chance.standard_normal(count))
    _load(
        connection,
        "runs",
        {
            "run_id": boots.ids,
            "session_id": boots.sessions,
            "cell_id": np.char.add(filler.history[cells], versions),
            "series_id": filler.history[cells],
            "engine": engines,
            "engine_version": versions,
            "distribution": np.full(count, "venv"),
            "recipe_name": np.char.add("model-", recipes),
            "backend_name": np.char.add("backend-", backends),
            "node_id": np.char.add("node-", nodes.astype(str)),
            "protocol_version": np.full(count, 1),
            "started_at": pa.array(starts, pa.timestamp("us", "UTC")),
            "finished_at": pa.array(starts + np.timedelta64(3, "m"), pa.timestamp("us", "UTC")),
            "phase": np.full(count, "teardown"),
            "outcome": boots.outcome,
            "reason": reason,
            "signature": signature,
            "build_id": np.char.add(np.char.add(engines, "-"), versions),
            "recipe_id": np.char.add("recipe-", recipes),
            "backend_id": np.char.add(np.char.add(engines, "-"), backends),
            "environment": np.full(count, "{}"),
            "configured": np.full(count, '{"attention": "TRITON_ATTN"}'),
            "actual": np.full(count, '{"attention": "TRITON_ATTN"}'),
            "max_model_len": np.full(count, 32768),
            "kv_cache_tokens": (100_000 * (1 + 0.01 * filler.chance.standard_normal(count))).astype(np.int64),
            "memory_baseline_bytes": np.full(count, 4_000_000_000),
            "memory_after_load_bytes": (4e9 + memory).astype(np.int64),
            "memory_peak_bytes": (4.5e9 + memory).astype(np.int64),
            "memory_after_teardown_bytes": np.full(count, 4_100_000_000),
            "in_process": np.full(count, False),
            "purpose": np.full(count, "measure"),
            "weights": np.full(count, "real"),
            "history_id": filler.history[cells],
            "node_state_id": states[nodes],
        },
    )


def _load_samples(connection: duckdb.DuckDBPyConnection, filler: Filler, cells: Any, number: Any, outcome: Any, ids: Any) -> None:
    """Half of a boot's samples with one stream, half with eight; a boot that failed has none."""
    passed = np.flatnonzero(outcome == "pass")
    each = filler.world.samples_per_boot * len(ids) // max(1, len(passed))
    boot = np.repeat(passed, each)
    repeat = np.tile(np.arange(each), len(passed))
    alone = repeat < each // 2
    speed = filler.levels[cells, number] * np.exp(filler.noise[cells] * filler.chance.standard_normal(len(cells)))
    rate = speed[boot] * np.exp(0.004 * filler.chance.standard_normal(len(boot)))
    count = len(boot)
    _load(
        connection,
        "samples",
        {
            "run_id": ids[boot],
            "workload": np.where(alone, "decode_c1", "decode_c8"),
            "repeat": np.where(alone, repeat, (repeat - each // 2) // 8),
            "stream": np.where(alone, 0, (repeat - each // 2) % 8),
            "concurrency": np.where(alone, 1, 8),
            "cold": repeat == 0,
            "launch_bound": filler.recipe[cells][boot] == 0,
            "prompt_tokens": np.full(count, 128),
            "completion_tokens": np.full(count, 256),
            "ttft_s": 4.0 / rate,
            "decode_tok_s": np.where(alone, rate, rate / 2),
            "prefill_tok_s": rate * 40,
            "itl_p50_s": 1.0 / rate,
            "itl_p99_s": 2.5 / rate,
            "e2e_s": 260 / rate,
            "aggregate_tok_s": np.where(alone, rate, rate * 4),
            "valid": np.full(count, True),
        },
    )


def _load_rows(connection: duckdb.DuckDBPyConnection, ids: Any, outcome: Any, starts: list[datetime]) -> None:
    count = len(ids)
    times = pa.array([start for start in starts], pa.timestamp("us", "UTC"))
    for phase, seconds in (("install", 0.5), ("launch", 1.0), ("ready", 60.0), ("coherence", 12.0), ("throughput", 40.0)):
        rows = {"run_id": ids, "phase": np.full(count, phase), "started_at": times, "duration_s": np.full(count, seconds)}
        _load(connection, "phases", {**rows, "completed": np.full(count, True)})
    verdict = np.where(np.isin(outcome, ("incoherent", "wrong")), "wrong", "match")
    for prompt in ("p1", "p2", "p3"):
        said = {"verdict": verdict, "reason": np.full(count, ""), "text": np.full(count, "the quick brown fox")}
        _load(
            connection,
            "coherence_results",
            {"run_id": ids, "step": np.full(count, "A"), "prompt_name": np.full(count, prompt), "judge": np.full(count, "golden"), **said},
        )
    node = {"verdict": np.full(count, "ok"), "bandwidth_gb_s": np.full(count, 231.0), "caches_dropped": np.full(count, False)}
    _load(connection, "health", {"run_id": ids, "read_at": times, "moment": np.full(count, "before"), **node})
    load = {"phase": np.full(count, "throughput"), "gpu_power_w": np.full(count, 80.0), "gpu_temperature_c": np.full(count, 61.0)}
    _load(connection, "resources", {"run_id": ids, "elapsed_s": np.full(count, 90.0), **load})


def _load_sessions(connection: duckdb.DuckDBPyConnection, sessions: list[str], start: datetime) -> None:
    rows = [
        {"session_id": s, "node_id": f"node-{s.split('-')[1]}", "kind": "nightly", "started_at": start, "void": i % 50 == 7}
        for i, s in enumerate(sessions)
    ]
    _load(connection, "sessions", _turned(rows))


def _turned(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: [list(row[name]) if isinstance(row[name], tuple) else row[name] for row in rows] for name in rows[0]}


def _load(connection: duckdb.DuckDBPyConnection, table: str, columns: dict[str, Any]) -> None:
    incoming = pa.table({name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()})
    connection.register("incoming", incoming)
    connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
    connection.unregister("incoming")
