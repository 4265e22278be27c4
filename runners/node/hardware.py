"""What sysfs says about the node's power supply and network cards.

Traps: a GB10 whose USB-C supply negotiated too little runs at a third of its clock and shows no throttle flag; its one ConnectX-7 port
appears as two interfaces; an interface's address names the machine to everybody. Rules: whatever the kernel says about the supply is kept
as words, never as a judgement; cards are named by interface, driver and speed only; what is not there is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from results.redact import plain

_MOST_ENTRIES = 64
_MOST_BYTES = 4096
_SAFE_NAME = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_LIMIT_WORDS = ("pl1", "syspl1", "prochot", "cap", "max")
"""Parts of attribute names that tell a limit; `pl1`, `syspl1` and `PROCHOT` are what owners report of the `spark_hwmon` driver."""


def _list(folder: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in Path(folder).iterdir()))
    except OSError:
        return ()


def _read(path: str) -> str | None:
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(_MOST_BYTES)
    except OSError:  # attributes of a link that is down answer EINVAL
        return None


def _link(path: str) -> str | None:
    try:
        return Path(path).readlink().name
    except OSError:
        return None


@dataclass(frozen=True)
class Sysfs:
    """How sysfs is read: names in a folder (empty if none), a file's text, and the last part of a link's target (None if not there)."""

    list: Callable[[str], tuple[str, ...]] = _list
    read: Callable[[str], str | None] = _read
    link: Callable[[str], str | None] = _link

    def word(self, path: str) -> str | None:
        """A file's text as one harmless word or line; None if it is not there or empty."""
        text = self.read(path)
        return _line(text) or None if text else None

    def names(self, folder: str) -> tuple[str, ...]:
        """Names in a folder that are safe to put into a path."""
        return tuple(name for name in self.list(folder)[:_MOST_ENTRIES] if _SAFE_NAME.fullmatch(name))


def _line(text: str) -> str:
    return " ".join(plain(text, 100).split())


SYSFS = Sysfs()


def network_cards(sysfs: Sysfs = SYSFS) -> tuple[str, ...]:
    """`enp1s0f1np1 mlx5_core 200000 Mb/s` for each interface with a device behind it, then `rocep1s0f1 rdma` for each RDMA device."""
    cards = []
    for name in sysfs.names("/sys/class/net"):
        driver = sysfs.link(f"/sys/class/net/{name}/device/driver")
        if driver is None:
            continue  # loopback, bridges, containers' pairs
        speed = sysfs.word(f"/sys/class/net/{name}/speed")
        fast = f"{speed} Mb/s" if speed and speed.isascii() and speed.isdecimal() else sysfs.word(f"/sys/class/net/{name}/operstate")
        cards.append(" ".join(part for part in (name, _line(driver), fast) if part))
    return (*cards, *(f"{name} rdma" for name in sysfs.names("/sys/class/infiniband")))


def power_hints(sysfs: Sysfs = SYSFS) -> tuple[str, ...]:
    """What the kernel says about the supply: each supply's kind and whether it is connected, and power limits of board sensors."""
    return (*_supplies(sysfs), *_board_limits(sysfs))


def _supplies(sysfs: Sysfs) -> list[str]:
    hints = []
    for name in sysfs.names("/sys/class/power_supply"):
        folder = f"/sys/class/power_supply/{name}"
        kind = sysfs.word(f"{folder}/type") or "supply"
        online = sysfs.word(f"{folder}/online")
        state = {"1": "online", "0": "offline"}.get(online or "", sysfs.word(f"{folder}/status") or "unknown")
        chosen = _chosen(sysfs.word(f"{folder}/usb_type") or "")
        hints.append(" ".join(part for part in (kind, state, chosen) if part))
    return hints


def _chosen(usb_type: str) -> str | None:
    """The negotiated mode of a USB supply, the one in brackets of `C [PD] PD_PPS` (Documentation/ABI/testing/sysfs-class-power)."""
    found = re.search(r"\[([A-Za-z0-9_-]{1,20})\]", usb_type)
    return found.group(1) if found else None


def _board_limits(sysfs: Sysfs) -> list[str]:
    """Power attributes of hwmon drivers of the board (`spark_hwmon`), `powerN_*` in microwatts (Documentation/hwmon/sysfs-interface)."""
    hints = []
    for entry in sysfs.names("/sys/class/hwmon"):
        folder = f"/sys/class/hwmon/{entry}"
        driver = sysfs.word(f"{folder}/name") or ""
        if "spark" not in driver.lower():
            continue
        for attribute in sysfs.names(folder):
            lowered = attribute.lower()
            value = sysfs.word(f"{folder}/{attribute}") if any(word in lowered for word in _LIMIT_WORDS) else None
            if value is None:
                continue
            label = sysfs.word(f"{folder}/{attribute.split('_')[0]}_label")
            hints.append(f"{driver} {label or attribute} {_shown(lowered, value)}")
    return hints


def _shown(attribute: str, value: str) -> str:
    is_power = re.fullmatch(r"power[0-9]{1,3}_.{1,40}", attribute) and value.isascii() and value.isdecimal()
    return f"{int(value) / 1e6:g} W" if is_power else value
