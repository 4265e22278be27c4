"""The commands `explain` and `lint` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from runners.cli.explain import explain
from runners.cli.lint import lint
from tests.runners.engines.boot_logs import lines_of, path_of

_APP = typer.Typer()
_APP.command()(explain)
_APP.command()(lint)


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(_APP, list(arguments), env={"COLUMNS": "200"})


def _json(*arguments: str) -> dict[str, Any]:
    result = _run(*arguments)
    data = json.loads(result.stdout)
    assert isinstance(data, dict)
    return data


def test_explain_shows_cause_meaning_advice_and_issue() -> None:
    result = _run("explain", str(path_of("vllm-0.26.0-h200-moe-nvfp4-cutlass")))
    shown = " ".join(result.output.split())
    assert result.exit_code == 0
    for words in (
        "failed",
        "vllm 0.26.0",
        "ARCH09",
        "unsupported",
        "does not support the deployment configuration",
        "to do:",
        "vllm-project/vllm#33416",
    ):
        assert words in shown


def test_explain_shows_a_fallback_before_anything_else(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    text = "\n".join(lines_of("vllm-0.26.0-h200-moe-nvfp4")).replace("1000000000}", "1000000000, 'moe_backend': 'triton'}")
    path.write_text(text)
    result = _run("explain", str(path))
    assert result.output.startswith("fallback: moe was configured as triton, MARLIN ran")


def test_explain_json_holds_what_the_page_shows() -> None:
    data = _json("explain", str(path_of("sglang-0.5.14-h200-moe-fp8")), "--engine", "sglang==0.5.14", "--json")
    assert (data["health"], data["version"], data["kernels"]["moe"]) == ("healthy", "0.5.14", "triton")
    assert data["capacity"]["kv_cache_tokens"] == 65536
    failed = _json("explain", str(path_of("sglang-0.5.14-h200-moe-nvfp4a16")), "--json")
    assert (failed["failure"]["signature"], failed["failure"]["outcome"]) == ("FP414", "crash")


def test_explain_hides_secrets_and_escapes_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "sglang.launch_server\n\x1b]0;title\x07RuntimeError: CUDA out of memory api_key=sk-aaaaaaaaaaaaaaaaaaaaaaaa [bold]x[/bold]\n"
    )
    for arguments in (("explain", str(path)), ("explain", str(path), "--json")):
        output = _run(*arguments).output
        assert "sk-aaaa" not in output
        assert "\x1b]" not in output
        assert "[bold]x[/bold]" in output


@pytest.mark.parametrize("arguments", [("explain", "none.log"), ("explain", "."), ("explain", "--engine", "vlm", __file__)])
def test_explain_refuses_bad_input_as_usage(arguments: tuple[str, ...]) -> None:
    assert _run(*arguments).exit_code == 2


def test_lint_of_the_field_script_names_line_and_replacement(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("export VLLM_MXFP4_BACKEND=marlin\nvllm serve m \\\n  --moe-backend marlin --enforce-eager\n")
    result = _run("lint", "--engine", "vllm==0.17.1", str(script))
    assert result.exit_code == 1
    assert f"{script}:1: error VLLM_MXFP4_BACKEND  not a variable of any stock vLLM; forks only" in result.output
    assert "use instead: --moe-backend marlin" in result.output
    assert f"{script}:2: warning --enforce-eager" in result.output


def test_lint_takes_the_version_from_the_image(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("docker run -e VLLM_MXFP4_USE_MARLIN=1 vllm/vllm-openai:v0.24.0 --model m\n")
    data = _json("lint", str(script), "--json")
    assert (data["engine"], data["version"]) == ("vllm", "0.24.0")
    assert [(item["severity"], item["name"]) for item in data["findings"]] == [("error", "VLLM_MXFP4_USE_MARLIN")]


def test_lint_without_a_version_says_which_it_took(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve m --port 1\n")
    result = _run("lint", str(script))
    assert result.exit_code == 0
    assert "no version is given, so the newest version read is taken" in result.output


def test_lint_of_arguments_and_env_file(tmp_path: Path) -> None:
    env = tmp_path / "serve.env"
    env.write_text("VLLM_USE_V1=1\n")
    result = _run("lint", "--engine", "vllm==0.26.0", "--env-file", str(env), "--", "--moe-backend", "marlin")
    assert result.exit_code == 1
    assert "VLLM_USE_V1" in result.output
    good = _run("lint", "--engine", "vllm==0.26.0", "--", "--moe-backend", "marlin")
    assert (good.exit_code, "nothing to remark" in good.output) == (0, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("lint",),
        ("lint", "--", "--moe-backend", "x"),
        ("lint", "--engine", "vlm==1", "--", "--x"),
        ("lint", "--engine", "vllm==x.y", "--", "--x"),
        ("lint", "missing.sh"),
        ("lint", "--engine", "vllm==0.26.0", "--env-file", "missing.env", "--", "--x"),
    ],
)
def test_lint_refuses_bad_input_as_usage(arguments: tuple[str, ...]) -> None:
    assert _run(*arguments).exit_code == 2
