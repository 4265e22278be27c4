"""Models on a Hugging Face hub: resolve them, say what a download costs, fetch it, and prove that a cached copy is whole.

Traps: 60 GB start to flow into a full disk; a branch moves between two boots; a download that was cut off looks like a model; a repository
holds the same weights three times in other formats. Rules: a revision is resolved to a commit first; nothing is fetched before its size and
the free space were said; only what engines load is fetched; a snapshot counts only if every wanted file is there in full size.

The token is huggingface_hub's own business (its variables and store): it is never read, stored or shown here. Finished files survive an
interruption; within one run a broken connection is resumed inside a file, after it a cut-off file is fetched again from its beginning
(huggingface_hub 2.x keeps no partial files).
"""

from __future__ import annotations

import errno
import glob
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

import huggingface_hub
from huggingface_hub import constants, errors
from huggingface_hub.utils.tqdm import tqdm as hub_tqdm

from results.redact import plain, redact
from runners.errors import InfrastructureError, UsageError

RESERVE_BYTES = 2 << 30
"""Free space that must remain after a download: the server log and the results go to a disk too, often the same one."""

_TRANSPORT_ERRORS = (errors.HTTPError, OSError)  # type: ignore[attr-defined]  # whichever HTTP library the installed hub client uses
_OTHER_WEIGHTS = (".bin", ".pth", ".pt", ".ckpt", ".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite", ".gguf")
_COMMIT_LENGTH = 40


@dataclass(frozen=True)
class HubFile:
    """One file of a snapshot; `present` if the cache holds it in full."""

    name: str
    size_bytes: int
    present: bool


@dataclass(frozen=True)
class DownloadPlan:
    """What serving `repo_id` at `commit` needs, and what of it must be fetched. `free_bytes` is the space on the cache's disk.

    `revision` is the branch, tag or commit that was asked for.
    """

    repo_id: str
    revision: str
    commit: str
    files: tuple[HubFile, ...]
    cache_folder: Path
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        """Size of all wanted files."""
        return sum(f.size_bytes for f in self.files)

    @property
    def weight_bytes(self) -> int:
        """Size of the weight files alone: what the node's memory must hold at least (see `memory_fit`)."""
        return sum(f.size_bytes for f in self.files if f.name.endswith((".safetensors", ".bin", ".gguf")))

    @property
    def fetch_bytes(self) -> int:
        """Size of what is not here yet."""
        return sum(f.size_bytes for f in self.files if not f.present)

    @property
    def fits(self) -> bool:
        """Whether the disk has room for it and `RESERVE_BYTES` more."""
        return self.fetch_bytes == 0 or self.fetch_bytes + RESERVE_BYTES <= self.free_bytes

    @property
    def folder(self) -> Path:
        """The snapshot folder that an engine loads; whole once the plan is fetched."""
        return _snapshots(self.cache_folder, self.repo_id) / self.commit

    def sentence(self) -> str:
        """Size, files and free space in one line, to be shown before anything is fetched."""
        missing = sum(not f.present for f in self.files)
        where = f"{self.repo_id}@{self.commit[:12]}"
        if not missing:
            return f"{where}: all {len(self.files)} files ({in_gb(self.total_bytes)}) are in {self.cache_folder}."
        return (
            f"{where}: {in_gb(self.fetch_bytes)} to fetch ({missing} of {len(self.files)} files, {in_gb(self.total_bytes)} in all) "
            f"into {self.cache_folder}, where {in_gb(self.free_bytes)} are free."
        )


@dataclass(frozen=True)
class Snapshot:
    """A whole local copy of `repo_id` at `commit`."""

    repo_id: str
    commit: str
    folder: Path


def wanted(names: Iterable[str]) -> tuple[str, ...]:
    """The files that an engine needs. With safetensors at the top level, the same weights in other formats or folders are left out."""
    kept = [name for name in names if not name.startswith(".git")]
    if not any("/" not in name and name.endswith(".safetensors") for name in kept):
        return tuple(kept)
    merged = any(name.endswith(".safetensors") and "/" not in name and not name.startswith("consolidated") for name in kept)
    return tuple(name for name in kept if not _is_duplicate(name, merged))


def _is_duplicate(name: str, merged: bool) -> bool:
    if name.endswith(_OTHER_WEIGHTS):
        return True
    if not name.endswith((".safetensors", ".safetensors.index.json")):
        return False
    return "/" in name or (merged and name.startswith("consolidated"))


def plan_download(
    repo_id: str,
    revision: str | None = None,
    *,
    cache_folder: Path | None = None,
    endpoint: str | None = None,
    free_bytes: Callable[[Path], int] | None = None,
) -> DownloadPlan:
    """Ask the hub for the commit of `revision` (default branch if None) and its files. Nothing is fetched.

    `endpoint` and `cache_folder` default to huggingface_hub's (HF_ENDPOINT, HF_HUB_CACHE, HF_HOME). Raises UsageError (no such repository,
    revision, or no access) or InfrastructureError (no hub reachable, no sizes given).
    """
    cache = cache_folder or Path(constants.HF_HUB_CACHE)
    api = huggingface_hub.HfApi(endpoint=endpoint)
    try:
        info = api.model_info(repo_id, revision=revision, files_metadata=True, timeout=30)
    except (*_TRANSPORT_ERRORS, ValueError) as error:
        _explain(error, repo_id, revision)
    sizes = {s.rfilename: s.size for s in info.siblings or ()}
    names = wanted(_safe(sizes, repo_id))
    unsized = [name for name in names if sizes[name] is None]
    if info.sha is None or not _is_commit(info.sha) or not names or unsized:
        what = f"no size of {plain(unsized[0], 80)}" if unsized else "no commit or no files"
        raise InfrastructureError(f"the hub gives {what} for this model.", where=repo_id, todo="Try again, or give a checkpoint folder.")
    folder = _snapshots(cache, repo_id) / info.sha
    files = tuple(HubFile(name, size, _present(folder / name, size)) for name in names if (size := sizes[name]) is not None)
    return DownloadPlan(repo_id, revision or constants.DEFAULT_REVISION, info.sha, files, cache, (free_bytes or _free_bytes)(cache))


def fetch(plan: DownloadPlan, progress: Callable[[str], None], *, endpoint: str | None = None, workers: int = 4) -> Snapshot:
    """Say the plan, fetch what is missing, and prove that every file is there in full size.

    `progress` gets a line at the beginning and whenever another percent has arrived. Raises InfrastructureError (no room, no network, a
    file that is not as announced) or UsageError (no access). Interrupted or failed, it goes on from the last finished file next time.
    """
    progress(plan.sentence())
    if not plan.fits:
        message = f"{in_gb(plan.fetch_bytes)} and {in_gb(RESERVE_BYTES)} of reserve do not fit into {in_gb(plan.free_bytes)} of free space."
        raise InfrastructureError(message, where=str(plan.cache_folder), todo="Free some, or set HF_HOME to a larger disk.")
    if plan.fetch_bytes:
        try:
            huggingface_hub.snapshot_download(
                plan.repo_id,
                revision=plan.commit,
                cache_dir=plan.cache_folder,
                allow_patterns=[glob.escape(f.name) for f in plan.files],
                max_workers=workers,
                tqdm_class=_bar(plan.fetch_bytes, progress),
                endpoint=endpoint,
            )
        except (*_TRANSPORT_ERRORS, ValueError) as error:
            _explain(error, plan.repo_id, plan.commit)
    wrong = [f.name for f in plan.files if not _present(plan.folder / f.name, f.size_bytes)]
    if wrong:
        message = f"{len(wrong)} file(s) are missing or not of the announced size, {plain(wrong[0], 120)} among them."
        raise InfrastructureError(message, where=str(plan.folder), todo="Delete that folder and try again.")
    if not _is_commit(plan.revision) and _is_relative(plan.revision):
        _remember(plan.folder.parents[1] / "refs" / plan.revision, plan.commit)
    return Snapshot(plan.repo_id, plan.commit, plan.folder)


def cached(repo_id: str, revision: str | None = None, *, cache_folder: Path | None = None) -> Snapshot | None:
    """The whole copy of `revision` that the cache holds, without any network; None if there is none, or if it is not provably whole."""
    repo = _snapshots(cache_folder or Path(constants.HF_HUB_CACHE), repo_id).parent
    commit = revision if revision is not None and _is_commit(revision) else _cached_commit(repo, revision or constants.DEFAULT_REVISION)
    if commit is None:
        return None
    folder = repo / "snapshots" / commit
    return None if missing_files(repo_id, folder) else Snapshot(repo_id, commit, folder)


def missing_files(repo_id: str, folder: Path) -> tuple[str, ...]:
    """What a snapshot folder lacks, by the file list that huggingface_hub kept of that commit, else by its own index of weights."""
    try:
        tree = huggingface_hub.get_cached_repo_tree(repo_id, revision=folder.name, cache_dir=folder.parents[2])
        sizes = {entry.path: entry.size for entry in tree}
        return tuple(name for name in wanted(sizes) if not _present(folder / name, sizes[name]))
    except (errors.CachedRepoTreeNotFoundError, OSError, ValueError):
        return _missing_by_index(folder)


def resolve(
    repo_id: str,
    revision: str | None,
    progress: Callable[[str], None],
    *,
    may_download: bool,
    cache_folder: Path | None = None,
    endpoint: str | None = None,
) -> Snapshot:
    """A whole local copy: the cache for a pinned commit, else what the hub says now, else (no hub) the cache.

    Raises UsageError (no access; or something must be fetched and `may_download` is False) or InfrastructureError.
    """
    local = cached(repo_id, revision, cache_folder=cache_folder)
    if local is not None and revision == local.commit:
        return local
    try:
        plan = plan_download(repo_id, revision, cache_folder=cache_folder, endpoint=endpoint)
    except InfrastructureError as error:
        if local is None:
            raise
        progress(f"{error.message} Using the copy of {repo_id} at {local.commit[:12]} from the cache.")
        return local
    if plan.fetch_bytes and not may_download:
        raise UsageError(f"not downloaded. {plan.sentence()}", todo="Allow it with --download, or name a revision that is in the cache.")
    return fetch(plan, progress, endpoint=endpoint)


def in_gb(size: int) -> str:
    """`60.8 GiB`, or MiB below 1 GiB."""
    return f"{size / 2**30:,.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:,.1f} MiB"


def _snapshots(cache: Path, repo_id: str) -> Path:
    return cache.expanduser() / f"models--{repo_id.replace('/', '--')}" / "snapshots"


def _is_commit(text: str) -> bool:
    return len(text) == _COMMIT_LENGTH and all(c in "0123456789abcdef" for c in text)


def _cached_commit(repo: Path, revision: str) -> str | None:
    if not _is_relative(revision):
        return None
    try:
        commit = (repo / "refs" / revision).read_text()[: _COMMIT_LENGTH + 1].strip()
    except (OSError, UnicodeDecodeError):
        return None
    return commit if _is_commit(commit) else None


def _remember(ref: Path, commit: str) -> None:
    """Note which commit a branch was, where the cache's own layout keeps it (`refs/`): without a hub it is found there."""
    draft = ref.with_name(f".{ref.name}.new")
    try:
        ref.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(commit)
        draft.replace(ref)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write: {error.strerror}.", where=str(ref), todo="Set HF_HOME to a folder of your own."
        ) from error


def _is_relative(name: str) -> bool:
    """Whether a name from outside stays inside the folder that it is put in."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def _safe(names: Iterable[str], repo_id: str) -> Sequence[str]:
    names = list(names)
    bad = [name for name in names if not _is_relative(name)]
    if bad:
        message = f"the hub names a file outside of the model: {plain(bad[0], 80)!r}."
        raise InfrastructureError(message, where=repo_id, todo="Do not use it.")
    return names


def _present(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _missing_by_index(folder: Path) -> tuple[str, ...]:
    if not (folder / "config.json").exists():
        return ("config.json",)
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            shards = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return (index.name,)
        return tuple(str(s) for s in shards if not _is_relative(str(s)) or not (folder / str(s)).exists())
    return () if any(folder.glob("*.safetensors")) else ("model.safetensors",)


def _free_bytes(cache: Path) -> int:
    folder = cache.expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _bar(total_bytes: int, progress: Callable[[str], None]) -> type[Any]:
    """A progress bar class for huggingface_hub that prints nothing and reports each new percent of `total_bytes` to `progress`."""
    lock = threading.Lock()
    seen = {"bytes": 0, "percent": 0}

    class Bar(hub_tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts_bytes = kwargs.get("name") == "huggingface_hub.snapshot_download"
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            if self._counts_bytes:
                with lock:
                    seen["bytes"] += int(n or 0)
                    percent = min(100, 100 * seen["bytes"] // total_bytes)
                    news = percent > seen["percent"]
                    seen["percent"] = percent
                if news:
                    progress(f"{percent} % of {in_gb(total_bytes)}")
            return None

    return Bar


def _explain(error: Exception, repo_id: str, revision: str | None) -> NoReturn:
    """Turn what huggingface_hub raised into words and whose fault it is."""
    at = repo_id if revision is None else f"{repo_id}@{revision}"
    match error:
        case errors.GatedRepoError():
            todo = "Accept its terms on its page with your account, then run `hf auth login` or set HF_TOKEN."
            raise UsageError("is gated: the hub does not let this account read it.", where=at, todo=todo) from error
        case errors.RevisionNotFoundError():
            raise UsageError("has no such revision.", where=at, todo="Give a branch, tag or commit of that repository.") from error
        case errors.RepositoryNotFoundError():
            todo = "Check the spelling; for a private one run `hf auth login` or set HF_TOKEN."
            raise UsageError("does not exist on the hub, or is private.", where=at, todo=todo) from error
        case errors.HFValidationError():
            raise UsageError("is not the id of a model: owner/name was expected.", where=plain(at, 120)) from error
        case errors.OfflineModeIsEnabled():
            todo = "Unset HF_HUB_OFFLINE, or copy the model into the cache."
            raise InfrastructureError("cannot be looked up: HF_HUB_OFFLINE is set.", where=at, todo=todo) from error
        case errors.HfHubHTTPError() if error.response.status_code in (401, 403):
            raise UsageError("the hub refuses the token.", where=at, todo="Check HF_TOKEN, or run `hf auth login` again.") from error
        case errors.HfHubHTTPError() if error.response.status_code == 429:
            todo = "Wait, or log in with `hf auth login`."
            raise InfrastructureError("the hub refuses: too many requests.", where=at, todo=todo) from error
        case OSError(errno=errno.ENOSPC):
            raise InfrastructureError("the disk is full.", where=at, todo="Free some space: finished files are kept.") from error
        case OSError(errno=errno.EACCES | errno.EROFS | errno.EPERM):
            message = f"cannot write: {os.strerror(error.errno or 0)}."
            where = str(error.filename or constants.HF_HUB_CACHE)
            raise InfrastructureError(message, where=where, todo="Set HF_HOME to a folder of your own.") from error
    said = plain(redact(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__), 200)
    todo = "Check the network and HF_ENDPOINT; finished files are kept."
    raise InfrastructureError(f"the hub cannot be reached or used: {said}.", where=at, todo=todo) from error
