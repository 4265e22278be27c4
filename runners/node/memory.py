"""How much memory of the node is in use.

Trap: on a GB10 the GPU has no memory of its own: NVML says N/A, and `torch.cuda.mem_get_info` counts the page cache as used
(vllm-project/vllm#48140). Rule (M20): used = MemTotal - MemAvailable of `/proc/meminfo`, compared with a baseline taken before the
launch. MemAvailable can still promise too much (vllm-project/vllm#56824), so the other fields are kept to explain a failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_RSS_ANON = re.compile(r"^RssAnon:\s{0,20}([0-9]{1,15}) kB$", re.MULTILINE)
_FIELDS = {
    "MemTotal": "total_bytes",
    "MemFree": "free_bytes",
    "MemAvailable": "available_bytes",
    "Cached": "cached_bytes",
    "SwapTotal": "swap_total_bytes",
    "SwapFree": "swap_free_bytes",
    "HugePages_Total": "huge_pages_total",
}


@dataclass(frozen=True)
class MemInfo:
    """What `/proc/meminfo` says; None for a field that is not there. `huge_pages_total` is a count, everything else bytes."""

    total_bytes: int | None = None
    free_bytes: int | None = None
    available_bytes: int | None = None
    cached_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    huge_pages_total: int | None = None

    @property
    def used_bytes(self) -> int | None:
        """MemTotal - MemAvailable, None unless both are known (M20)."""
        if self.total_bytes is None or self.available_bytes is None:
            return None
        return self.total_bytes - self.available_bytes

    @property
    def swap_used_bytes(self) -> int | None:
        """SwapTotal - SwapFree, None unless both are known."""
        if self.swap_total_bytes is None or self.swap_free_bytes is None:
            return None
        return self.swap_total_bytes - self.swap_free_bytes


def parse_meminfo(text: str) -> MemInfo:
    """Read `/proc/meminfo`. Lines that are not `Name: number [kB]` are passed over; "kB" means 1024 bytes (proc_meminfo(5))."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        value = rest.split()
        if name in _FIELDS and value and value[0].isdecimal() and value[0].isascii():
            found[_FIELDS[name]] = int(value[0]) * (1024 if value[1:] == ["kB"] else 1)
    return MemInfo(**found)


def read_memory(path: Path = Path("/proc/meminfo")) -> MemInfo:
    """The node's memory now; all None if it cannot be read."""
    try:
        return parse_meminfo(path.read_text())
    except OSError:
        return MemInfo()


def used_memory_bytes() -> int | None:
    """MemTotal - MemAvailable now, None if unknown."""
    return read_memory().used_bytes


def private_memory_bytes(proc: Path = Path("/proc")) -> int | None:
    """Anonymous memory of all living processes together (RssAnon of `/proc/PID/status`); None if no process can be read.

    What a process allocates shows here and in the used memory alike, so that memory which nobody owns (a driver's leak, a file in
    /dev/shm) is what grew in the one and not in the other. Anonymous pages shared by a fork count once per process.
    """
    total: int | None = None
    for status in proc.glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue  # it ended while we looked, or belongs to another user namespace
        found = _RSS_ANON.search(text)
        if found:
            total = (total or 0) + int(found.group(1)) * 1024
    return total
