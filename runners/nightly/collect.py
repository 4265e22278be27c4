"""Engine environments that nobody used for longest go when they take more disk than they may.

Trap: every release leaves 5 GB behind, and one night every install fails because the disk is full; or the clean-up removes the environment
of the pinned anchor and the next session has no control. Rule: least recently used first, as the store saw them used; never the anchor's,
never one that tonight needs, never one without our stamp, never while its lock is held.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from results.store import Store
from runners.envs.maker import STAMP

_MOST_STAMP_BYTES = 4 << 20


@dataclass(frozen=True)
class Kept:
    """One complete environment. `spec` as in `vllm==0.32.0`; `bytes` what its files take on disk; `used_at` when a boot last used it."""

    root: Path
    spec: str
    bytes: int
    used_at: datetime


@dataclass(frozen=True)
class Removed:
    """What was removed, and what it took (bytes that other environments share by hard links are counted for each)."""

    removed: tuple[str, ...]
    freed_bytes: int
    left_bytes: int


def to_remove(environments: Collection[Kept], quota_bytes: int, spared: Collection[str]) -> list[Kept]:
    """The environments to remove, least recently used first, until the rest fits; those of `spared` specs stay whatever they take."""
    over = sum(e.bytes for e in environments) - quota_bytes
    chosen: list[Kept] = []
    for environment in sorted((e for e in environments if e.spec not in spared), key=lambda e: (e.used_at, e.spec)):
        if over <= 0:
            break
        chosen.append(environment)
        over -= environment.bytes
    return chosen


def stamps_in(folder: Path) -> frozenset[Path]:
    """The stamps of all complete environments; quick, where measuring them reads hundreds of thousands of directory entries."""
    return frozenset(folder.glob(f"*/{STAMP}"))


def find_environments(folder: Path, used: Mapping[str, datetime]) -> list[Kept]:
    """Every complete environment of an engine below `folder`. `used`: digest of a build to its last boot; without, its stamp's time."""
    found = []
    for stamp in sorted(stamps_in(folder)):
        try:
            with stamp.open("rb") as file:
                data = json.loads(file.read(_MOST_STAMP_BYTES))
            build, made = data["build"], datetime.fromtimestamp(stamp.stat().st_mtime, UTC)
            spec, digest = f"{build['engine']}=={build['version']}", str(build["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not ours, or half made: the maker deals with it
        if stamp.parent.is_symlink():
            continue
        found.append(Kept(stamp.parent, spec, _bytes_of(stamp.parent), max(made, used.get(digest, made))))
    return found


def last_uses(store: Store) -> dict[str, datetime]:
    """When each build was last booted, by its digest."""
    if not store.database.exists():
        return {}
    rows = store.query("SELECT build_id, max(started_at) AS at FROM runs WHERE build_id IS NOT NULL GROUP BY build_id")
    return {row["build_id"]: row["at"].astimezone(UTC) for row in rows}


def collect(folder: Path, quota_bytes: int, spared: Collection[str], used: Mapping[str, datetime]) -> Removed:
    """Remove what is over the quota. An environment that another process is making or checking is left alone."""
    environments = find_environments(folder, used)
    removed = [e for e in to_remove(environments, quota_bytes, spared) if _remove(e.root)]
    freed = sum(e.bytes for e in removed)
    return Removed(tuple(e.spec for e in removed), freed, sum(e.bytes for e in environments) - freed)


def _remove(root: Path) -> bool:
    lock = FileLock(f"{root}.lock")
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        return False
    try:
        (root / STAMP).unlink()  # first: without it nobody takes the rest for an environment
        shutil.rmtree(root)
    except OSError:
        return False
    finally:
        lock.release()
    return True


def _bytes_of(root: Path) -> int:
    """Disk blocks of every file below `root`, one inode once. Plain strings: an environment has tens of thousands of files."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for folder, _, files in os.walk(root):
        for name in files:
            try:
                status = os.lstat(f"{folder}/{name}")
            except OSError:
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total
