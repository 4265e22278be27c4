"""Stores made for the tests of the pages. Nothing in them was measured; the only real one is the sample.

Built the way a boot builds them (a folder with records, then `rebuild`), so that what the pages read went through the same code.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from results.boot_folder import BootFolder, BootSummary
from results.records import (
    BackendRecord,
    CoherenceRecord,
    ContextRecord,
    DiagnosisRecord,
    EngineBuildRecord,
    EngineCounterRecord,
    HealthRecord,
    KernelMessageRecord,
    NodeRecord,
    PhaseRecord,
    RecipeRecord,
    ResourceRecord,
    RunRecord,
    SampleRecord,
    ScoreRecord,
)
from results.store import Store
from results.vocabulary import Outcome, Phase

START = datetime(2026, 11, 1, 6, tzinfo=UTC)

HIT = "window.__hit = 1"
"""What a script that should never run would do."""

HOSTILE = {
    "markup": f"<img src=x onerror='{HIT}'><script>{HIT}</script>",
    "markdown": "![pixel](http://198.51.100.7/pixel.png) [go](javascript:alert(1)) **bold** :red[x] $x^2$",
    "sql": "x'); DROP TABLE runs; --",
    "path": "../../../../etc/passwd",
    "escapes": "\x1b[31mred\x1b[0m \u202egnp.exe \x00 \x07",
    "formula": '=HYPERLINK("http://198.51.100.7","x")',
    "long": "W" * 400,
}


@dataclass(frozen=True)
class Planned:
    """One boot of a made-up store."""

    version: str = "0.32.0"
    outcome: Outcome | None = Outcome.PASS
    decode: float | None = 50.0
    engine: str = "vllm"
    recipe: str = "gpt-oss-120b"
    backend: str = "marlin"
    node: str = "spark-1"
    reason: str | None = None
    driver: str = "590.48"
    signature: str | None = None
    text: str = "the cat sat on the mat"
    minutes: int = 0
    log: str = "INFO a line\nERROR the decisive line\nINFO the end\n"


def write_boot(store: Store, number: int, planned: Planned) -> str:
    """Write the folder of one boot; returns its id."""
    started = START + timedelta(minutes=planned.minutes or 30 * number)
    run_id = f"{started:%Y%m%dT%H%M%SZ}-{number:08x}"
    folder = BootFolder(store.boots, run_id)
    folder.create()
    right = planned.outcome in (Outcome.PASS, Outcome.FALLBACK)
    run = RunRecord(
        run_id=run_id,
        session_id=f"session-{number}",
        cell_id=f"{planned.recipe}-{planned.version}",
        series_id=f"{planned.recipe}-{planned.backend}",
        engine=planned.engine,
        engine_version=planned.version,
        distribution="venv",
        recipe_name=planned.recipe,
        backend_name=planned.backend,
        node_id=planned.node,
        protocol_version=1,
        started_at=started.isoformat(),
        finished_at=None if planned.outcome is None else (started + timedelta(minutes=5)).isoformat(),
        phase=Phase.COHERENCE if planned.outcome is None else Phase.TEARDOWN,
        outcome=planned.outcome,
        reason=planned.reason or (None if right else f"planned to be {planned.outcome}, see vllm-project/vllm#12345"),
        signature=planned.signature,
        log_excerpt=None if right else "ERROR the decisive line\n",
        build_id=f"build-{planned.engine}-{planned.version}",
        recipe_id=f"recipe-{planned.recipe}",
        backend_id=f"backend-{planned.backend}",
        command=("python", "-m", planned.engine, "--model", planned.recipe),
        environment={"HF_HUB_OFFLINE": "1"},
        server_version=planned.version,
        configured={"attention": "TRITON_ATTN", "moe": planned.backend},
        actual={"attention": "TRITON_ATTN", "moe": "unknown"},
        max_model_len=8192,
        kv_cache_tokens=100_000,
        memory_baseline_bytes=4 * 2**30,
        memory_after_load_bytes=70 * 2**30,
        warnings=(planned.reason,) if planned.reason else (),
    )
    node = NodeRecord(
        planned.node,
        f"label of {planned.node}",
        gpu_name="NVIDIA GB10",
        compute_capability="12.1",
        driver_version=planned.driver,
        memory_total_bytes=128 * 2**30,
    )
    recipe = RecipeRecord(
        f"recipe-{planned.recipe}",
        planned.recipe,
        f"made/{planned.recipe}",
        None,
        "mxfp4",
        "model",
        {
            "weights": {"active_bytes": 3_000_000_000},
            "claims": [
                {
                    "engine": "vllm",
                    "version": "0.32.0",
                    "tok_s_low": 58.8,
                    "tok_s_high": 59.5,
                    "source": "a page",
                    "date": "2026-06",
                    "note": "",
                },
                {"engine": "vllm", "version": None, "tok_s_low": 33.0, "tok_s_high": 33.0, "source": planned.reason or "a forum"},
            ],
        },
    )
    build = EngineBuildRecord(
        f"build-{planned.engine}-{planned.version}",
        planned.engine,
        planned.version,
        "venv",
        "3.12.3",
        (f"torch==2.11.{number % 2}", f"{planned.engine}=={planned.version}"),
    )
    backend = BackendRecord(f"backend-{planned.backend}", planned.engine, planned.backend)
    folder.write_summary(BootSummary(run, node, build, recipe, backend))
    folder.append(
        [
            PhaseRecord(run_id, Phase.LAUNCH, started.isoformat(), 12.0, True),
            PhaseRecord(run_id, Phase.COHERENCE, started.isoformat(), 3.0, right),
        ]
    )
    folder.append(
        CoherenceRecord(
            run_id,
            "cold",
            f"p{index}",
            "golden",
            "match" if right else "wrong",
            planned.reason or "judged",
            planned.text if right else planned.text[:8] + "XX" + planned.text[8:],
            (1, 2, 3) if right else (1, 9, 3),
            (1, 2, 3),
            None if right else 1,
            0.5,
            1,
            "stop",
            "output_ids",
        )
        for index in range(3)
    )
    if (right or planned.outcome is Outcome.INTERRUPTED) and planned.decode is not None:
        folder.append(
            SampleRecord(
                run_id,
                "decode_c1",
                index,
                0,
                1,
                False,
                False,
                100,
                128,
                decode_tok_s=planned.decode + index / 10,
                ttft_s=0.2,
                itl_p50_s=0.02,
                itl_p99_s=0.03,
            )
            for index in range(5)
        )
    folder.append(
        ResourceRecord(
            run_id,
            float(second),
            Phase.THROUGHPUT,
            memory_used_bytes=70 * 2**30,
            gpu_power_w=60.0 + second,
            gpu_sm_clock_mhz=2400,
            gpu_temperature_c=65.0,
        )
        for second in range(20)
    )
    folder.append(
        [
            HealthRecord(
                run_id,
                started.isoformat(),
                "before",
                "ok",
                ("fine",),
                "torch-cuda",
                240.0,
                88.0,
                100.0,
                disk_free_bytes=2**40,
                memory_available_bytes=100 * 2**30,
            )
        ]
    )
    folder.append([ScoreRecord(run_id, "margins", "margin_drift_rms", "all", 0.01, 0.05, "bf16 / bf16 / auto", 900, "pass", "within")])
    folder.append([ContextRecord(run_id, "needle", 4096, right, "recalled" if right else "forgotten", planned.text, 1.5, planned.decode)])
    folder.append([EngineCounterRecord(run_id, "decode_c1", "generation_tokens", 640.0)])
    if not right:
        folder.append([KernelMessageRecord(run_id, 4.0, "NVRM: Xid 13, " + planned.text)])
        folder.append(
            [DiagnosisRecord(run_id, started.isoformat(), "kernel", "moe", planned.reason or "the MoE kernel", ("--moe-backend", "marlin"))]
        )
    folder.log.write_text(planned.log)
    folder.serve_script.write_text(f"#!/bin/sh\nexec {planned.engine}\n")
    return run_id


def made(root: Path, plans: list[Planned]) -> Store:
    """A store of these boots."""
    store = Store(root)
    for number, planned in enumerate(plans, 1):
        write_boot(store, number, planned)
    store.rebuild()
    return store


def small(root: Path) -> Store:
    """Three releases, two backends: one breaks and is fixed, one slows down, one is not there at first, one boot runs."""
    base = Planned()
    plans = [dataclasses.replace(base, version=version) for version in ("0.31.0", "0.32.0", "0.33.0") for _ in range(3)]
    flash = dataclasses.replace(base, backend="flashinfer", decode=60.0)
    broken = dataclasses.replace(flash, version="0.32.0", outcome=Outcome.INCOHERENT, signature="salad-moe")
    plans += (
        [dataclasses.replace(flash, version="0.31.0")] * 2
        + [broken] * 2
        + [dataclasses.replace(flash, version="0.33.0", driver="595.10")] * 2
    )
    plans += [
        dataclasses.replace(base, recipe="qwen3.5-35b", version="0.33.0", outcome=outcome)
        for outcome in (Outcome.CRASH, Outcome.UNSUPPORTED)
    ]
    plans += [dataclasses.replace(base, recipe="qwen3.5-35b", version="0.32.0", outcome=Outcome.FALLBACK)]
    plans += [
        dataclasses.replace(base, engine="sglang", version=version, outcome=outcome)
        for version, outcome in (("0.5.14", Outcome.PASS), ("0.5.15", Outcome.HANG))
    ]
    plans += [dataclasses.replace(base, version="0.33.0", outcome=None)]
    return made(root, plans)


def hostile(root: Path) -> Store:
    """Names, texts and versions as somebody who wants to break a page would choose them."""
    plans = []
    for text in HOSTILE.values():
        names = text.replace("\x00", "")
        plans += [
            Planned(
                recipe=names,
                backend=names,
                node=names,
                reason=text,
                text=text,
                signature=names,
                outcome=outcome,
                log=f"{text}\nERROR the decisive line\n",
            )
            for outcome in (Outcome.PASS, Outcome.INCOHERENT)
        ]
        plans.append(Planned(engine=names[:60], version=names[:60], outcome=Outcome.CRASH, reason=text))
    return made(root, plans)


WIDE_RELEASES, WIDE_ROWS = 60, 40
_WIDE = f"""
INSERT INTO nodes (node_id, label) VALUES ('spark-1', 'spark-1');
INSERT INTO engine_versions SELECT 'vllm', '0.' || n || '.0', '0.' || n || '.0', n FROM range(1, {WIDE_RELEASES + 1}) t(n);
INSERT INTO histories (history_id, engine, distribution, recipe_name, backend_name, node_id, boots, newest_release, last_passing,
                       last_started_at)
SELECT printf('%012d', n), 'vllm', 'venv', printf('model-%02d', n // 4), printf('backend-%d', n % 4), 'spark-1', {3 * WIDE_RELEASES},
       '0.{WIDE_RELEASES}.0', '0.{WIDE_RELEASES}.0', TIMESTAMPTZ '2026-11-01 06:00:00+00'
FROM range({WIDE_ROWS}) t(n);
INSERT INTO verdicts (history_id, release, state, verdict, headline, confirmed, alarm, boots, counts, boots_needed, reason, decode_tok_s,
                      decode_change, last_started_at)
SELECT h.history_id, v.release, CASE WHEN broken THEN 'incoherent' ELSE 'pass' END, CASE WHEN broken THEN 'broke' ELSE 'unchanged' END,
       CASE WHEN broken THEN 'broke' ELSE 'unchanged' END, false, false, 3, '{{}}', 0, 'made for a test',
       CASE WHEN broken THEN NULL ELSE 50.5 END,
       CASE WHEN broken THEN NULL ELSE 0.001 END, h.last_started_at
FROM (SELECT h, v, hash(h.history_id || v.release) % 9 = 0 AS broken FROM histories h, engine_versions v)
"""


def wide(root: Path) -> Store:
    """A matrix of 60 releases by 40 rows: what is derived from boots, without the boots."""
    store = Store(root)
    with store.writing() as connection:
        connection.execute(_WIDE)
    return store
