"""Serve commands of both engines: exact argv and environment, per version and node."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.engines.base import UNKNOWN, ServeRequest
from runners.engines.launch import arguments_for
from runners.engines.registry import ADAPTERS, ATTACHED_ONLY, adapter_for
from runners.errors import UsageError

PYTHON = Path("/envs/engine/bin/python")
STARTED = sorted(set(ADAPTERS) - ATTACHED_ONLY)


def request(**changes: object) -> ServeRequest:
    values: dict[str, object] = {
        "model_path": "/models/canary",
        "served_name": "canary",
        "host": "127.0.0.1",
        "port": 30100,
        "has_cuda": True,
        "max_model_len": 1024,
        "max_num_seqs": 16,
    }
    return ServeRequest(**{**values, **changes})  # type: ignore[arg-type]


def test_vllm_on_cuda_is_started_as_vllm_serve() -> None:
    command = adapter_for("vllm").serve_command(PYTHON, "0.33.0", request())
    assert command.argv[:5] == (str(PYTHON), "-m", "vllm.entrypoints.cli.main", "serve", "/models/canary")
    options = "--served-model-name canary --host 127.0.0.1 --port 30100 --seed 0 --max-model-len 1024 --max-num-seqs 16"
    options += " --enable-prompt-tokens-details"
    assert " ".join(command.argv[5:]) == options
    assert "VLLM_CPU_KVCACHE_SPACE" not in command.environment


def test_vllm_on_cpu_is_started_by_module_with_cpu_settings() -> None:
    command = adapter_for("vllm").serve_command(PYTHON, "0.32.0", request(has_cuda=False))
    assert command.argv[1:5] == ("-m", "vllm.entrypoints.openai.api_server", "--model", "/models/canary")
    assert command.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert command.environment["VLLM_CPU_OMP_THREADS_BIND"] == "nobind"


def test_vllm_never_phones_home_and_logs_without_colour() -> None:
    environment = adapter_for("vllm").serve_command(PYTHON, "0.32.0", request()).environment
    assert environment["VLLM_NO_USAGE_STATS"] == environment["DO_NOT_TRACK"] == environment["PYTHONUNBUFFERED"] == "1"
    assert environment["VLLM_LOGGING_COLOR"] == "0"


@pytest.mark.parametrize("engine", STARTED)
def test_kernels_and_graphs_are_the_backends_choice_alone(engine: str) -> None:
    argv = adapter_for(engine).serve_command(PYTHON, "0.5.14", request()).argv
    assert not any(word in part for part in argv for word in ("cuda-graph", "eager", "backend"))


@pytest.mark.parametrize(("engine", "limit"), [("vllm", "--gpu-memory-utilization 0.1"), ("sglang", "--mem-fraction-static 0.3")])
def test_a_server_that_is_only_judged_takes_little_of_a_gpu(engine: str, limit: str) -> None:
    adapter = adapter_for(engine)
    assert limit in " ".join(adapter.serve_command(PYTHON, "0.5.14", request(small_cache=True)).argv)
    assert limit.split(maxsplit=1)[0] not in adapter.serve_command(PYTHON, "0.5.14", request()).argv


def test_sglang_on_cpu_states_its_pool_and_device() -> None:
    command = adapter_for("sglang").serve_command(PYTHON, "0.5.14", request(has_cuda=False))
    text = " ".join(command.argv)
    assert "-m sglang.launch_server --model-path /models/canary --served-model-name canary" in text
    assert "--context-length 1024 --max-running-requests 16" in text
    assert "--enable-metrics --enable-cache-report --decode-log-interval 10" in text
    assert "--device cpu --max-total-tokens 8192 --mem-fraction-static 0.3" in text
    assert command.environment["SGLANG_USE_CPU_ENGINE"] == "1"


def test_option_of_the_recipe_replaces_our_default() -> None:
    command = adapter_for("sglang").serve_command(PYTHON, "0.5.14", request(has_cuda=False, arguments=("--max-total-tokens", "512")))
    assert command.argv.count("--max-total-tokens") == 1
    assert command.argv[-2:] == ("--max-total-tokens", "512")


@pytest.mark.parametrize("engine", STARTED)
def test_arguments_and_variables_of_the_request_come_last_and_win(engine: str) -> None:
    asked = request(arguments=("--x=1", "--y"), environment={"PYTHONUNBUFFERED": "0", "MINE": "2"})
    command = adapter_for(engine).serve_command(PYTHON, "0.5.14", asked)
    assert command.argv[-2:] == ("--x=1", "--y")
    assert command.environment["PYTHONUNBUFFERED"] == "0"
    assert command.environment["MINE"] == "2"


@pytest.mark.parametrize("engine", STARTED)
def test_only_a_local_model_is_served_offline(engine: str) -> None:
    adapter = adapter_for(engine)
    assert adapter.serve_command(PYTHON, "0.5.14", request()).environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in adapter.serve_command(PYTHON, "0.5.14", request(model_path="org/model")).environment


@pytest.mark.parametrize("engine", STARTED)
def test_limits_that_are_not_asked_for_are_not_set(engine: str) -> None:
    argv = adapter_for(engine).serve_command(PYTHON, "0.5.14", request(max_model_len=None, max_num_seqs=None)).argv
    assert not {"--max-model-len", "--context-length", "--max-num-seqs", "--max-running-requests"} & set(argv)


def test_unknown_version_is_asked_in_the_newest_words() -> None:
    assert arguments_for(UNKNOWN, (("..1.0", ("--old",)), ("1.1..", ("--new",)))) == ("--new",)
    assert [r.path for r in adapter_for("sglang").info_requests(UNKNOWN)] == ["/server_info", "/model_info", "/v1/models"]


def test_info_page_of_old_sglang_has_its_old_name() -> None:
    assert [r.path for r in adapter_for("sglang").info_requests("0.5.5")] == ["/get_server_info", "/get_model_info", "/v1/models"]


def test_unknown_engine_is_refused_with_the_closest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean sglang"):
        adapter_for("sglan")
