"""What this node is: the columns by which results are compared, and excused (M25).

Traps: a host name or a serial number ends up in a shared database; `DGX_SWBUILD_VERSION` names the factory image, not what runs now.
Rules: the node's id is a salted hash, its default label says only what kind of node it is; the last `DGX_OTA_VERSION` wins. A fact that
cannot be read is None; no fact is worth refusing to run.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from results.records import NodeRecord
from results.redact import plain
from runners.node.gpu import GpuIdentity, read_gpu
from runners.node.hardware import SYSFS, Sysfs, network_cards, power_hints
from runners.node.memory import parse_meminfo

NODE_SALT = "sparkproof-node-1:"
_ASSIGNMENT = re.compile(r"^([A-Z][A-Z0-9_]{0,60})=(.{0,500})$", re.MULTILINE)
_ARM_CORES = {("0x41", "0xd85"): "Cortex-X925", ("0x41", "0xd87"): "Cortex-A725"}
"""(implementer, part) of `/proc/cpuinfo` on a GB10; part numbers as in the cores' technical reference manuals (MIDR_EL1)."""
_MOST_BYTES = 4 << 20


def _read_file(path: str) -> str | None:
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return None


def stored_key(folder: Path | None = None) -> str:
    """A random key made once and kept in the state folder, for nodes without a machine id (containers)."""
    folder = folder or platformdirs.user_state_path("sparkproof")
    path = folder / "node-key"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x") as file:
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        pass
    return path.read_text().strip()


@dataclass(frozen=True)
class NodeReaders:
    """Where the facts come from. `file` gives a file's text or None."""

    file: Callable[[str], str | None] = _read_file
    gpu: Callable[[], GpuIdentity | None] = read_gpu
    kernel: Callable[[], str] = platform.release
    cpu_count: Callable[[], int | None] = os.cpu_count
    spare_key: Callable[[], str] = stored_key
    sysfs: Sysfs = SYSFS


NODE_READERS = NodeReaders()


def read_node(label: str | None = None, readers: NodeReaders = NODE_READERS) -> NodeRecord:
    """This node. `label` is what its owner calls it; by default a neutral one such as `gb10-3f2a`, never the host name."""
    gpu = readers.gpu() or GpuIdentity()
    cpu_model = parse_cpu_model(readers.file("/proc/cpuinfo") or "")
    node_id = hash_key(_machine_key(readers, gpu.uuid))
    return NodeRecord(
        node_id=node_id,
        label=plain(label, 80) if label else neutral_label(gpu.name, cpu_model, node_id),
        gpu_name=gpu.name,
        compute_capability=gpu.compute_capability,
        driver_version=gpu.driver_version,
        cuda_version=gpu.cuda_version,
        kernel=readers.kernel() or None,
        os_name=os_name(readers.file("/etc/os-release") or "", readers.file("/etc/dgx-release") or ""),
        cpu_model=cpu_model,
        cpu_count=readers.cpu_count(),
        memory_total_bytes=parse_meminfo(readers.file("/proc/meminfo") or "").total_bytes,
        sm_clock_cap_mhz=gpu.sm_clock_max_mhz,
        firmware=_firmware(readers.file("/sys/class/dmi/id/bios_version"), gpu.vbios_version),
        power_limit_w=gpu.power_limit_w,
        power_source="; ".join((*((gpu.power_source,) if gpu.power_source else ()), *power_hints(readers.sysfs))) or None,
        network=network_cards(readers.sysfs),
    )


def has_cuda(node: NodeRecord) -> bool:
    """Whether an NVIDIA driver answers on this node."""
    return node.gpu_name is not None or node.compute_capability is not None


def hash_key(key: str) -> str:
    """The node id: 16 hexadecimal digits that identify a node without naming it."""
    return hashlib.sha256((NODE_SALT + key).encode()).hexdigest()[:16]


def _machine_key(readers: NodeReaders, gpu_uuid: str | None) -> str:
    """The machine's id; without one (a container, some virtual machines) that of its GPU, which outlives the state folder."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        found = (readers.file(path) or "").strip()
        if found and found != "uninitialized":  # what systemd writes into images (machine-id(5))
            return found
    return gpu_uuid or readers.spare_key()


def neutral_label(gpu_name: str | None, cpu_model: str | None, node_id: str) -> str:
    """`gb10-3f2a`: the kind of node, and enough of its id to tell two of them apart."""
    kind = (gpu_name or "").removeprefix("NVIDIA ") or f"cpu {cpu_model or ''}"
    words = re.findall(r"[a-z0-9]+", kind.lower())
    return "-".join([*words[:4], node_id[:4]])


def assignments(text: str) -> dict[str, str]:
    """`NAME="value"` lines of an os-release like file. A name given twice keeps its last value."""
    return {name: plain(value.strip().strip("\"'"), 200) for name, value in _ASSIGNMENT.findall(text)}


def os_name(os_release: str, dgx_release: str) -> str | None:
    """`DGX OS 7.5.0 (Ubuntu 24.04.4 LTS)`, or the distribution's own name; None if neither file says."""
    distribution = assignments(os_release).get("PRETTY_NAME") or assignments(os_release).get("NAME")
    dgx = assignments(dgx_release)
    version = dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION")
    if version is None:
        return distribution
    return f"DGX OS {version}" + (f" ({distribution})" if distribution else "")


def parse_cpu_model(cpuinfo: str) -> str | None:
    """`AMD EPYC`, or on Arm, which gives only numbers, `10x Cortex-A725 + 10x Cortex-X925`; None if the text does not say."""
    values = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in cpuinfo.splitlines())]
    named = next((value for name, value in values if name == "model name" and value), None)
    if named is not None:
        return plain(named, 200)
    implementers = [value for name, value in values if name == "CPU implementer"]
    parts = [value for name, value in values if name == "CPU part"]
    if not parts or len(parts) != len(implementers):
        return None
    cores = Counter(_ARM_CORES.get(core, "arm " + "/".join(core)) for core in zip(implementers, parts, strict=True))
    return plain(" + ".join(f"{count}x {name}" for name, count in cores.most_common()), 200)


def _firmware(bios: str | None, vbios: str | None) -> str | None:
    known = [f"{name} {plain(value.strip(), 100)}" for name, value in (("bios", bios), ("vbios", vbios)) if value and value.strip()]
    return "; ".join(known) or None
