"""Which processes belong to a boot, and how to signal exactly those.

Trap: engines leave their process group, re-parent to init and rename themselves, and an orphaned `EngineCore` keeps 60 GB; a search by
name would end a neighbour's server instead. Rule: a process is ours only by proof: it is in the group or session of our server while
that server still holds its number, it descends from a proven one, or it was started with our mark in its environment. Processes
older than the runner that launched the server are never ours.

Renaming erases the mark: `setproctitle` (used by both engines, 1.3.8) writes the title over the memory that `/proc/PID/environ` shows.
Its own variable SPT_NOENV=1 stops that, so the launcher sets it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import psutil

from runners.process.table import ProcessStat, carries, read_stat, read_table

MARK = "SPARKPROOF_RUN_ID"
"""Environment variable that every process of a boot is started with; its value is the run id."""

_MOST_LOOKS = 5


@dataclass(frozen=True)
class Target:
    """Whose processes are meant. `pid` is the server (its own group and session leader), None when it was never started.

    `since_ticks` is when the launching runner started: anything older cannot be ours.
    """

    run_id: str
    since_ticks: int
    pid: int | None = None
    start_ticks: int | None = None


@dataclass(frozen=True)
class Members:
    """`proven` are ours. `doubtful` share the group number of a server that is gone: perhaps ours, never to be touched."""

    proven: tuple[ProcessStat, ...]
    doubtful: tuple[ProcessStat, ...] = ()

    @property
    def alive(self) -> tuple[ProcessStat, ...]:
        """The proven ones that still run (zombies hold nothing but their number)."""
        return tuple(p for p in self.proven if p.alive)

    @property
    def pids(self) -> frozenset[int]:
        """Numbers of the proven ones that still run."""
        return frozenset(p.pid for p in self.alive)


def find_members(
    target: Target, table: Mapping[int, ProcessStat], marked: AbstractSet[int], never: AbstractSet[int] = frozenset()
) -> Members:
    """Sort a process table into ours, doubtful and (left out) not ours.

    `marked` are the numbers that carry the mark. `never` are not ours whatever they look like: the runner itself and its ancestors.
    """
    candidates = {pid: p for pid, p in table.items() if p.start_ticks >= target.since_ticks and pid not in never}
    leader = table.get(target.pid) if target.pid is not None else None
    leader_holds_number = leader is not None and leader.start_ticks == target.start_ticks
    grouped = {pid for pid, p in candidates.items() if target.pid is not None and target.pid in (p.pgid, p.sid)}
    if leader is not None and not leader_holds_number:
        grouped = set()  # somebody else leads a group of that number now
    proven = {pid for pid in candidates if (leader_holds_number and pid in grouped) or pid in marked}
    proven |= _descendants(proven, candidates)
    order = sorted(proven, key=lambda pid: candidates[pid].start_ticks)
    return Members(tuple(candidates[p] for p in order), tuple(candidates[p] for p in sorted(grouped - proven) if candidates[p].alive))


def _descendants(roots: set[int], table: Mapping[int, ProcessStat]) -> set[int]:
    children: dict[int, list[int]] = {}
    for p in table.values():
        children.setdefault(p.ppid, []).append(p.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def members(target: Target) -> Members:
    """The processes of this boot now: group, session, descendants, and whoever carries our mark (orphans included)."""
    for _ in range(_MOST_LOOKS):
        table = read_table()
        marked = {pid for pid, p in table.items() if p.start_ticks >= target.since_ticks and carries(pid, MARK, target.run_id)}
        unmarked = (p for pid, p in table.items() if p.start_ticks >= target.since_ticks and pid not in marked and p.alive)
        if all(_still_alive(p) for p in unmarked):
            break  # else one ended before its mark was read, and may have left a child that is not in the table
    return find_members(target, table, marked, _self_and_ancestors(table))


def _still_alive(process: ProcessStat) -> bool:
    now = read_stat(process.pid)
    return now is not None and now.alive and now.start_ticks == process.start_ticks


def _self_and_ancestors(table: Mapping[int, ProcessStat]) -> frozenset[int]:
    found: set[int] = set()
    pid = os.getpid()
    while pid and pid not in found:
        found.add(pid)
        pid = table[pid].ppid if pid in table else 0
    return frozenset(found)


def send(process: ProcessStat, signal_number: int) -> bool:
    """Signal this very process; False if it is gone, or if its number belongs to another process by now.

    Raises psutil.AccessDenied for a process that we may not signal.
    """
    try:
        handle = psutil.Process(process.pid)  # remembers its own start time, and refuses if the number is reused before it signals
        now = read_stat(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        handle.send_signal(signal_number)
    except psutil.NoSuchProcess:
        return False
    return True


def describe(processes: Iterable[ProcessStat]) -> str:
    """`EngineCore (pid 12), python (pid 13)`, at most five, for a sentence."""
    named = [f"{p.name} (pid {p.pid})" for p in processes]
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    return ", ".join(named[:5]) + more
