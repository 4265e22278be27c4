"""What a night remembers on disk, so that it goes on where it was killed: its session, when it began, and the last self-check.

Trap: a state file that lists what is done disagrees with the store after a power cut. Rule: what is measured is read from the store alone;
this file holds only what the store cannot know, is replaced atomically, and if it is lost or damaged a new session begins.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from results.errors import StoreError

STATE_NAME = "nightly.json"
_MOST_BYTES = 100_000


@dataclass(frozen=True)
class NightState:
    """`session_id`, `began_at` (UTC, ISO 8601) and `machine_boot_id` of the last session; `finished` False while it runs or was killed.

    `last_self_check_at`: when the anchor was last measured against itself. `end_known`: somebody interrupted it, or its failure was told.
    """

    session_id: str | None = None
    began_at: str | None = None
    machine_boot_id: str | None = None
    finished: bool = True
    last_self_check_at: str | None = None
    end_known: bool = False

    def goes_on(self, now: datetime, budget: timedelta | None, machine_boot_id: str) -> bool:
        """Whether a session was cut off and may go on: same uptime of the machine, and its budget not over."""
        if self.finished or self.session_id is None or self.began_at is None or self.machine_boot_id != machine_boot_id:
            return False
        age = now - datetime.fromisoformat(self.began_at)
        return timedelta(0) <= age < (budget if budget is not None else _LONGEST)

    def self_check_due(self, now: datetime, every: timedelta) -> bool:
        """Whether the last self-check is that long ago, or never was."""
        return self.last_self_check_at is None or now - datetime.fromisoformat(self.last_self_check_at) >= every


_LONGEST = timedelta(hours=20)
"""A night without a budget goes on within this time; later it is another night."""
_ADAPTER: TypeAdapter[NightState] = TypeAdapter(NightState)


class StateFile:
    """Reads and writes the state below the store's folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / STATE_NAME

    def read(self) -> NightState:
        """The state; an empty one if there is none or it is damaged."""
        try:
            with self.path.open("rb") as file:
                state = _ADAPTER.validate_json(file.read(_MOST_BYTES))
            for moment in (state.began_at, state.last_self_check_at):
                if moment is not None and datetime.fromisoformat(moment).tzinfo is None:
                    return NightState()
        except (OSError, ValidationError, ValueError):
            return NightState()
        return state

    def write(self, state: NightState) -> None:
        """Replace the file. Raises StoreError when the disk refuses."""
        temporary = self.path.with_name(f".{STATE_NAME}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8") as file:
                json.dump(asdict(state), file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", where=str(self.path), todo="Free space on that disk.") from error

    def update(self, **changes: object) -> NightState:
        """Change some fields."""
        state = replace(self.read(), **changes)  # type: ignore[arg-type]
        self.write(state)
        return state
