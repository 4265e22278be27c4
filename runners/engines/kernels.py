"""Which kernels actually ran, read from the engine's own log and info answer.

Trap: a flag says what was asked for; the engine picks something else and says so in one line whose wording changes every few releases.
Rule: a kernel is only ever named by a line that says it. The wordings are data (`facts/<engine>/kernels.toml`): a line that carries an
anchor but no known pattern is reported as unparsed, and what no line says stays "unknown", never "as configured".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from runners.engines.base import UNKNOWN
from runners.engines.log_lines import LogLine, read_line, scan, split_lines
from runners.engines.versions import VersionRange, VersionTextError, version_range

SLOTS = ("attention", "moe", "linear", "kv_cache_dtype", "graph_mode")
"""Slots every report has. Others (fp8_linear, nvfp4_linear, moe_experts, moe_method, model_runner...) appear when a line names them."""

MAX_UNPARSED = 20
_GIB = 1 << 30


@dataclass(frozen=True)
class KernelReport:
    """`kernels` maps slots to names in the engine's own spelling or "unknown"; several names of one slot are joined with "+".

    `unparsed` holds messages (at most `MAX_UNPARSED`) that carry a known anchor but not its known wording.
    """

    kernels: Mapping[str, str]
    unparsed: tuple[str, ...]


@dataclass(frozen=True)
class Capacity:
    """What the server can hold. `model_memory_bytes` is the first rank's weights as printed (GiB, rounded by the engine); None is not said.

    A size that the engine rounded to 0.0 is None: it is smaller than what the line can express, not zero.
    """

    kv_cache_tokens: int | None
    model_memory_bytes: int | None
    max_model_len: int | None


@dataclass(frozen=True)
class Mismatch:
    """One slot where another kernel ran than was asked for: the `fallback` outcome."""

    slot: str
    configured: str
    actual: str


@dataclass(frozen=True)
class LineRow:
    """One wording. `anchor` is the literal looked for in the raw line, `starts` and `contains` decide on the message."""

    slot: str
    versions: VersionRange
    starts: str
    contains: tuple[str, ...]
    anchor: str
    pattern: re.Pattern[str]
    value: str
    rank: int
    strict: bool
    quiet: bool
    overrides: bool

    def anchored(self, message: str) -> bool:
        """Whether `message` carries this wording's anchor."""
        return message.startswith(self.starts) and all(part in message for part in self.contains)

    def read(self, message: str) -> str | None:
        """The value `message` states, or None when the wording differs."""
        found = self.pattern.match(message)
        return None if found is None else self.value.format_map(found.groupdict())


@dataclass(frozen=True)
class InfoRow:
    """One place in the info answer: `path` of keys; `only` restricts it to one value, `never` excludes values that decide nothing."""

    slot: str
    path: tuple[str, ...]
    never: tuple[Any, ...]
    only: Any
    value: str | None


@dataclass(frozen=True)
class KernelFacts:
    """All wordings of one engine."""

    lines: tuple[LineRow, ...]
    capacity: tuple[LineRow, ...]
    info: tuple[InfoRow, ...]
    info_capacity: tuple[InfoRow, ...]
    families: tuple[tuple[str, str, tuple[str, ...]], ...]
    """(slot, family, names); a name ending in * is a prefix."""


@lru_cache(maxsize=8)
def kernel_facts(engine: str) -> KernelFacts:
    """The wordings of `engine`; an engine without facts has none."""
    path = files("runners.engines") / "facts" / engine / "kernels.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return KernelFacts(
        lines=tuple(_line_row(row, "slot") for row in data.get("line", ())),
        capacity=tuple(_line_row(row, "field") for row in data.get("capacity", ())),
        info=tuple(_info_row(row, "slot") for row in data.get("info", ())),
        info_capacity=tuple(_info_row(row, "field") for row in data.get("info_capacity", ())),
        families=tuple((row["slot"], row["kernel"], tuple(row["names"])) for row in data.get("same", ())),
    )


def _line_row(row: Mapping[str, Any], key: str) -> LineRow:
    starts, contains = row.get("starts", ""), tuple(row.get("contains", ()))
    return LineRow(
        slot=row[key],
        versions=version_range(row.get("versions", "any")),
        starts=starts,
        contains=contains,
        anchor=max((starts, *contains), key=len),
        pattern=re.compile(row["pattern"]),
        value=row.get("value", "{value}"),
        rank=row.get("rank", 1),
        strict=row.get("strict", False),
        quiet=row.get("quiet", False),
        overrides=row.get("overrides", False),
    )


def _info_row(row: Mapping[str, Any], key: str) -> InfoRow:
    return InfoRow(row[key], tuple(row["path"]), tuple(row.get("never", ())), row.get("only"), row.get("value"))


@dataclass
class KernelReader:
    """Collects what the lines of one log say; feed it messages in order, then ask for `report` and `capacity`."""

    engine: str
    version: str | None
    _found: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    _numbers: dict[str, str] = field(default_factory=dict)
    _unparsed: list[str] = field(default_factory=list)

    def anchors(self) -> frozenset[str]:
        """Literals of which a line must hold one to be worth feeding."""
        facts = kernel_facts(self.engine)
        return frozenset(row.anchor for row in (*facts.lines, *facts.capacity))

    def feed(self, line: LogLine) -> None:
        """Take what one line says."""
        message = line.message
        for row in kernel_facts(self.engine).capacity:
            if row.anchored(message) and (found := row.pattern.search(message)) and (row.overrides or row.slot not in self._numbers):
                self._numbers[row.slot] = found.group("value").replace(",", "")
        rows = [row for row in kernel_facts(self.engine).lines if row.anchored(message)]
        if not rows:
            return
        inside = [row for row in rows if self._in_range(row)]
        slots = self._take(inside, message) or self._take([row for row in rows if row not in inside and not row.strict], message)
        if not slots and any(not row.quiet and not row.strict for row in rows) and len(self._unparsed) < MAX_UNPARSED:
            self._unparsed.append(message[:400])

    def _in_range(self, row: LineRow) -> bool:
        if self.version is None:
            return not row.strict
        try:
            return row.versions.contains(self.version)
        except VersionTextError:
            return not row.strict

    def _take(self, rows: Iterable[LineRow], message: str) -> set[str]:
        """Record the first reading of each slot; a message states a slot once, so a general wording never repeats a special one."""
        slots: set[str] = set()
        for row in rows:
            if row.slot in slots or (row.slot == "moe_experts" and "moe" in slots):
                continue
            value = row.read(message)
            if value is not None:
                slots.add(row.slot)
                values = self._found.setdefault(row.slot, {}).setdefault(row.rank, [])
                if value not in values:
                    values.append(value)
        return slots

    def report(self, server_info: Mapping[str, Any] | None = None) -> KernelReport:
        """What was read; `server_info` fills only the slots that no line stated."""
        kernels = {slot: "+".join(ranks[min(ranks)]) for slot, ranks in self._found.items()}
        for slot, value in self._from_info(server_info).items():
            kernels.setdefault(slot, value)
        _compose(kernels)
        ordered = {slot: kernels.pop(slot, UNKNOWN) for slot in SLOTS}
        return KernelReport({**ordered, **dict(sorted(kernels.items()))}, tuple(self._unparsed))

    def _from_info(self, server_info: Mapping[str, Any] | None) -> dict[str, str]:
        values: dict[str, str] = {}
        for row in kernel_facts(self.engine).info:
            value = _dig(server_info, row.path)
            if value is None or value in row.never or (row.only is not None and value != row.only) or isinstance(value, (dict, list)):
                continue
            values.setdefault(row.slot, row.value or str(value)[:80])
        if self.engine == "sglang" and server_info is not None:
            split = [_dig(server_info, (f"{phase}_attention_backend",)) for phase in ("decode", "prefill")]
            if all(isinstance(item, str) for item in split) and split[0] != split[1]:
                values["attention"] = f"decode={split[0]},prefill={split[1]}"
        return values

    def capacity(self, server_info: Mapping[str, Any] | None = None) -> Capacity:
        """The numbers that were read; `server_info` fills what no line stated."""
        numbers = dict(self._numbers)
        for row in kernel_facts(self.engine).info_capacity:
            value = _dig(server_info, row.path)
            if isinstance(value, int) and not isinstance(value, bool):
                numbers.setdefault(row.slot, str(value))
        gib = float(numbers["model_memory_gib"]) if "model_memory_gib" in numbers else 0.0
        return Capacity(
            _whole(numbers.get("kv_cache_tokens")), round(gib * _GIB) if gib > 0 else None, _whole(numbers.get("max_model_len"))
        )


def _whole(text: str | None) -> int | None:
    return int(text) if text else None


def _dig(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _compose(kernels: dict[str, str]) -> None:
    """`linear` from the slots per quantisation scheme, `graph_mode` from SGLang's decode and prefill graphs."""
    linear = [name for slot, value in sorted(kernels.items()) if slot.endswith("_linear") for name in value.split("+")]
    if linear and "linear" not in kernels:
        kernels["linear"] = "+".join(dict.fromkeys(linear))
    if "graph_mode" not in kernels and ("graph_decode" in kernels or "graph_prefill" in kernels):
        decode, prefill = kernels.get("graph_decode", UNKNOWN), kernels.get("graph_prefill", UNKNOWN)
        kernels["graph_mode"] = "eager" if decode == prefill == "disabled" else f"decode={decode},prefill={prefill}"


def read_kernels(engine: str, version: str, log_text: str, server_info: Mapping[str, Any] | None = None) -> KernelReport:
    """Kernels that `log_text` (and `server_info`, the parsed JSON of /server_info) say ran. See `KernelReport`."""
    return _read(engine, version, log_text).report(server_info)


def read_capacity(engine: str, version: str, log_text: str, server_info: Mapping[str, Any] | None = None) -> Capacity:
    """KV-cache tokens, weight bytes and context length that the log (else `server_info`) states. See `Capacity`."""
    return _read(engine, version, log_text).capacity(server_info)


def _read(engine: str, version: str | None, log_text: str) -> KernelReader:
    reader = KernelReader(engine, version or None)
    for _, line in scan(split_lines(log_text), reader.anchors(), lambda: False):
        reader.feed(read_line(line))
    return reader


def family(engine: str, slot: str, name: str) -> str:
    """The kernel family of one name as the log spells it ("MarlinExperts" -> "marlin"); the name itself when it belongs to none."""
    base = "linear" if slot.endswith("_linear") else slot
    best, length = name, -1
    for row_slot, kernel, names in kernel_facts(engine).families:
        for known in names if row_slot == base else ():
            prefix = known.removesuffix("*")
            if (name == known or (known.endswith("*") and name.startswith(prefix))) and len(prefix) > length:
                best, length = kernel, len(prefix)
    return best


def agrees(engine: str, slot: str, configured: str, actual: str) -> bool | None:
    """Whether `actual` is the kernel asked for; None when the log did not say. Of several actual kernels all must agree."""
    if actual == UNKNOWN or not actual:
        return None
    wanted = family(engine, slot, configured)
    if slot == "graph_mode" and UNKNOWN in actual:
        return None
    return all(name.casefold() == configured.casefold() or family(engine, slot, name) == wanted for name in actual.split("+"))


def mismatches(engine: str, configured: Mapping[str, str], actual: Mapping[str, str]) -> tuple[Mismatch, ...]:
    """Slots where the engine says it ran something else than was configured. Unknown slots are no mismatch (and no match)."""
    return tuple(
        Mismatch(slot, wanted, actual[slot])
        for slot, wanted in configured.items()
        if slot in actual and agrees(engine, slot, wanted, actual[slot]) is False
    )
