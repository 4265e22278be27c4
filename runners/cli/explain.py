"""`sparkproof explain LOG`: what a server log alone says."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from results.redact import plain, redact
from runners.cli.shell import errors_shown, out, print_json, shown
from runners.engines.explain import Explanation, Health, explain_log
from runners.engines.flag_registry import registry
from runners.engines.known_issues import KnownIssue
from runners.engines.log_lines import bounded_lines
from runners.engines.signatures import Diagnosis
from runners.errors import UsageError
from runners.spec import EngineSpec

_COLOUR = {Health.HEALTHY: "bold green", Health.FAILED: "bold red", Health.UNKNOWN: "bold yellow"}


def explain(
    log: Annotated[str, typer.Argument(help="A server log of vLLM or SGLang, of any size; - reads standard input.")],
    engine: Annotated[str | None, typer.Option(help="name or name==version; found from the log when not given.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain a server log: engine and version, kernels that ran, the first cause of a failure, what to do, public issues.

    Examples:

      sparkproof explain server.log

      sparkproof explain --engine sglang==0.5.14 server.log --json

      docker logs CONTAINER 2>&1 | sparkproof explain -

    Exit codes: 0 the log was read (its `health` says healthy, failed or unknown), 2 usage.
    """
    with errors_shown():
        name, version = _engine(engine)
        found = explain_log(_piped() if log == "-" else Path(log), name, version)
        if json_:
            print_json(as_json(found))
        else:
            out.print(render(found))


def _piped() -> Iterable[str]:
    """Lines of standard input, with bounded memory. Raises UsageError for a keyboard."""
    if sys.stdin.isatty():
        raise UsageError("nothing is piped in.", where="standard input", todo="Give a file, or pipe a log: sparkproof explain - < LOG.")
    return bounded_lines(sys.stdin.buffer)


def _engine(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    spec = EngineSpec.parse(text)
    registry(spec.name)
    return spec.name, spec.version


def as_json(found: Explanation) -> dict[str, Any]:
    """The explanation as plain data; texts of the log are redacted."""
    data = _clean(asdict(found))
    if not isinstance(data, dict):
        raise UsageError("an explanation is not a mapping")
    data["issues"] = [_issue(issue) for issue in found.issues]
    return data


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return plain(redact(value))
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items() if key != "issues"}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def _issue(issue: KnownIssue) -> dict[str, str]:
    return {
        "issue": f"{issue.repo}#{issue.number}" if issue.number else issue.repo,
        "state": issue.state,
        "title": issue.title,
        "affected": issue.affected,
        "symptom": issue.symptom,
        "workaround": issue.workaround,
        "fixed_in": issue.fixed_in,
        "url": issue.url,
    }


def render(found: Explanation) -> RenderableType:
    """The explanation for a terminal: a fallback first, then health and cause, kernels, warnings, issues."""
    parts: list[RenderableType] = []
    for item in found.fallbacks:
        parts.append(Text(f"fallback: {item.slot} was configured as {item.configured}, {_safe(item.actual)} ran", style="bold red"))
    name = f"{found.engine} {found.version or '(version unknown)'}" if found.engine else "unknown engine"
    parts.append(Text.assemble((found.health.value, _COLOUR[found.health]), f"  {name}: {found.state}"))
    if found.version_note:
        parts.append(Text(f"version {found.version_note}", style="dim"))
    if found.failure is not None:
        parts += _failure(found.failure)
    elif found.health is Health.UNKNOWN and found.last_line:
        parts.append(Text(f"last line: {_safe(found.last_line)}", style="dim"))
    if found.kernels:
        parts.append(_kernels(found))
    parts += [
        Text(f"unparsed (a line of a known kind in words nobody knows yet): {_safe(line)}", style="yellow") for line in found.unparsed
    ]
    parts += _findings("warnings", found.warnings, "yellow")
    parts += _findings("also in the log", found.notes, "dim")
    parts += _issues(found.issues)
    return Group(*parts)


def _failure(item: Diagnosis) -> list[RenderableType]:
    outcome = item.outcome.value if item.outcome is not None else item.level
    head = Text.assemble(("\n" + outcome, "bold red"), f"  {item.signature}  ({item.failure_class}), line {item.line_no}")
    return [
        head,
        Padding(Text(_safe(item.excerpt), style="red"), (0, 0, 0, 2)),
        Text(f"meaning: {item.meaning}"),
        Text(f"to do:   {item.advice}", style="bold"),
        Text(f"source:  {item.source}", style="dim"),
    ]


def _kernels(found: Explanation) -> Table:
    table = Table(title="\nkernels", title_justify="left", header_style="bold")
    for column in ("slot", "configured", "actual"):
        table.add_column(column, overflow="fold")
    for slot in dict.fromkeys([*found.kernels, *found.configured]):
        table.add_row(slot, Text(_safe(found.configured.get(slot, "–"))), Text(_safe(found.kernels.get(slot, "unknown"))))
    capacity = found.capacity
    for name, value in (("KV cache tokens", capacity.kv_cache_tokens), ("context length", capacity.max_model_len)):
        if value is not None:
            table.add_row(name, "–", f"{value:,}")
    if capacity.model_memory_bytes is not None:
        table.add_row("model memory", "–", f"{capacity.model_memory_bytes / (1 << 30):.2f} GiB")
    return table


def _findings(title: str, items: Iterable[Diagnosis], style: str) -> list[RenderableType]:
    rows = list(items)
    if not rows:
        return []
    parts: list[RenderableType] = [Text(f"\n{title}", style="bold")]
    for item in rows:
        parts.append(Text(f"  {item.signature} line {item.line_no}: {item.meaning}", style=style))
        if item.level == "warning":
            parts.append(Text(f"      {item.advice}"))
    return parts


def _issues(issues: Iterable[KnownIssue]) -> list[RenderableType]:
    rows = list(issues)
    if not rows:
        return []
    parts: list[RenderableType] = [Text("\npublic issues", style="bold")]
    for issue in rows:
        parts.append(Text(f"  {issue.repo}#{issue.number} ({issue.state}): {issue.title}"))
        parts.append(Text(f"      affected: {issue.affected}; workaround: {issue.workaround}; fixed in: {issue.fixed_in}", style="dim"))
        if issue.url:
            parts.append(Text(f"      {issue.url}", style="dim"))
    return parts


def _safe(text: str) -> str:
    return shown(text, 1_000)
