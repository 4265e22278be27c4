"""Boot folders of other nodes: each run id once, and never two machines under one name.

Trap: two Sparks whose owners both call them "spark" become one line of a chart, a cloned disk gives two machines one id, and the process
record of a boot elsewhere makes the next start here look for its process. Rule: before anything is copied every folder is read and its node
compared with those known here; a name or id that means two machines is refused with what differs; only finished boots are taken, and of
their files only results, log and serve script.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from results.boot_folder import BootContent, BootFolder, BootSummary, all_folders
from results.errors import FolderError, StoreError
from results.kept_files import KeptFiles
from results.kept_records import TIMES
from results.records import BOOT_ROWS, NodeRecord, RunRecord
from results.store import Store

_MOST_BYTES = 1 << 30
_FILES = ("server.log", "serve.sh", *(rows.file for rows in BOOT_ROWS.values()))
_MACHINE = ("gpu_name", "compute_capability", "cpu_model", "cpu_count")
"""What cannot change without becoming another machine; memory sizes and versions can."""


class NodeConflict(StoreError):
    """One name or id for two machines."""


@dataclass(frozen=True)
class ImportReport:
    """Run ids by what became of them; `skipped` and `conflicting` map an id or file to the reason."""

    imported: tuple[str, ...] = ()
    already_here: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    conflicting: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    kept: int = 0
    """Sessions, claims and notes that were new here."""
    cut_lines: int = 0
    not_finite: int = 0


@dataclass(frozen=True)
class _Counted:
    """What of one folder could not be used (results/boot_folder.py)."""

    skipped_lines: int
    not_finite: int


def boots_below(path: Path) -> Path | None:
    """The folder of boot folders that `path` means: itself, its `boots`, or the parent of a single boot; None if it is neither."""
    if (path / "boots").is_dir():
        return path / "boots"
    if (path / "run.json").is_file():
        return path.parent
    return path if all_folders(path) else None


def import_boots(store: Store, source: Path, *, label: str | None = None) -> ImportReport:
    """Copy the boots of another store, or one boot, into this one and store them. Importing twice changes nothing.

    `label` renames the imported node. Raises NodeConflict before anything is copied, FolderError when there is nothing to import.
    """
    root = boots_below(source)
    if root is None:
        raise FolderError(
            "no boot folders here", where=str(source), todo="Give a store's folder, its boots folder, or an export in Parquet."
        )
    single = source if (source / "run.json").is_file() else None
    folders = [folder for folder in all_folders(root) if single is None or folder.path == single]
    summaries, skipped = _summaries(folders)
    finished = {run_id: one for run_id, one in summaries.items() if one.run.outcome is not None}
    new, here, conflicting = _against_store(store, finished)
    _check_nodes(store, [finished[run_id].node for run_id in new], label)
    copied = _copy(store, [folder for folder in folders if folder.run_id in new], label, skipped)
    kept = _import_kept(store, source) if single is None else 0
    report = store.ingest_pending()
    return ImportReport(
        imported=tuple(run_id for run_id in copied if run_id not in report.skipped),
        already_here=tuple(here),
        unfinished=tuple(sorted(set(summaries) - set(finished))),
        conflicting=conflicting,
        skipped={**skipped, **{name: why for name, why in report.skipped.items() if name in copied}},
        kept=kept,
        cut_lines=sum(content.skipped_lines for content in copied.values()),
        not_finite=sum(content.not_finite for content in copied.values()),
    )


def _summaries(folders: Iterable[BootFolder]) -> tuple[dict[str, BootSummary], dict[str, str]]:
    summaries: dict[str, BootSummary] = {}
    skipped: dict[str, str] = {}
    for folder in folders:
        try:
            summaries[folder.run_id] = folder.summary()
        except FolderError as error:
            skipped[folder.run_id] = str(error)
    return summaries, skipped


def _against_store(store: Store, found: Mapping[str, BootSummary]) -> tuple[list[str], list[str], dict[str, str]]:
    """(run ids that are new, those that are here already, those that mean another boot here)."""
    new: list[str] = []
    here: list[str] = []
    conflicting: dict[str, str] = {}
    for run_id, summary in found.items():
        mine = BootFolder(store.boots, run_id)
        if not mine.path.exists():
            new.append(run_id)
            continue
        try:
            differing = _differing(summary.run, mine.summary().run)
        except FolderError as error:
            conflicting[run_id] = f"the boot of that id here cannot be read: {error}"
            continue
        if differing:
            conflicting[run_id] = f"another boot of that id is here already; they differ in {', '.join(differing[:6])}"
        else:
            here.append(run_id)
    return new, here, conflicting


def _differing(one: RunRecord, other: RunRecord) -> list[str]:
    """Names of the fields that differ; a moment may be written in several ways."""
    names = [field.name for field in dataclasses.fields(one) if getattr(one, field.name) != getattr(other, field.name)]
    return [name for name in names if name not in TIMES or _moment(getattr(one, name)) != _moment(getattr(other, name))]


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _check_nodes(store: Store, nodes: Sequence[NodeRecord], label: str | None) -> None:
    known = _known_nodes(store)
    incoming = {node.node_id: node for node in nodes}
    if label is not None and len(incoming) > 1:
        raise NodeConflict(f"{len(incoming)} nodes cannot all be called {label!r}", todo="Import them one by one, or without a new label.")
    named = [dataclasses.replace(node, label=label or node.label) for node in incoming.values()]
    for node in named:
        for other in [*known, *(one for one in named if one is not node)]:
            _refuse_one_name_for_two(node, other)


def _known_nodes(store: Store) -> list[NodeRecord]:
    if not store.database.exists():
        return []
    rows = store.query("SELECT node_id, label, gpu_name, compute_capability, cpu_model, cpu_count FROM nodes")
    return [NodeRecord(**row) for row in rows]


def _refuse_one_name_for_two(node: NodeRecord, other: NodeRecord) -> None:
    if node.node_id != other.node_id:
        if node.label == other.label:
            raise NodeConflict(
                f"two nodes are called {node.label!r}: {other.node_id} and {node.node_id}",
                todo="Import again with --label NEW-NAME to call the imported one otherwise.",
            )
        return
    changed = [
        f"{name} ({mine} here, {theirs} there)"
        for name in _MACHINE
        if None not in (mine := getattr(other, name), theirs := getattr(node, name)) and mine != theirs
    ]
    if changed:
        raise NodeConflict(
            f"two machines have the node id {node.node_id}: {', '.join(changed)}",
            todo="They were probably cloned from one disk: give one of them a new /etc/machine-id and measure there again.",
        )


def _copy(store: Store, folders: Sequence[BootFolder], label: str | None, skipped: dict[str, str]) -> dict[str, _Counted]:
    """What was copied, by run id."""
    done: dict[str, _Counted] = {}
    for folder in folders:
        try:
            content = folder.read()
            _copy_folder(store, folder, content, label)
        except FolderError as error:
            skipped[folder.run_id] = str(error)
            continue
        except OSError as error:
            raise StoreError(
                f"cannot copy {folder.run_id}: {error.strerror}", where=str(store.boots), todo="Free space on that disk."
            ) from error
        done[folder.run_id] = _Counted(content.skipped_lines, content.not_finite)
    return done


def _copy_folder(store: Store, folder: BootFolder, content: BootContent, label: str | None) -> None:
    """All files beside the final name first, so that a copy that breaks off leaves no boot."""
    half = store.boots / f".importing-{folder.run_id}-{os.getpid()}"
    half.mkdir(parents=True)
    try:
        for name in _FILES:
            path = folder.path / name
            if path.is_symlink() or not path.is_file():
                continue
            if path.stat().st_size > _MOST_BYTES:
                raise FolderError(f"{name} is larger than {_MOST_BYTES:,} bytes", where=str(path))
            shutil.copyfile(path, half / name)
        node = dataclasses.replace(content.summary.node, label=label or content.summary.node.label)
        target = BootFolder(store.boots, folder.run_id)
        target.path = half
        target.write_summary(dataclasses.replace(content.summary, node=node))
        half.rename(store.boots / folder.run_id)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise


def _import_kept(store: Store, source: Path) -> int:
    """Sessions, claims and notes of another store that are not here; one that is here under its id stays as it is here."""
    theirs, _ = KeptFiles(source).read_all()
    mine = {(type(record), store.kept.id_of(record)) for record in store.kept.read_all()[0]}
    new = [record for record in theirs if (type(record), store.kept.id_of(record)) not in mine]
    for record in new:
        store.kept.write(record)
    return len(new)
