"""Real vLLM and SGLang servers on the CPU, from nothing to a recorded verdict, exactly as a user starts them.

They share the user's cache of environments (made on the first run, minutes) and a store of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from results.store import Store
from runners.envs.environment import cache_folder, ensure
from runners.spec import EngineSpec
from suites.canaries import corrupt, zoo

REPOSITORY = Path(__file__).resolve().parents[1]
VLLM, SGLANG = "vllm==0.32.0", "sglang==0.5.14"
LLAMA, GEMMA, MOE, GPT_OSS, QWEN35 = (
    f"shape-tiny-{name}" for name in ("llama-3.1-8b", "gemma3-270m", "qwen3-30b-a3b", "gpt-oss-20b", "qwen3.5-35b-a3b")
)
IN_FP8, IN_NVFP4 = (tuple(f"{shape}-{form}" for shape in (LLAMA, MOE, QWEN35)) for form in ("fp8", "nvfp4"))
TINY = (LLAMA, GEMMA, MOE, GPT_OSS, QWEN35, *IN_FP8, *IN_NVFP4)
"""Every tiny shape but those of gpt-oss-120b and Qwen3.5-122B-A10B, whose configurations are those of their smaller sisters."""
SERVED = {VLLM: {LLAMA, GEMMA, MOE, QWEN35}, SGLANG: {LLAMA, GEMMA, MOE}}
REFUSED = {
    VLLM: {
        GPT_OSS: "No MXFP4 MoE backend supports the deployment configuration",
        **dict.fromkeys((*IN_FP8, *IN_NVFP4), "vLLM has no kernel for this weight format on a CPU"),
    },
    SGLANG: {
        QWEN35: "Qwen3_5ForCausalLM has no SGlang implementation",
        **dict.fromkeys((GPT_OSS, *IN_FP8, *IN_NVFP4), "computes unquantised weights only"),
    },
}
"""What each engine does not serve on a CPU, and words of the reason."""
TINY_SUITE = """
name = "tiny"
context = [1024]

[[workloads]]
name = "decode_c1"
prompt_tokens = 128
completion_tokens = 256
concurrency = 1
repeats = 2

[[workloads]]
name = "short_c8"
prompt_tokens = 64
completion_tokens = 16
concurrency = 8
repeats = 1
"""
LONGEST_S = 2400

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The store that every run of this module writes to."""
    return Store(tmp_path_factory.mktemp("store"))


def _run(store: Store, *arguments: str) -> tuple[int, dict[str, Any]]:
    """`python3 runners/run.py ARGUMENTS --json`: exit code and result."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "runners" / "run.py"), *arguments, "--json"],
        env={**os.environ, "SPARKPROOF_HOME": str(store.root)},
        stdout=subprocess.PIPE,
        stderr=None,
        text=True,
        timeout=LONGEST_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.strip(), f"exit code {done.returncode} and no result"
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
def test_a_release_passes_the_gate_of_the_dense_canary_and_every_tiny_shape_is_timed_or_refused_with_a_reason(
    store: Store, engine: str, tmp_path: Path
) -> None:
    """One session for each engine: a canary vouches for all shapes of its kernels."""
    suite = tmp_path / "tiny.toml"
    suite.write_text(f"recipes = {json.dumps(['canary-dense', *TINY])}{TINY_SUITE}")
    code, shown = _run(store, "--engine", engine, "--suite", str(suite), "--no-controls")
    cells = {cell["recipe_name"]: cell for cell in shown["cells"]}
    canary = cells["canary-dense"]
    assert canary["outcome"] == "pass", canary["reason"]
    assert (canary["gate_matched"], canary["gate_prompts"]) == (89, 89)
    assert (canary["decode_tok_s"]["count"], canary["launch_bound"]) == (2, True)
    run = store.query("SELECT * FROM runs WHERE run_id = ?", [canary["run_ids"][0]])[0]
    assert run["server_version"].startswith(engine.partition("==")[2])
    assert run["max_model_len"] == 2048
    assert run["kv_cache_tokens"] > 2048
    assert abs(run["engine_token_count"] - run["client_token_count"]) <= 0.02 * run["client_token_count"]

    outcomes = {name: (cells[name]["outcome"], cells[name]["reason"]) for name in TINY}
    served = {name for name, (outcome, _) in outcomes.items() if outcome == "pass"}
    assert served == SERVED[engine], outcomes
    for name, words in REFUSED[engine].items():
        assert outcomes[name][0] == "unsupported" and words in outcomes[name][1], outcomes[name]
    assert served | set(REFUSED[engine]) == set(TINY)
    assert code == 1, "what was asked for by name and is not supported"
    for name in served:
        assert (cells[name]["weights"], cells[name]["decode_tok_s"]["count"], cells[name]["gate_prompts"]) == ("dummy", 2, 0)
        samples = store.query("SELECT * FROM samples WHERE run_id = ? AND NOT cold", [cells[name]["run_ids"][0]])
        assert {(s["workload"], s["completion_tokens"]) for s in samples} == {("decode_c1", 256), ("short_c8", 16)}
        assert all(s["valid"] and "weights=dummy" in s["flags"] for s in samples)


def test_one_nan_weight_is_incoherent_and_nothing_is_timed(store: Store, tmp_path: Path) -> None:
    healthy = zoo.materialise("dense", "bf16", cache_folder() / "canaries")
    broken = corrupt.write_corrupted(healthy, "nan_weight", tmp_path / "nan-canary")
    code, shown = _run(store, "--engine", VLLM, "--model", str(broken))
    (cell,) = shown["cells"]
    assert (code, cell["outcome"]) == (1, "incoherent"), cell["reason"]
    assert store.query("SELECT count(*) n FROM samples WHERE run_id = ?", [cell["run_ids"][0]]) == [{"n": 0}]


def test_a_real_model_passes_with_its_bos_token_and_is_incoherent_without(store: Store) -> None:
    code, shown = _run(store, "--engine", VLLM, "--model", "gemma3-270m", "--model", "gemma3-270m-no-bos", "--repeats", "1")
    by_recipe = {cell["recipe_name"]: cell for cell in shown["cells"]}
    assert code == 1
    assert by_recipe["gemma3-270m"]["outcome"] == "pass", by_recipe["gemma3-270m"]["reason"]
    assert not by_recipe["gemma3-270m"]["launch_bound"]
    assert by_recipe["gemma3-270m-no-bos"]["outcome"] == "incoherent"


def test_transformers_in_float32_reproduces_the_golden_ids() -> None:
    environment = ensure(EngineSpec.parse(VLLM), has_cuda=False, progress=lambda line: None)
    folder = zoo.materialise("dense", "bf16", cache_folder() / "canaries")
    script = REPOSITORY / "suites" / "canaries" / "reproduce.py"
    golden = script.parent / "dense" / "golden.json"
    done = subprocess.run(
        [str(environment.python), str(script), str(folder), str(golden), "--dtype", "float32"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_what_training_computes_agrees_with_numpy_under_the_torch_of_an_engine() -> None:
    engine = ensure(EngineSpec.parse(VLLM), has_cuda=False, progress=lambda line: None)
    ours = Path(pytest.__file__).parents[1]  # behind the engine's own packages, for pytest and hypothesis
    code = f"import sys; sys.path.append({str(ours)!r}); import pytest; raise SystemExit(pytest.main(sys.argv[1:]))"
    tested = REPOSITORY / "tests" / "suites" / "canaries" / "test_torch_side.py"
    argv = [str(engine.python), "-c", code, "-q", "-p", "no:cacheprovider", str(tested)]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=LONGEST_S, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
