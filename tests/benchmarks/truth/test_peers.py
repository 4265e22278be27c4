"""What is read out of the peers' files (fields as their releases of 2026 write them), and peers that do not run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.truth.accuracy import PeerSaid, Row
from benchmarks.truth.cost import COST, Cost
from benchmarks.truth.engines import compared
from benchmarks.truth.peers import Job, Peer, find_peers, read_aiperf, read_benchy, read_guidellm, read_vllm, run_peer
from benchmarks.truth.process import RunningTruth
from benchmarks.truth.report import accuracy_table, cost_table, engine_table, verdict_table

BENCHY = {
    "benchmarks": [{"tg_req_throughput": {"values": [60.0, 61.0]}, "e2e_ttft": {"values": [101.0, 102.0]}, "pp_req_throughput": None}]
}
VLLM = {"median_tpot_ms": 20.0, "failed": 1, "ttfts": [0.1, 0.0]}
GUIDELLM = {"benchmarks": [{"requests": {"successful": [{"inter_token_latency_ms": 10.0, "time_to_first_token_ms": 99.0}]}}]}
AIPERF = [
    {"metadata": {"benchmark_phase": "warmup"}, "metrics": {"time_to_first_token": {"value": 1.0}}},
    {"metadata": {"benchmark_phase": "profiling"}, "metrics": {}, "error": {"type": "X"}},
    {
        "metadata": {"benchmark_phase": "profiling"},
        "metrics": {"time_to_first_token": {"value": 100.0}, "output_token_throughput_per_user": {"value": 50.0}},
    },
]


def job(folder: Path) -> Job:
    return Job("http://127.0.0.1:1", COST, 2, Path("tokenizer"), folder)


@pytest.mark.parametrize(
    ("name", "content", "read", "said"),
    [
        ("benchy.json", json.dumps(BENCHY), read_benchy, PeerSaid(2, (60.0, 61.0), (0.101, 0.102), (), 0)),
        ("benchy.json", json.dumps({"benchmarks": [{"tg_req_throughput": None}]}), read_benchy, PeerSaid(2, failed=2)),
        ("vllm.json", json.dumps(VLLM), read_vllm, PeerSaid(2, (50.0,), (0.1,), (), 1)),
        ("guidellm.json", json.dumps(GUIDELLM), read_guidellm, PeerSaid(2, (100.0,), (0.099,), (), 1)),
        ("aiperf/profile_export.jsonl", "\n".join(map(json.dumps, AIPERF)), read_aiperf, PeerSaid(2, (50.0,), (0.1,), (), 1)),
    ],
)
def test_values_come_from_the_tools_own_fields(
    tmp_path: Path, name: str, content: str, read: Callable[[Job], PeerSaid], said: PeerSaid
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    assert read(job(tmp_path)) == said


@pytest.mark.parametrize("read", [read_benchy, read_vllm, read_guidellm, read_aiperf])
def test_no_result_file_is_no_number(tmp_path: Path, read: Callable[[Job], PeerSaid]) -> None:
    said = read(job(tmp_path))
    assert (said.decode_tok_s, said.ttft_s) == ((), ())


def test_peer_without_numbers_is_reported_with_its_exit_code_and_last_words() -> None:
    script = "import sys; print('no route to model'); sys.exit(3)"
    peer = Peer("p", "1", Path(sys.executable), lambda program, job: [str(program), "-c", script], read_benchy)
    run = run_peer(peer, RunningTruth("http://127.0.0.1:1", False), COST, 2, Path("tokenizer"))
    assert run.said.trouble == "exit 3, no numbers; last words: no route to model"
    assert run.cpu_s > 0


def test_peers_that_are_not_installed_are_named(tmp_path: Path) -> None:
    found, missing = find_peers(tmp_path, None)
    assert found == ()
    assert [sentence.partition(":")[0] for sentence in missing] == ["llama-benchy", "guidellm", "aiperf", "vllm bench serve"]


def row(tool: str, verdict: str, scenario: str = "s") -> Row:
    return Row(tool, scenario, "", 1, 60.0, None, None, 0.001, None, 1, "because", 0.0, 0.0, verdict)


def test_tables_count_only_scenarios_that_every_tool_was_asked_for() -> None:
    rows = [row("a", "right"), row("b", "wrong"), row("a", "right", "alone")]
    assert verdict_table(rows).splitlines()[0].startswith("| of 1 scenarios")
    assert verdict_table(rows).splitlines()[2:] == ["| a | 1 | 0 | 0 | 0 |", "| b | 0 | 1 | 0 | 0 |"]
    assert "| s | b | 60.00 | null |  | 1.00 ms |  | **wrong** |" in accuracy_table(rows)
    assert "| a | 0.050 | 4,000 | why |" in cost_table([Cost("a", (0.05,), 4000.0, "why")])
    assert "| a | 0.050 (0.010 to 0.090) | not tried |  |" in cost_table([Cost("a", (0.05, 0.09, 0.01))])
    assert "| a | unknown |" in cost_table([Cost("a", ())])


def test_engine_counters_stand_beside_means_over_the_same_requests() -> None:
    samples: list[dict[str, Any]] = [
        {"workload": "w", "concurrency": 2, "completion_tokens": 10, "ttft_s": 0.1, "decode_tok_s": 50.0},
        {"workload": "w", "concurrency": 2, "completion_tokens": 10, "ttft_s": 0.3, "decode_tok_s": 100.0},
    ]
    counters = [{"workload": "w", "metric": "generation_tokens", "value": 20.0}, {"workload": "w", "metric": "ttft_mean_s", "value": 0.19}]
    (one,) = compared("e", samples, counters)
    assert (one.tokens, one.engine_tokens, one.requests) == (20, 20.0, 2)
    assert (one.ttft_mean_s, one.itl_mean_s, one.engine_itl_mean_s) == (pytest.approx(0.2), pytest.approx(0.015), None)
    assert "(+10.00 ms, +5.3%)" in engine_table([vars(one)])


def test_mean_is_unknown_if_one_request_has_no_number() -> None:
    samples = [{"workload": "w", "concurrency": 1, "completion_tokens": 1, "ttft_s": t, "decode_tok_s": None} for t in (0.1, None)]
    (one,) = compared("e", samples, [])
    assert (one.ttft_mean_s, one.itl_mean_s) == (None, None)
