"""Is this installation able to measure, and what should be done about it? Each check is one line with advice.

Trap: the first night fails at two in the morning because pip cannot reach its index, or the disk is full. Rule: everything that a night
needs is tried beforehand, cheaply; a check that could not be made says so and is never "ok".
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs
from uv import find_uv_bin

from results.boot_folder import all_folders
from results.errors import FolderError, StoreError
from results.records import HealthRecord, NodeRecord
from results.redact import plain, redact
from results.store import Store
from runners.envs.index import list_versions
from runners.envs.pip_settings import read_pip_settings
from runners.errors import SparkproofError
from runners.kept import kept_servers
from runners.launchers.docker_cli import Docker
from runners.node import health
from runners.node.kernel_log import KernelTail
from runners.node.lock import read_owner

State = Literal["ok", "warning", "error", "unknown"]
LEAST_DISK_GB = 40.0
"""One vLLM release with CUDA takes about 10 GB, and uv keeps what it downloaded beside it."""


@dataclass(frozen=True)
class Check:
    """One line of the report; `advice` is empty where there is nothing to do."""

    name: str
    state: State
    found: str
    advice: str = ""


def check_index(versions: Callable[[str], Sequence[object]] = list_versions) -> Check:
    """Whether pip's configured index answers."""
    try:
        found = versions("vllm")
    except SparkproofError as error:
        return Check("package index", "error", error.message, error.todo)
    if not found:
        return Check("package index", "error", "it answers, but has no vllm", "Check index-url in `python -m pip config list`.")
    return Check("package index", "ok", f"answers; newest vllm {found[0]}")


def check_pip() -> Check:
    """Whether pip's settings can be read, and what they change."""
    try:
        settings = read_pip_settings()
    except SparkproofError as error:
        return Check("pip settings", "error", error.message, error.todo)
    given = [name for name in vars(settings) if getattr(settings, name)]
    return Check("pip settings", "ok", f"set: {', '.join(given)}" if given else "defaults")


def check_uv(find: Callable[[], str] = find_uv_bin) -> Check:
    """Whether uv is in our environment."""
    try:
        return Check("uv", "ok", find())
    except FileNotFoundError:
        return Check("uv", "error", "not in our environment", "Remove the .venv folder of the checkout and start again.")


def check_docker(docker: Docker | None = None) -> Check:
    """Whether docker answers; it is needed for @docker specs only."""
    try:
        (docker or Docker()).check()
    except SparkproofError as error:
        return Check("docker", "warning", error.message, "Only needed for engines given as @docker.")
    return Check("docker", "ok", "answers")


def check_folder(name: str, folder: Path) -> Check:
    """Whether a folder can be written, and how much space its disk has."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        free = shutil.disk_usage(folder).free / 1e9
    except OSError as error:
        return Check(name, "error", f"{folder} cannot be written: {error.strerror}", "Make it writable, or set another one (README).")
    if free < LEAST_DISK_GB:
        return Check(
            name, "warning", f"{folder}: {free:.1f} GB free", f"Free some space: an engine release needs up to {LEAST_DISK_GB:.0f} GB."
        )
    return Check(name, "ok", f"{folder}: {free:.0f} GB free")


def check_store(store: Store) -> list[Check]:
    """Whether the database can be read, boots are unfinished or damaged, and servers were left running."""
    checks = [_database(store)]
    unfinished, damaged = [], []
    for folder in all_folders(store.boots):
        try:
            if folder.summary().run.finished_at is None:
                unfinished.append(folder.run_id)
        except FolderError:
            damaged.append(folder.run_id)
    running = read_owner(platformdirs.user_state_path("sparkproof"))
    if unfinished and running is None:
        checks.append(Check("unfinished boots", "warning", ", ".join(unfinished[:5]), "The next start ends and files them."))
    else:
        checks.append(Check("unfinished boots", "ok", f"measuring now: {running}" if running else "none"))
    advice = "`sparkproof rebuild` names what is wrong with them."
    checks.append(Check("damaged boots", "warning", ", ".join(damaged[:5]), advice) if damaged else Check("damaged boots", "ok", "none"))
    kept = kept_servers(store)
    told = "; ".join(f"{server.sentence()}" for server in kept)
    checks.append(Check("kept servers", "warning", told, f"End it: {kept[0].end_by_hand}") if kept else Check("kept servers", "ok", "none"))
    return checks


def _database(store: Store) -> Check:
    if not store.database.exists():
        return Check("database", "ok", "none yet")
    try:
        boots = store.query("SELECT count(*) AS n FROM runs")[0]["n"]
    except StoreError as error:
        return Check("database", "error", str(error), error.todo or "Run `sparkproof rebuild`.")
    return Check("database", "ok", f"{boots} boots")


def check_node(node: NodeRecord) -> list[Check]:
    """What of the node a verdict rests on and cannot be read."""
    unknown = [name for name in ("kernel", "os_name", "cpu_model", "memory_total_bytes") if getattr(node, name) is None]
    if node.gpu_name is not None:
        unknown += [name for name in ("driver_version", "compute_capability") if getattr(node, name) is None]
    what = node.gpu_name or "no GPU: canaries and small models on the CPU"
    checks = [Check("node", "ok", f"{node.label} ({node.node_id}): {what}")]
    told = "; ".join(text for text in (_facts(node), f"not known: {', '.join(unknown)}" if unknown else "") if text)
    advice = "Verdicts cannot tell a change of these apart from a change of the engine." if unknown else ""
    checks.append(Check("node facts", "warning" if unknown else "ok", told, advice))
    tail = KernelTail()
    readable = tail.readable
    tail.close()
    advice = "" if readable else "Add yourself to the group adm, or set kernel.dmesg_restrict=0: driver failures appear only there."
    checks.append(Check("kernel log", "ok" if readable else "warning", "readable" if readable else "not readable", advice))
    permitted = os.access("/proc/sys/vm/drop_caches", os.W_OK)
    checks.append(Check("drop caches", "ok", "permitted" if permitted else "not permitted; boots are measured with a warm page cache"))
    return checks


def _facts(node: NodeRecord) -> str:
    """Everything that is known of the node, in one line."""
    facts = (
        ("compute capability", node.compute_capability),
        ("driver", node.driver_version),
        ("CUDA", node.cuda_version),
        ("kernel", node.kernel),
        ("", node.os_name),
        ("", f"{node.cpu_count} x {node.cpu_model}" if node.cpu_count and node.cpu_model else node.cpu_model),
        ("memory", _gib(node.memory_total_bytes)),
        ("SM clock up to", f"{node.sm_clock_cap_mhz} MHz" if node.sm_clock_cap_mhz is not None else None),
        ("power limit", f"{node.power_limit_w:.0f} W" if node.power_limit_w is not None else None),
        ("power source", node.power_source),
        ("firmware", node.firmware),
        ("network", ", ".join(node.network) or None),
    )
    return "; ".join(f"{name} {value}".strip() for name, value in facts if value)


def _gib(number: int | None) -> str | None:
    return None if number is None else f"{number / 2**30:.1f} GiB"


_ADVICE = {
    "platform-suspect": "Take the power supply off the mains for a minute, and look whether clock and power come back under load.",
    "the memory probe": "Let the node cool down and end what else runs; if it stays, compare driver, firmware and power supply.",
    "the driver lowers": "Look for heat and for the power supply.",
    "other process": "End them: `nvidia-smi` lists them.",
    "swap": "Free memory before measuring.",
    "disk is free": "Free some space.",
}


def check_health(record: HealthRecord) -> list[Check]:
    """One line for the verdict, and one for each reason with advice."""
    states: dict[str, State] = {health.OK: "ok", health.SUSPECT: "warning", health.VOID: "error", health.UNKNOWN: "unknown"}
    checks = [Check("health", states.get(record.verdict, "unknown"), record.verdict + _bandwidth(record))]
    checks.append(Check("sensors", "ok", _sensors(record)))
    for reason in record.reasons:
        advice = next((text for part, text in _ADVICE.items() if part in reason), "")
        checks.append(Check("health", "warning" if advice else "unknown", reason, advice))
    return checks


def _sensors(record: HealthRecord) -> str:
    """What the GPU, where there is one, and the memory say now; what cannot be read is left out."""
    gpu = (
        (record.gpu_temperature_c, "{:.0f} °C"),
        (record.gpu_power_w, "{:.1f} W"),
        (record.gpu_sm_clock_mhz, "{} MHz"),
        (record.gpu_utilization_percent, "{:.0f} % busy"),
        (record.other_gpu_processes, "{} other processes"),
        (", ".join(record.throttle_reasons) or None, "clocks lowered: {}"),
    )
    memory = (
        (_gib(record.memory_available_bytes), "{} available"),
        (_gib(record.page_cache_bytes), "{} page cache"),
        (_gib(record.swap_used_bytes), "{} swap in use"),
        (_gib(record.disk_free_bytes), "{} of disk free"),
    )
    parts = [
        (name, ", ".join(shape.format(v) for v, shape in values if v is not None)) for name, values in (("GPU", gpu), ("memory", memory))
    ]
    return "; ".join(f"{name}: {text}" for name, text in parts if text) or "none can be read"


def _bandwidth(record: HealthRecord) -> str:
    if record.bandwidth_gb_s is None:
        return ""
    shares = (
        f"{record.percent_of_nominal:.0f} % of nominal" if record.percent_of_nominal is not None else None,
        f"{record.percent_of_history:.0f} % of this node's history" if record.percent_of_history is not None else None,
    )
    told = ", ".join(share for share in shares if share)
    return f": {record.probe} {record.bandwidth_gb_s:.4g} GB/s" + (f" ({told})" if told else "")


def check_python() -> Check:
    """Which Python runs us."""
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok" if sys.version_info >= (3, 11) else "error", version, "" if sys.version_info >= (3, 11) else "Use >= 3.11.")


def harmless(check: Check) -> Check:
    """The check without secrets and escapes: indexes carry credentials, drivers say anything."""
    return Check(check.name, check.state, _line(check.found), _line(check.advice))


def _line(text: str) -> str:
    return " ".join(plain(redact(text), 600).split())
