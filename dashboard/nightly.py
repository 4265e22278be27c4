"""What is known of the nights: the last session, and when the timer starts the next one.

Trap: a page that says "next run 02:00" of a timer that nobody installed. Rule: only what the files of the nightly runner and of systemd say
is told, and their absence is told, too. The dashboard starts nothing and asks no service.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

_STATE = "nightly.json"
_TIMER = Path("systemd") / "user" / "sparkproof-nightly.timer"
_AT = re.compile(r"^OnCalendar=\*-\*-\* (?P<hour>[01][0-9]|2[0-3]):(?P<minute>[0-5][0-9])", re.MULTILINE)
_MOST_BYTES = 100_000


@dataclass(frozen=True)
class Nights:
    """None: not known. `began_at` and `self_check_at` are ISO 8601; `next_at` is in this machine's own time."""

    began_at: str | None
    finished: bool | None
    self_check_at: str | None
    next_at: datetime | None


def nights(root: Path, now: datetime) -> Nights:
    """Read what there is below the store's folder and in this user's timers; `now` has this machine's time zone."""
    state = _state(root / _STATE)
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Nights(
        _text(state.get("began_at")), _flag(state.get("finished")), _text(state.get("last_self_check_at")), _next(config / _TIMER, now)
    )


def _state(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            state = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _next(timer: Path, now: datetime) -> datetime | None:
    try:
        with timer.open(encoding="utf-8", errors="replace") as file:
            found = _AT.search(file.read(_MOST_BYTES))
    except OSError:
        return None
    if found is None:
        return None
    today = now.replace(hour=int(found["hour"]), minute=int(found["minute"]), second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)
