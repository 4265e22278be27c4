"""The systemd units and the cron line that start a night. Pure text; `deploy/` holds the same with the defaults.

Traps: a timer that fires while the node is off is lost; a unit that systemd kills hard leaves an engine running; a percent sign in a path
is taken for a specifier. Rules: a missed night is made up for; stopping sends SIGTERM to the runner alone and waits for its teardown; only
one instance is ever active; every word is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from runners.errors import UsageError

UNIT = "sparkproof-nightly"
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
STOP_S = 300
"""Longest teardown, with a server of 100 GB that ignores SIGTERM."""


@dataclass(frozen=True)
class Timer:
    """When and how a night is started. `command` is the program and its arguments; `environment` lines go to the unit (no secrets)."""

    command: tuple[str, ...]
    at: str = "01:30"
    environment: tuple[tuple[str, str], ...] = ()
    folder: str | None = None
    """Where the command is started (absolute); None: it runs anywhere."""

    def __post_init__(self) -> None:
        if not _TIME.fullmatch(self.at):
            raise UsageError(f"{self.at[:20]!r} is no time of day.", todo="Write HH:MM, such as 01:30.")


def service(timer: Timer) -> str:
    """The service unit."""
    variables = "".join(f"Environment={quoted(f'{name}={value}')}\n" for name, value in timer.environment)
    folder = f"WorkingDirectory={timer.folder.replace('%', '%%')}\n" if timer.folder is not None else ""
    return f"""[Unit]
Description=Sparkproof: measure new releases of LLM engines on this node
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={" ".join(quoted(part) for part in timer.command)}
{folder}{variables}EnvironmentFile=-%E/sparkproof/nightly.env
# 1: something is confirmed broken or slower, which is told by the alarms and is no failure of the service.
SuccessExitStatus=1
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={STOP_S}
TimeoutStartSec=infinity
"""


def timer_unit(timer: Timer) -> str:
    """The timer unit."""
    return f"""[Unit]
Description=Sparkproof every night

[Timer]
OnCalendar=*-*-* {timer.at}:00
Persistent=true
RandomizedDelaySec=5min
Unit={UNIT}.service

[Install]
WantedBy=timers.target
"""


def cron_line(timer: Timer) -> str:
    """One line for `crontab -e`, where there is no systemd."""
    hour, minute = timer.at.split(":")
    variables = " ".join(f"{name}={shell_quoted(value)}" for name, value in timer.environment)
    folder = f"cd {shell_quoted(timer.folder)} && " if timer.folder is not None else ""
    command = folder + (f"{variables} " if variables else "") + " ".join(shell_quoted(part) for part in timer.command)
    return f"{int(minute)} {int(hour)} * * * {command}".replace("%", "\\%") + "\n"


def quoted(text: str) -> str:
    """A word of a unit file (systemd.syntax(7)): a percent sign and a dollar sign stand for themselves, spaces are kept."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if _PLAIN.fullmatch(text) else f'"{escaped}"'


def shell_quoted(text: str) -> str:
    """A word of a shell command."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def checked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Words that may stand in a unit file. Raises UsageError for a line break, which would begin another setting."""
    for word in words:
        if any(not c.isprintable() for c in word):
            raise UsageError(f"{word[:60]!r} holds a line break or control character.", todo="Use a path and options without them.")
    return tuple(words)
