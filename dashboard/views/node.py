"""Node: the machine itself, what runs on it now, and what it was like during each boot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from dashboard import charts, links, source
from dashboard.evidence import rows_behind
from dashboard.filters import choose
from dashboard.frame import quiet
from dashboard.grid import Cell, Column, grid
from dashboard.nightly import nights
from dashboard.sentence import engine_name
from dashboard.shown import ago, gib, number, seconds, when
from results.boot_folder import BootFolder
from results.errors import FolderError
from results.queries import node_page, today_page
from results.records import PhaseRecord

Row = Mapping[str, Any]
_PER_BOOT = {
    "temperature_max_c": "Hottest, °C",
    "power_mean_w": "Power while timed, W",
    "sm_clock_median_mhz": "SM clock while timed, MHz",
    "memory_used_max_bytes": "Most memory in use, GiB",
}


def show() -> None:
    """The page."""
    st.title("Node")
    nodes = {row["node_id"]: row["label"] for row in source.rows(today_page.nodes())}
    node = choose("Node", "node", nodes)
    if node is None:
        quiet("No node has booted anything yet.", "node")
        return
    _machine(node)
    _now(node)
    _nights()
    _health(node)
    _boots(node)
    _sessions(node)
    _states(node)


def _machine(node: str) -> None:
    row = source.row(node_page.node(node))
    if row is None:
        return
    facts = [
        (
            "GPU",
            " · ".join(filter(None, (row["gpu_name"], row["compute_capability"] and f"compute capability {row['compute_capability']}")))
            or "none",
        ),
        ("CPU", f"{row['cpu_model'] or 'unknown'}, {number(row['cpu_count'])} cores"),
        ("Memory", gib(row["memory_total_bytes"])),
        ("Driver", " · ".join(filter(None, (row["driver_version"], row["cuda_version"] and f"CUDA {row['cuda_version']}"))) or "none"),
        ("Firmware", row["firmware"] or "unknown"),
        ("System", " · ".join(filter(None, (row["os_name"], row["kernel"])))),
        ("Clock cap", number(row["sm_clock_cap_mhz"], 4, "MHz") if row["sm_clock_cap_mhz"] else "none known"),
        (
            "Power",
            " · ".join(filter(None, (row["power_limit_w"] and f"limit {row['power_limit_w']:.0f} W", row["power_source"]))) or "not told",
        ),
        ("Network", ", ".join(row["network"] or ()) or "not told"),
    ]
    grid("machine", "The machine", ["", " "], [[Cell(name), Cell(value or "–")] for name, value in facts])
    rows_behind("node", node_page.node(node))


@st.fragment(run_every="2s")
def _now(node: str) -> None:
    """What runs in another process: read from the boot's folder, which is written as things happen."""
    st.header("Now")
    running = source.rows(node_page.running(node))
    rows = [cells for row in running if (cells := _progress(row)) is not None]
    if not rows:
        quiet("Nothing runs.", "now")
        return
    grid(
        "now",
        "Boots that run now",
        ["Boot", "Phase", Column("In it for", right=True), Column("Running for", right=True), "Phases done"],
        rows,
    )


def _progress(row: Row) -> list[Cell] | None:
    """None for a boot whose folder says that it has ended."""
    now = datetime.now(UTC)
    folder = BootFolder(source.store().boots, row["run_id"])
    phase, done = row["phase"], []
    try:
        content = folder.read()
    except FolderError:
        content = None
    if content is not None:
        if content.summary.run.outcome is not None:
            return None
        phase, done = str(content.summary.run.phase), list(content.of(PhaseRecord))
    began = max(
        (datetime.fromisoformat(own.started_at).timestamp() + own.duration_s for own in done), default=row["started_at"].timestamp()
    )
    return [
        Cell(
            f"{engine_name(row['engine'])} {row['engine_version']}",
            f"{row['recipe_name']} on {row['backend_name']}",
            link=links.to("run", run=row["run_id"]),
        ),
        Cell(f"▸ {phase}", kind="running"),
        Cell(seconds(max(0.0, now.timestamp() - began))),
        Cell(seconds(max(0.0, (now - row["started_at"]).total_seconds()))),
        Cell(", ".join(f"{own.phase} {seconds(own.duration_s)}" for own in done) or "none yet"),
    ]


def _nights() -> None:
    found = nights(source.root(), datetime.now().astimezone())
    ended = {True: "and finished", False: "and did not finish, or runs", None: ""}[found.finished]
    last = f"Last night began {found.began_at[:16].replace('T', ' ')} {ended}." if found.began_at else "No night has run on this store."
    coming = (
        f"Next: {found.next_at:%Y-%m-%d %H:%M}." if found.next_at else "No timer of this user starts one: sparkproof install-timer --user"
    )
    quiet(f"{last} {coming}", "nights")


def _health(node: str) -> None:
    question = node_page.health(node)
    found = source.rows(question)
    st.header("Health")
    if not found:
        quiet("The probe never ran on this node.", "health")
        return
    probed = [{**row, "started_at": row["read_at"], "outcome": "pass"} for row in found if row["bandwidth_gb_s"] is not None]
    if probed:
        title = "Memory bandwidth of the probe, GB/s"
        st.vega_lite_chart(charts.by_boot(probed, "bandwidth_gb_s", title), key="probe", alt=title)
    grid(
        "health",
        "What the probe and the sensors said, newest first",
        [
            "Read",
            "Verdict",
            Column("Bandwidth", right=True),
            Column("Memory free", right=True),
            Column("Disk free", right=True),
            "Why",
            "Around",
        ],
        [_reading(row) for row in reversed(found[-100:])],
    )
    rows_behind("health", question)


def _reading(row: Row) -> list[Cell]:
    history = "" if row["percent_of_history"] is None else f"{row['percent_of_history']:.0f} % of its history"
    return [
        Cell(when(row["read_at"]), f"{row['moment']} the boot"),
        Cell(row["verdict"], kind={"ok": "pass", "suspect": "flaky", "void": "fail"}.get(row["verdict"], "notrun")),
        Cell(number(row["bandwidth_gb_s"], unit="GB/s"), history),
        Cell(gib(row["memory_available_bytes"])),
        Cell(gib(row["disk_free_bytes"])),
        Cell("; ".join(row["reasons"] or ()), "; ".join(row["throttle_reasons"] or ())),
        Cell(
            f"{row['recipe_name']} on {row['backend_name']}",
            f"{engine_name(row['engine'])} {row['engine_version']}",
            link=links.to("run", run=row["run_id"]),
        ),
    ]


def _boots(node: str) -> None:
    question = node_page.telemetry(node)
    found = source.rows(question)
    if not found:
        return
    st.header("During each boot")
    present = [name for name in _PER_BOOT if any(row[name] is not None for row in found)]
    for pair in (present[:2], present[2:]):
        if pair:
            for column, name in zip(st.columns(2), pair, strict=False):
                scale = 1 / 2**30 if name.endswith("_bytes") else 1.0
                column.vega_lite_chart(charts.by_boot(found, name, _PER_BOOT[name], scale), key=f"boots_{name}", alt=_PER_BOOT[name])
    missing = [title for name, title in _PER_BOOT.items() if name not in present]
    if missing:
        quiet(f"Not told by this node: {'; '.join(missing)}.", "per_boot")
    rows_behind("telemetry-by-boot", question)


def _sessions(node: str) -> None:
    question = node_page.sessions(node)
    found = source.rows(question)
    st.header("Visits of the runner")
    if not found:
        quiet("No session is on record.", "sessions")
        return
    now = datetime.now(UTC)
    grid(
        "sessions",
        "Sessions, newest first",
        ["Began", "Kind", Column("Boots", right=True), "Counts"],
        [
            [
                Cell(when(row["started_at"]), ago(row["started_at"], now)),
                Cell(row["kind"], "still running" if row["finished_at"] is None else ""),
                Cell(number(row["boots"]), f"{row['passed']} passed"),
                Cell(f"✗ void: {row['void_reason'] or 'no reason given'}" if row["void"] else "✓ yes", kind="fail" if row["void"] else ""),
            ]
            for row in found
        ],
    )
    rows_behind("sessions", question)


def _states(node: str) -> None:
    question = node_page.states(node)
    found = source.rows(question)
    if not found:
        return
    st.header("What changed on it")
    grid(
        "states",
        "States of the node, newest first",
        ["From", "To", "Driver", "Kernel", "Firmware", "Clock cap", Column("Boots", right=True)],
        [
            [
                Cell(when(row["first_started_at"])),
                Cell(when(row["last_started_at"])),
                Cell(row["driver_version"] or "–", f"CUDA {row['cuda_version']}" if row["cuda_version"] else ""),
                Cell(row["kernel"] or "–"),
                Cell(row["firmware"] or "–"),
                Cell(number(row["sm_clock_cap_mhz"], 4, "MHz")),
                Cell(number(row["boots"])),
            ]
            for row in found
        ],
    )
    rows_behind("node-states", question)


if __name__ == "__main__":
    show()
