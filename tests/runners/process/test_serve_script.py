from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runners.engines.base import ServeCommand
from runners.process.serve_script import serve_script, write_serve_script

SHOWN = "{k: v for k, v in os.environ.items() if k.startswith(('VLLM_', 'MINE', 'PYTHONP'))}"
DUMP = f"import json, os, sys; print(json.dumps([sys.argv[1:], {SHOWN}]))"


def run(script: Path, **environment: str) -> list[object]:
    subprocess.run(["bash", "-n", str(script)], check=True)
    done = subprocess.run([str(script)], check=True, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment})
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_script_runs_the_exact_command_and_nothing_of_the_callers_shell_leaks_in(tmp_path: Path) -> None:
    arguments = ("--kernel-config", '{"linear": "it\'s $HOME `id` \\"x\\""}', "two words", "", "*", "line\nbreak", "-x;reboot")
    command = ServeCommand((sys.executable, "-c", DUMP, *arguments), {"VLLM_USE_V1": "1", "MINE": "a 'b' $PATH\n\"c\""})
    script = tmp_path / "serve.sh"
    write_serve_script(command, script)
    assert script.stat().st_mode & 0o777 == 0o755
    got = run(script, VLLM_LEAKED="x", PYTHONPATH="/leaked")
    assert got == [list(arguments), {"VLLM_USE_V1": "1", "MINE": "a 'b' $PATH\n\"c\""}]


def test_secrets_are_not_in_the_script(tmp_path: Path) -> None:
    secret = "s3cr3t-value-123456"
    command = ServeCommand((sys.executable, "-c", DUMP, "--api-key", secret), {"HF_TOKEN": secret, "MINE": "hf_" + "a" * 30})
    write_serve_script(command, tmp_path / "serve.sh")
    text = (tmp_path / "serve.sh").read_text()
    assert secret not in text and "aaaa" not in text
    assert run(tmp_path / "serve.sh") == [["--api-key", "[redacted]"], {"MINE": "[redacted]"}]


PRINTABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@settings(max_examples=15, deadline=None)
@given(st.lists(PRINTABLE, max_size=5), PRINTABLE)
def test_any_argument_survives_the_shell(tmp_path_factory: pytest.TempPathFactory, arguments: list[str], value: str) -> None:
    marked = [f"x{a}" for a in arguments]
    script = tmp_path_factory.mktemp("s") / "serve.sh"
    write_serve_script(ServeCommand((sys.executable, "-I", "-S", "-c", DUMP, *marked), {"MINE": value}), script)
    assert run(script) == [marked, {"MINE": value}]


@pytest.mark.parametrize(
    "command",
    [
        ServeCommand((), {}),
        ServeCommand(("a\0b",), {}),
        ServeCommand(("a",), {"A": "b\0"}),
        ServeCommand(("a",), {"A=1;reboot;B": "x"}),
        ServeCommand(("a",), {"": "x"}),
    ],
    ids=str,
)
def test_command_that_no_shell_can_express_is_refused(command: ServeCommand) -> None:
    with pytest.raises(ValueError):
        serve_script(command)
