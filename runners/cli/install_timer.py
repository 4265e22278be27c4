"""`sparkproof install-timer`: start `sparkproof nightly` every night, by systemd or by a cron line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from results.redact import plain
from runners.cli.nightly import duration
from runners.cli.shell import errors_shown, out, print_json, shown
from runners.errors import InfrastructureError, UsageError
from runners.nightly.timer import UNIT, Timer, checked_words, cron_line, service, timer_unit
from suites.suite_files import suite_for

_KEPT = ("SPARKPROOF_HOME", "SPARKPROOF_CACHE", "SPARKPROOF_ALARMS", "SPARKPROOF_DROP_CACHES", "SPARKPROOF_PROBE")
_TIMEOUT_S = 60.0
_CHECKOUT = Path(__file__).resolve().parents[2]


def install_timer(
    user: Annotated[bool, typer.Option("--user", help="Install for this user (the only way offered; no root needed).")] = False,
    at: Annotated[str, typer.Option(help="Local time of day, HH:MM.")] = "01:30",
    suite: Annotated[str, typer.Option(help="Suite of the night.")] = "nightly",
    budget: Annotated[str, typer.Option(help="Time that a night may use.")] = "6h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print units and cron line; write nothing.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a systemd service and timer for this user and enable the timer.

    The units keep SPARKPROOF_HOME, SPARKPROOF_CACHE and SPARKPROOF_ALARMS as they are now; secrets belong into
    ~/.config/sparkproof/nightly.env.

    Examples:

      sparkproof install-timer --user --at 02:00 --budget 5h

      sparkproof install-timer --dry-run
    """
    with errors_shown():
        timer = make_timer(at, suite, budget)
        files = {f"{UNIT}.service": service(timer), f"{UNIT}.timer": timer_unit(timer)}
        if dry_run or not user:
            if not user and not dry_run:
                raise UsageError("say --user to install the timer for yourself.", todo="Or --dry-run to see units and cron line.")
            _show(files, cron_line(timer), json_)
            return
        folder = units_folder()
        written = write_units(folder, files)
        problem = enable()
        if json_:
            print_json({"written": [str(path) for path in written], "enabled": problem is None, "problem": problem})
        else:
            for path in written:
                out.print(shown(f"wrote {path}"), markup=False)
            out.print(shown("enabled" if problem is None else problem), markup=False)
        if problem is not None:
            raise InfrastructureError(
                f"the timer is written but not enabled: {problem}", todo=f"systemctl --user enable --now {UNIT}.timer"
            )


def make_timer(at: str, suite: str, budget: str) -> Timer:
    """The timer for this installation. Raises UsageError or SuiteError for what the night would refuse: nobody is there to read it then."""
    suite_for(suite)
    duration(budget)
    if suite.endswith(".toml"):
        suite = str(Path(suite).expanduser().absolute())
    environment = tuple((name, os.environ[name]) for name in _KEPT if os.environ.get(name))
    program = Path(sys.executable).with_name("sparkproof")
    start = (str(program),) if program.exists() else (sys.executable, "-m", "runners.cli.main")
    checkout = None if program.exists() else str(_CHECKOUT)
    command = checked_words((*start, "nightly", "--suite", suite, "--budget", budget))
    checked_words([*(value for _, value in environment), checkout or ""])
    return Timer(command, at, environment, checkout)


def units_folder() -> Path:
    """Where a user's own units are (systemd.unit(5))."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def write_units(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write the unit files. Raises InfrastructureError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InfrastructureError(f"the units cannot be written: {error.strerror}", where=str(folder)) from error
    return [folder / name for name in files]


def enable() -> str | None:
    """Let systemd read the units and enable the timer; why not, if it does not."""
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        return "there is no systemd here; use the cron line of --dry-run"
    for arguments in (("daemon-reload",), ("enable", "--now", f"{UNIT}.timer")):
        try:
            done = subprocess.run([systemctl, "--user", *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return f"systemctl cannot be run: {plain(str(error), 200)}"
        if done.returncode != 0:
            return f"systemctl --user {' '.join(arguments)}: {plain(done.stderr.strip(), 300) or f'exit code {done.returncode}'}"
    return None


def _show(files: dict[str, str], cron: str, json_: bool) -> None:
    if json_:
        print_json({"files": files, "cron": cron})
        return
    for name, text in files.items():
        out.print(shown(f"# {name}\n{text}"), markup=False, soft_wrap=True)
    out.print(shown(f"# or, without systemd, a line for `crontab -e`\n{cron}"), markup=False, soft_wrap=True)
