from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from results.boot_folder import BootFolder, BootSummary
from results.records import HealthRecord, NodeRecord, RunRecord
from results.store import Store
from runners.errors import InfrastructureError
from runners.launchers.docker_cli import Docker
from runners.node import doctor
from tests.planted import Planted

NODE = NodeRecord("ab" * 8, "spark")


def health(verdict: str, *reasons: str, **more: float) -> HealthRecord:
    return HealthRecord("", "2026-11-30T13:00:00+00:00", "before", verdict, tuple(reasons), **more)  # type: ignore[arg-type]


def test_index_that_answers_is_ok_and_one_that_does_not_comes_with_advice() -> None:
    assert doctor.check_index(lambda package: [Version("0.32.0")]).found == "answers; newest vllm 0.32.0"

    def down(package: str) -> list[Version]:
        raise InfrastructureError("the package index cannot be reached: timed out.", todo="Check index-url.")

    check = doctor.check_index(down)
    assert (check.state, check.advice) == ("error", "Check index-url.")
    assert doctor.check_index(lambda package: []).state == "error"


def test_missing_uv_and_missing_docker_are_told_apart_in_weight() -> None:
    def none() -> str:
        raise FileNotFoundError

    assert doctor.check_uv(none).state == "error"
    assert doctor.check_docker(Docker(program="/nonexistent/docker")).state == "warning"


def test_folder_that_cannot_be_written_is_an_error_and_a_full_disk_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert doctor.check_folder("store", tmp_path / "file" / "below").state == "error"
    monkeypatch.setattr(doctor, "LEAST_DISK_GB", 1e9)
    assert doctor.check_folder("store", tmp_path).state == "warning"
    monkeypatch.setattr(doctor, "LEAST_DISK_GB", 0.0)
    assert doctor.check_folder("store", tmp_path / "new").state == "ok"
    assert list((tmp_path / "new").iterdir()) == []


def states(checks: list[doctor.Check]) -> dict[str, str]:
    return {check.name: check.state for check in checks}


def test_store_with_a_stale_and_a_damaged_boot_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = Store(tmp_path / "store")
    assert set(states(doctor.check_store(store)).values()) == {"ok"}
    run = RunRecord("20261130T130501Z-1f00ab42", "s", "c", "x", "vllm", "0.32.0", "venv", "m", "eager", "n", 1, "2026-11-30T13:05:01+00:00")
    folder = BootFolder(store.boots, run.run_id)
    folder.create()
    folder.write_summary(BootSummary(run, NODE))
    damaged = BootFolder(store.boots, "20261130T130502Z-1f00ab43")
    damaged.create()
    found = doctor.check_store(store)
    assert (states(found)["unfinished boots"], states(found)["damaged boots"]) == ("warning", "warning")


def test_damaged_database_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "sparkproof.duckdb").write_bytes(b"this is no database" * 1000)
    check = doctor.check_store(Store(tmp_path))[0]
    assert check.state == "error"
    assert "rebuild" in check.advice


@pytest.mark.parametrize(
    ("record", "state", "advice"),
    [
        (health("ok", bandwidth_gb_s=238.0, percent_of_nominal=87.2), "ok", ""),
        (health("suspect", "platform-suspect: 19.5 W, 799 MHz"), "warning", "power supply off the mains"),
        (health("void", "the memory probe gives 150 GB/s, 37 % slower"), "error", "cool down"),
        (health("suspect", "2 other process(es) hold GPU memory"), "warning", "nvidia-smi"),
        (health("unknown", "no probe"), "unknown", ""),
    ],
)
def test_health_comes_with_advice_for_each_reason(record: HealthRecord, state: str, advice: str) -> None:
    checks = doctor.check_health(record)
    assert checks[0].state == state
    assert advice in " ".join(check.advice for check in checks)


def test_shares_of_nominal_and_history_are_shown() -> None:
    record = health("ok", probe="torch-cuda", bandwidth_gb_s=238.0, percent_of_nominal=87.2, percent_of_history=99.8)  # type: ignore[arg-type]
    assert doctor.check_health(record)[0].found == "ok: torch-cuda 238 GB/s (87 % of nominal, 100 % of this node's history)"


def test_unknown_facts_of_a_node_are_a_warning() -> None:
    assert "kernel" in next(check for check in doctor.check_node(NODE) if check.name == "node facts").found


def test_everything_that_is_known_of_node_and_sensors_is_shown_and_nothing_else() -> None:
    node = NodeRecord(
        "ab" * 8, "spark", gpu_name="NVIDIA GB10", compute_capability="12.1", driver_version="580.159.03", cuda_version="13.0",
        kernel="6.14.0", os_name="DGX OS 7.5.0", cpu_model="Cortex-X925", cpu_count=20, memory_total_bytes=128 << 30,
        sm_clock_cap_mhz=3003, power_source="USB online PD", network=("enp1s0f1np1 mlx5_core 200000 Mb/s",),
    )  # fmt: skip
    facts = next(check for check in doctor.check_node(node) if check.name == "node facts")
    assert facts.state == "ok"
    assert facts.found == (
        "compute capability 12.1; driver 580.159.03; CUDA 13.0; kernel 6.14.0; DGX OS 7.5.0; 20 x Cortex-X925; memory 128.0 GiB; "
        "SM clock up to 3003 MHz; power source USB online PD; network enp1s0f1np1 mlx5_core 200000 Mb/s"
    )
    record = replace(
        health("suspect"), gpu_temperature_c=61.0, gpu_power_w=19.52, gpu_sm_clock_mhz=799, gpu_utilization_percent=96.0,
        other_gpu_processes=0, throttle_reasons=("sw_power_cap",), memory_available_bytes=100 << 30, page_cache_bytes=3 << 30,
        swap_used_bytes=0, disk_free_bytes=900 << 30,
    )  # fmt: skip
    sensors = next(check for check in doctor.check_health(record) if check.name == "sensors")
    assert sensors.found == (
        "GPU: 61 °C, 19.5 W, 799 MHz, 96 % busy, 0 other processes, clocks lowered: sw_power_cap; "
        "memory: 100.0 GiB available, 3.0 GiB page cache, 0.0 GiB swap in use, 900.0 GiB of disk free"
    )
    assert next(check for check in doctor.check_health(health("unknown")) if check.name == "sensors").found == "none can be read"


def test_credentials_of_an_index_are_never_shown() -> None:
    check = doctor.harmless(doctor.Check("pip", "error", "https://user:hunter2@index.example/simple\x1b[31m"))
    assert "hunter2" not in check.found and "\x1b" not in check.found


def test_the_command_prints_everything_as_json_and_exits_0_on_a_fit_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = Planted(tmp_path, "0.32.0").sparkproof("doctor", "--offline", "--no-probe", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert {"node", "health", "checks", "fit"} == set(shown)
    assert {"node", "node facts", "health", "sensors", "uv", "pip settings", "docker", "store", "cache", "database"} <= {
        c["name"] for c in shown["checks"]
    }
    assert shown["fit"] is True
