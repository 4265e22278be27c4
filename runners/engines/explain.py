"""What somebody with nothing but a log can be told: engine, version, kernels, what failed first, and what to do.

Trap: a log of a gigabyte, a log that ends in the middle, a log of something else altogether. Rule: it is streamed once with bounded
memory; what it does not say is unknown; "healthy" is only said of a server that announced itself ready, "failed" only with the line that
shows it, and everything between (a compilation that never ended, a cut file, another program's output) is unknown, with what was seen
last.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any

from runners.engines.flag_registry import registry
from runners.engines.kernels import Capacity, KernelReader, Mismatch, mismatches
from runners.engines.known_issues import KnownIssue, cited, of_failure, touching
from runners.engines.log_lines import bounded_lines, read_line, scan
from runners.engines.signatures import Diagnosis, SignatureReader
from runners.engines.versions import version_range
from runners.errors import UsageError
from suites.regular_file import not_regular

PEEK_LINES = 5_000
"""Lines from which engine and version are found."""

MAX_ISSUES = 8
_ARGS = re.compile(
    r"'(?P<key>moe_backend|linear_backend|attention_backend|kv_cache_dtype)': "
    r"(?:'(?P<text>[^']{1,60})'|<AttentionBackendEnum\.(?P<enum>[A-Z0-9_]{1,60}))"
)
_DRAFTS = re.compile(r"'speculative_config': \{[^{}]{0,400}?'method': '(?P<text>[a-z0-9_]{2,40})'")
_SGLANG_DRAFTS = re.compile(r"speculative_algorithm(?:=|': )'(?P<text>[A-Z0-9_]{2,40})'")
_SGLANG_MOE = re.compile(r"moe_runner_backend(?:=|': )'(?P<text>[a-z0-9_]{2,60})'")
_FIELD = re.compile(r"(?:(?<=[(, ])(?P<plain>[a-z][a-z0-9_]{2,60})=|'(?P<quoted>[a-z][a-z0-9_]{2,60})': )")


class Health(StrEnum):
    """How the server of a log fared. `unknown`: neither a ready line nor a failure is in it."""

    HEALTHY = "healthy"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Explanation:
    """Everything a log says. `version` is None when the log states none; `version_note` then says what its wording allows."""

    health: Health
    state: str
    """One sentence on how far the server came."""
    engine: str | None
    version: str | None
    version_note: str | None
    configured: Mapping[str, str]
    kernels: Mapping[str, str]
    fallbacks: tuple[Mismatch, ...]
    unparsed: tuple[str, ...]
    capacity: Capacity
    failure: Diagnosis | None
    warnings: tuple[Diagnosis, ...]
    notes: tuple[Diagnosis, ...]
    issues: tuple[KnownIssue, ...]
    lines_read: int
    last_line: str
    """The last line that is not empty."""


@dataclass
class _Seen:
    """What is noted about every line while it passes by."""

    lines: int = 0
    last: str = ""
    allowed: tuple[str, ...] = ()
    """Versions that the log may be of."""
    junk: bool = False
    """True when the lines are no text."""
    configured: dict[str, str] = field(default_factory=dict)

    def watch(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self.lines += 1
            if line and not line.isspace():
                self.last = line
            yield line


def explain_log(path_or_lines: str | Path | Iterable[str], engine: str | None = None, version: str | None = None) -> Explanation:
    """Read a log (a path, or its lines) and explain it. Raises UsageError when the file cannot be read.

    `engine` and `version` are found from the log when not given. Memory stays bounded whatever the size of the log.
    """
    if not isinstance(path_or_lines, (str, Path)):
        return _explain(path_or_lines, engine, version)
    path = Path(path_or_lines)
    try:
        if (what := not_regular(path)) is not None:
            raise UsageError(f"{what}.", where=str(path), todo="Save the log to a file, or pipe it in: sparkproof explain - < LOG.")
        with path.open("rb") as stream:
            return _explain(bounded_lines(stream), engine, version)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}.", where=str(path), todo="Give the path of a server log.") from error


def _explain(lines: Iterable[str], engine: str | None, version: str | None) -> Explanation:
    stream = iter(lines)
    head = list(islice(stream, PEEK_LINES))
    engine = engine or identify_engine(head)
    note, allowed = None, [version] if version is not None else []
    if engine is not None and version is None:
        version, note, allowed = identify_version(engine, head)
    seen = _Seen(allowed=tuple(allowed), junk=engine is None and _is_junk(head))
    reader = SignatureReader(engine, version)
    kernels = KernelReader(engine or "", version)
    anchors = reader.anchors()
    extra = kernels.anchors() | ({"non-default args: "} if engine == "vllm" else {"server_args="} if engine == "sglang" else set())
    anchors |= extra
    for number, line in scan(seen.watch(chain(head, stream)), anchors, reader.wants_all):
        reader.feed(number, line)
        if any(anchor in line for anchor in extra):
            message = read_line(line)
            kernels.feed(message)
            _note_configured(seen.configured, message.message)
    return _put_together(engine, version, note, reader, kernels, seen)


def _put_together(
    engine: str | None, version: str | None, note: str | None, reader: SignatureReader, kernels: KernelReader, seen: _Seen
) -> Explanation:
    failure = reader.failure() if not seen.junk else None
    report = kernels.report()
    health, state = _health(engine, reader, failure, seen)
    findings = sorted(reader.findings.values(), key=lambda item: item.line_no)
    warnings = tuple(item for item in findings if item.level == "warning")
    return Explanation(
        health=health,
        state=state,
        engine=engine,
        version=version,
        version_note=note,
        configured=dict(seen.configured),
        kernels=report.kernels if engine is not None else {},
        fallbacks=mismatches(engine, seen.configured, report.kernels) if engine is not None and failure is None else (),
        unparsed=report.unparsed,
        capacity=kernels.capacity(),
        failure=failure,
        warnings=warnings,
        notes=tuple(item for item in findings if item.level == "info"),
        issues=_issues(engine, seen.allowed, failure, warnings, report.kernels),
        lines_read=seen.lines,
        last_line=read_line(seen.last).message[:400],
    )


def _issues(
    engine: str | None, versions: Sequence[str], failure: Diagnosis | None, warnings: Iterable[Diagnosis], kernels: Mapping[str, str]
) -> tuple[KnownIssue, ...]:
    if engine is None:
        return ()
    found = cited([failure.source] if failure is not None else [])
    found += of_failure(engine, versions, failure.failure_class) if failure is not None else []
    found += cited(item.source for item in warnings)
    if failure is None:
        found += touching(engine, versions, kernels)
    return tuple(dict.fromkeys(found))[:MAX_ISSUES]


def _health(engine: str | None, reader: SignatureReader, failure: Diagnosis | None, seen: _Seen) -> tuple[Health, str]:
    stopped = f"it was told to stop at line {reader.stop_line}" if reader.stop_line is not None else "the log ends"
    if failure is not None and not (reader.only_generic() and reader.ready_line is not None):
        when = "after it had been ready" if reader.ready_line is not None else "before it was ready"
        return Health.FAILED, f"failed {when}: line {failure.line_no} is the first cause"
    if failure is not None:
        return (
            Health.UNKNOWN,
            f"was ready (line {reader.ready_line}); the end names a dead engine without a cause, as an ordinary stop does too",
        )
    if reader.ready_line is not None:
        return Health.HEALTHY, f"was ready at line {reader.ready_line}" + (", then told to stop" if reader.stop_line is not None else "")
    if engine is None:
        return Health.UNKNOWN, "this does not look like a log of vLLM or SGLang"
    return Health.UNKNOWN, (
        f"never became ready and shows no error: {stopped} first. A kernel compiled at first use (JIT) looks like this for minutes; "
        "look for nvcc, cicc or ptxas among the processes, or give it more time"
    )


def _is_junk(lines: Sequence[str]) -> bool:
    """Whether more than one line in twenty holds NUL or bytes that are no text."""
    bad = sum("\0" in line or "\N{REPLACEMENT CHARACTER}" in line for line in lines)
    return bad * 20 > len(lines)


def _note_configured(configured: dict[str, str], message: str) -> None:
    """The kernels asked for, where the engine repeats its arguments."""
    if message.startswith("non-default args: "):
        slots = {"moe_backend": "moe", "linear_backend": "linear", "attention_backend": "attention", "kv_cache_dtype": "kv_cache_dtype"}
        for found in _ARGS.finditer(message):
            value = found["text"] or found["enum"] or ""
            if value.casefold() != "auto":
                configured[slots[found["key"]]] = value
        if "'enforce_eager': True" in message:
            configured["graph_mode"] = "eager"
        if (drafts := _DRAFTS.search(message)) is not None:
            configured["speculative"] = drafts["text"]
    elif message.startswith("server_args="):
        moe = _SGLANG_MOE.search(message)
        if moe is not None and moe["text"] != "auto":
            configured["moe"] = moe["text"]
        if (drafts := _SGLANG_DRAFTS.search(message)) is not None:
            configured["speculative"] = drafts["text"]


@lru_cache(maxsize=1)
def _identify_facts() -> dict[str, Any]:
    return tomllib.loads((files("runners.engines") / "facts" / "identify.toml").read_text(encoding="utf-8"))


def identify_engine(lines: Iterable[str]) -> str | None:
    """The engine whose marks the lines carry most; None when they carry none."""
    votes: Counter[str] = Counter()
    for line in lines:
        for engine, facts in _identify_facts().items():
            votes[engine] += any(mark in line for mark in facts["marks"])
    best = votes.most_common(1)
    return best[0][0] if best and best[0][1] > 0 else None


def identify_version(engine: str, lines: list[str]) -> tuple[str | None, str | None, list[str]]:
    """(version, note, versions): the version that the lines state, else None, a sentence on it, and the versions their wording allows."""
    facts = _identify_facts()[engine]
    for pattern in facts["version"]:
        compiled = re.compile(pattern)
        for line in lines:
            found = compiled.search(line)
            if found is not None:
                return found["version"], None, [found["version"]]
    allowed = _allowed(engine, facts, lines)
    if not allowed:
        return None, "not stated", []
    if len(allowed) == 1:
        return allowed[0], "found from the server arguments and the wording of the log", allowed
    return None, f"not stated; its wording and arguments allow {allowed[0]} to {allowed[-1]}", allowed


def _allowed(engine: str, facts: Mapping[str, Any], lines: list[str]) -> list[str]:
    """Versions read whose arguments and wordings fit the lines; all of them when nothing speaks."""
    table = registry(engine)
    candidates = list(table.versions_read)
    for bound in facts.get("bounds", ()):
        if any(bound["contains"] in line for line in lines):
            span = version_range(bound["versions"])
            candidates = [item for item in candidates if span.contains(item)]
    dump = next((message for line in lines if (message := read_line(line).message).startswith("server_args=")), None)
    if engine == "sglang" and dump is not None:
        fields = table.server_args
        given = {found["plain"] or found["quoted"] for found in _FIELD.finditer(dump)} & set(fields)
        complete = dump.rstrip().endswith((")", "}"))
        fitting = [item for item in candidates if all(fields[name].contains(item) for name in given)]
        if complete:
            missing = {item: sum(span.contains(item) for name, span in fields.items() if name not in given) for item in fitting}
            fitting = [item for item in fitting if missing[item] == min(missing.values())]
        candidates = fitting or candidates
    return [] if len(candidates) == len(table.versions_read) else candidates
