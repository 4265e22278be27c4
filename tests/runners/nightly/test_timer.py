from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.cli.install_timer import make_timer, units_folder, write_units
from runners.errors import UsageError
from runners.nightly.timer import UNIT, Timer, checked_words, cron_line, quoted, service, shell_quoted, timer_unit
from suites.errors import SuiteError

DEPLOY = Path(__file__).parents[3] / "deploy"
TIMER = Timer(("/opt/sparkproof/.venv/bin/sparkproof", "nightly", "--budget", "6h"), "01:30")


def test_a_missed_night_is_made_up_for_and_one_that_runs_is_not_started_twice() -> None:
    assert "Persistent=true" in timer_unit(TIMER)
    assert "OnCalendar=*-*-* 01:30:00" in timer_unit(TIMER)
    assert "Type=oneshot" in service(TIMER)


def test_stopping_gives_the_runner_time_for_its_teardown() -> None:
    text = service(TIMER)
    assert "KillMode=mixed" in text and "KillSignal=SIGTERM" in text and "TimeoutStopSec=300" in text
    assert "SuccessExitStatus=1" in text


@pytest.mark.parametrize("at", ["1:30", "24:00", "01:60", "", "01:30:00", "01:30\nExecStart=/bin/evil"])
def test_a_time_that_is_none_is_refused(at: str) -> None:
    with pytest.raises(UsageError):
        Timer(TIMER.command, at)


@pytest.mark.parametrize(
    ("word", "unit", "shell"),
    [
        ("/opt/a", "/opt/a", "/opt/a"),
        ("/home/my files/x", '"/home/my files/x"', "'/home/my files/x'"),
        ("50%", "50%%", "50%"),
        ("$HOME", '"$$HOME"', "'$HOME'"),
        ("it's", '"it\'s"', "'it'\\''s'"),
    ],
)
def test_words_are_quoted_for_the_unit_and_for_the_shell(word: str, unit: str, shell: str) -> None:
    assert (quoted(word), shell_quoted(word)) == (unit, shell)


def test_a_line_break_cannot_begin_another_setting() -> None:
    with pytest.raises(UsageError):
        checked_words(["/opt/x\nExecStartPost=/bin/evil"])


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40))
def test_a_shell_reads_back_what_was_quoted(word: str) -> None:
    if not word:
        return
    done = subprocess.run(["sh", "-c", f"printf %s {shell_quoted(word)}"], capture_output=True, check=True)
    assert done.stdout.decode() == word


def test_cron_gets_its_percent_signs_escaped() -> None:
    line = cron_line(Timer(("/opt/x", "a%b"), "02:05", (("SPARKPROOF_HOME", "/data/s p"),)))
    assert line == "5 2 * * * SPARKPROOF_HOME='/data/s p' /opt/x a\\%b\n"


def test_checkout_without_an_installed_program_is_where_the_night_is_started() -> None:
    timer = Timer(("/opt/py", "-m", "x"), "02:05", (), "/opt/my spark 100%")
    assert "WorkingDirectory=/opt/my spark 100%%\n" in service(timer)
    assert cron_line(timer) == "5 2 * * * cd '/opt/my spark 100\\%' && /opt/py -m x\n"
    assert "WorkingDirectory" not in service(TIMER)


@pytest.mark.parametrize(("suite", "budget"), [("nigthly", "6h"), ("/nonexistent/n.toml", "6h"), ("nightly", "6 parsecs")])
def test_timer_of_a_night_that_would_be_refused_is_refused_now(suite: str, budget: str) -> None:
    with pytest.raises((UsageError, SuiteError)):
        make_timer("01:30", suite, budget)


def test_a_suite_of_ones_own_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nrecipes = ["canary-dense"]\n')
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "mine.toml") in make_timer("01:30", "mine.toml", "90m").command


def test_deployed_files_are_what_the_command_writes() -> None:
    assert (DEPLOY / f"{UNIT}.service").read_text() == service(TIMER)
    assert (DEPLOY / f"{UNIT}.timer").read_text() == timer_unit(TIMER)
    assert cron_line(TIMER) in (DEPLOY / "sparkproof.cron").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_itself_finds_no_fault_in_the_units(tmp_path: Path) -> None:
    program = tmp_path / "my program 100%"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    timer = Timer((str(program), "nightly", "--budget", "6h"), "01:30", (("SPARKPROOF_HOME", "/data/s p%"),))
    files = write_units(tmp_path / "units", {f"{UNIT}.service": service(timer), f"{UNIT}.timer": timer_unit(timer)})
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, files)], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if UNIT in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_units_go_where_the_user_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/cfg")
    assert units_folder() == Path("/cfg/systemd/user")
