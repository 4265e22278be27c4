from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.records import NodeRecord
from runners.node.facts import NodeReaders, assignments, has_cuda, hash_key, neutral_label, os_name, parse_cpu_model, read_node, stored_key
from runners.node.gpu import GpuIdentity
from runners.node.hardware import Sysfs
from tests.runners.node.test_hardware import NOTHING, SPARK

DATA = Path(__file__).parents[2] / "data" / "node"


def readers(kind: str, gpu: GpuIdentity | None, kernel: str, cpus: int, sysfs: Sysfs = NOTHING, **files: str) -> NodeReaders:
    texts = {
        "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
        "/proc/cpuinfo": (DATA / f"{kind}-cpuinfo.txt").read_text(),
        "/proc/meminfo": (DATA / f"{kind}-meminfo.txt").read_text(),
        "/etc/os-release": (DATA / f"{kind}-os-release.txt").read_text(),
        **{path.replace("__", "/"): text for path, text in files.items()},
    }
    return NodeReaders(texts.get, lambda: gpu, lambda: kernel, lambda: cpus, lambda: "spare", sysfs)


GB10 = readers(
    "gb10",
    GpuIdentity("NVIDIA GB10", "12.1", "580.159.03", "13.0", None, 3003),
    "6.17.0-1026-nvidia",
    20,
    SPARK,
    **{"/etc/dgx-release": (DATA / "gb10-dgx-release.txt").read_text(), "/sys/class/dmi/id/bios_version": "5.36_0ACUM027\n"},
)
CPU_ONLY = readers("x86-vm", None, "6.18.44", 2)


def test_gb10_is_described_completely() -> None:
    node = read_node(readers=GB10)
    assert node == NodeRecord(
        node_id=hash_key("0123456789abcdef0123456789abcdef"),
        label=f"gb10-{node.node_id[:4]}",
        gpu_name="NVIDIA GB10",
        compute_capability="12.1",
        driver_version="580.159.03",
        cuda_version="13.0",
        kernel="6.17.0-1026-nvidia",
        os_name="DGX OS 7.5.0 (Ubuntu 24.04.4 LTS)",
        cpu_model="10x Cortex-A725 + 10x Cortex-X925",
        cpu_count=20,
        memory_total_bytes=127600748 * 1024,
        sm_clock_cap_mhz=3003,
        firmware="bios 5.36_0ACUM027",
        power_limit_w=None,
        power_source="USB online PD; spark_hwmon pl1 140 W; spark_hwmon prochot 0",
        network=(
            "enP2p1s0f1np1 mlx5_core 200000 Mb/s",
            "enp1s0f1np1 mlx5_core 200000 Mb/s",
            "wlP9s9 mt7925e down",
            "roceP2p1s0f1 rdma",
            "rocep1s0f1 rdma",
        ),
    )
    assert has_cuda(node)


def test_node_without_gpu_is_described_and_has_no_cuda() -> None:
    node = read_node(readers=CPU_ONLY)
    assert (node.gpu_name, node.compute_capability, node.driver_version, node.firmware) == (None, None, None, None)
    assert (node.os_name, node.cpu_model, node.cpu_count) == ("Debian GNU/Linux 12 (bookworm)", "AMD EPYC", 2)
    assert node.label == f"cpu-amd-epyc-{node.node_id[:4]}"
    assert not has_cuda(node)


def test_h200_as_recorded_is_described() -> None:
    gpu = GpuIdentity("NVIDIA H200", "9.0", "580.159.04", "13.0", "96.00.A5.00.1A", 1980, 700.0, "mains")
    node = read_node(readers=readers("h200", gpu, "6.18.44", 16))
    assert (node.os_name, node.cpu_model, node.memory_total_bytes) == ("Ubuntu 24.04.3 LTS", "Intel(R) Xeon(R) Processor", 131981020 * 1024)
    assert (node.power_limit_w, node.power_source, node.firmware) == (700.0, "mains", "vbios 96.00.A5.00.1A")


def test_node_about_which_nothing_can_be_read_is_still_a_node() -> None:
    nothing = NodeReaders(lambda path: None, lambda: None, lambda: "", lambda: None, lambda: "spare", NOTHING)
    assert read_node(readers=nothing) == NodeRecord(node_id=hash_key("spare"), label=f"cpu-{hash_key('spare')[:4]}")


@pytest.mark.parametrize("gpu", [GpuIdentity(name="NVIDIA GB10"), GpuIdentity(compute_capability="12.1")])
def test_driver_that_says_little_is_still_cuda(gpu: GpuIdentity) -> None:
    assert has_cuda(read_node(readers=readers("gb10", gpu, "k", 20)))


@pytest.mark.parametrize("machine_id", ["", "\n", "uninitialized\n"])
def test_machine_without_an_id_uses_the_spare_key(machine_id: str) -> None:
    node = read_node(readers=readers("gb10", None, "k", 20, **{"/etc/machine-id": machine_id}))
    assert node.node_id == hash_key("spare")


def test_machine_without_an_id_is_known_by_its_gpu_which_is_in_no_record() -> None:
    gpu = GpuIdentity("NVIDIA H200", "9.0", uuid="GPU-6b1d")
    node = read_node(readers=readers("h200", gpu, "k", 16, **{"/etc/machine-id": ""}))
    assert node.node_id == hash_key("GPU-6b1d")
    assert "6b1d" not in repr(node)


def test_node_id_is_stable_pseudonymous_and_different_for_another_machine() -> None:
    other = readers("gb10", None, "k", 20, **{"/etc/machine-id": "fedcba"})
    ids = {read_node(readers=GB10).node_id, read_node("mine", readers=GB10).node_id, read_node(readers=other).node_id}
    assert len(ids) == 2
    assert all(re.fullmatch("[0-9a-f]{16}", i) and i not in "0123456789abcdef0123456789abcdef" for i in ids)


def test_neither_host_name_nor_serial_number_is_in_the_record() -> None:
    shown = repr(read_node(readers=GB10))
    assert socket.gethostname() not in shown or len(socket.gethostname()) < 4
    assert "1234567890123" not in shown


def test_owners_label_is_kept_but_made_harmless() -> None:
    assert read_node("my \x1b[31mSpark\x07", readers=GB10).label == "my Spark\N{REPLACEMENT CHARACTER}"


def test_spare_key_is_made_once(tmp_path: Path) -> None:
    first = stored_key(tmp_path / "state")
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert stored_key(tmp_path / "state") == first
    assert stored_key(tmp_path / "other") != first


@pytest.mark.parametrize(
    ("os_release", "dgx", "name"),
    [
        ('PRETTY_NAME="Ubuntu 24.04.4 LTS"', 'DGX_SWBUILD_VERSION="7.2.3"', "DGX OS 7.2.3 (Ubuntu 24.04.4 LTS)"),
        ('PRETTY_NAME="Ubuntu 24.04.4 LTS"', "", "Ubuntu 24.04.4 LTS"),
        ("NAME=Arch\n", "", "Arch"),
        ("", "DGX_OTA_VERSION=7.6.0", "DGX OS 7.6.0"),
        ("", "", None),
    ],
)
def test_operating_system_is_named_by_what_runs_now(os_release: str, dgx: str, name: str | None) -> None:
    assert os_name(os_release, dgx) == name


CORE = "processor: 0\nCPU implementer\t: {}\nCPU part\t: {}\n"


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        ("model name\t: AMD EPYC\nmodel name\t: AMD EPYC\n", "AMD EPYC"),
        (CORE.format("0x41", "0xd85") * 2 + CORE.format("0x41", "0xd87"), "2x Cortex-X925 + 1x Cortex-A725"),
        (CORE.format("0x41", "0xfff"), "1x arm 0x41/0xfff"),
        ("CPU part : 0xd85\n", None),
        ("", None),
    ],
)
def test_cpu_is_named_also_where_the_kernel_gives_only_numbers(cpuinfo: str, model: str | None) -> None:
    assert parse_cpu_model(cpuinfo) == model


@pytest.mark.parametrize("parse", [parse_cpu_model, assignments, lambda t: os_name(t, t), lambda t: neutral_label(t, t, "ab12")])
@settings(deadline=None)
@given(text=st.text())
def test_any_text_is_read_without_an_error_or_a_control_character(parse: Callable[[str], object], text: str) -> None:
    assert not re.search(r"[\x00-\x08\x1b]", str(parse(text)))


def test_this_machine_can_be_read() -> None:
    node = read_node()
    assert node.kernel and node.cpu_count and node.memory_total_bytes
