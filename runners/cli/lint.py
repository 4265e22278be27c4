"""`sparkproof lint`: flags and variables of a serve command against one version's own tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from results.redact import plain, redact
from results.vocabulary import ExitCode
from runners.cli.shell import errors_shown, out, print_json
from runners.engines.flag_registry import ENGINES, registry
from runners.engines.lint import LintFinding, Severity
from runners.engines.lint import lint as lint_command
from runners.engines.script_reader import read_env_file, read_script
from runners.errors import UsageError
from runners.spec import EngineSpec

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}


@dataclass
class _Asked:
    """What is to be checked: `version` None is not known; `notes` are findings about the reading itself."""

    engine: str | None = None
    version: str | None = None
    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    where: str = ""
    notes: list[LintFinding] = field(default_factory=list)


def lint(
    what: Annotated[
        list[str] | None,
        typer.Argument(help="A serve script, or the serve arguments after --. A script is read, never run.", show_default=False),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="name==version; a script may tell it too (image tag, pip install).")] = None,
    env_file: Annotated[Path | None, typer.Option("--env-file", help="NAME=VALUE lines to check as well.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check serve flags and environment variables for one version before anything is started.

    Examples:

      sparkproof lint --engine vllm==0.17.1 -- --moe-backend marlin --enforce-eager

      sparkproof lint --engine vllm==0.24.0 --env-file serve.env

      sparkproof lint serve.sh

    Exit codes: 0 nothing wrong, 1 a finding of level error, 2 usage.
    """
    with errors_shown():
        asked = _asked(what or [], engine, env_file)
        findings = [*asked.notes, *_check(asked)]
        if json_:
            print_json({"engine": asked.engine, "version": asked.version, "findings": [_as_json(item, asked) for item in findings]})
        else:
            _print(asked, findings)
        if any(item.severity is Severity.ERROR for item in findings):
            raise SystemExit(ExitCode.BROKEN_OR_SLOWER)


def _asked(what: list[str], engine: str | None, env_file: Path | None) -> _Asked:
    asked = _Asked()
    if len(what) == 1 and not what[0].startswith("-") and Path(what[0]).exists():
        _from_script(asked, Path(what[0]))
    elif what and len(what) == 1 and what[0].endswith((".sh", ".bash")):
        raise UsageError("no such file.", where=what[0], todo="Give the path of a serve script, or the serve arguments after --.")
    else:
        asked.arguments = what
    if env_file is not None:
        asked.environment |= read_env_file(env_file)
    if engine is not None:
        spec = EngineSpec.parse(engine)
        if asked.engine is not None and asked.engine != spec.name:
            raise UsageError(f"the script serves with {asked.engine}, not {spec.name}.", where=asked.where)
        asked.engine, asked.version = spec.name, spec.version or asked.version
    if not asked.arguments and not asked.environment:
        raise UsageError("nothing to check.", todo="Give a serve script, --env-file, or the serve arguments after --.")
    if asked.engine is None:
        raise UsageError("the engine is not known.", todo=f"Add --engine NAME==VERSION; names: {', '.join(ENGINES)}.")
    facts = registry(asked.engine)
    if asked.version is None:
        asked.version = facts.versions_read[-1]
        message = f"no version is given, so the newest version read is taken ({asked.version}); add --engine {asked.engine}==VERSION"
        asked.notes.append(LintFinding(Severity.INFO, asked.engine, message, None, "this command"))
    return asked


def _from_script(asked: _Asked, path: Path) -> None:
    script = read_script(path)
    asked.engine, asked.version, asked.where = script.engine, script.version, str(path)
    asked.arguments, asked.environment, asked.lines = list(script.arguments), dict(script.environment), dict(script.environment_lines)
    for token in script.arguments:
        if token.startswith("-"):
            asked.lines.setdefault(token.partition("=")[0], script.line)
    for name in script.unresolved:
        message = f"${name} is not set in the script; what it holds was not checked"
        asked.notes.append(LintFinding(Severity.INFO, f"${name}", message, None, f"{path}:{script.line}"))


def _check(asked: _Asked) -> list[LintFinding]:
    if asked.engine is None or asked.version is None:
        raise UsageError("engine and version are not known.")
    return lint_command(asked.engine, asked.version, asked.arguments, asked.environment)


def _as_json(item: LintFinding, asked: _Asked) -> dict[str, Any]:
    return {
        "severity": item.severity.value,
        "name": item.name,
        "message": plain(redact(item.message)),
        "replacement": item.replacement,
        "source": item.source,
        "line": asked.lines.get(item.name),
    }


def _print(asked: _Asked, findings: list[LintFinding]) -> None:
    if not findings:
        out.print(Text(f"{asked.engine} {asked.version}: nothing to remark", style="green"))
        return
    for item in findings:
        line = asked.lines.get(item.name)
        place = f"{asked.where}:{line}: " if asked.where and line is not None else ""
        text = Text(place, style="dim")
        text.append(f"{item.severity.value} ", style=_STYLE[item.severity])
        text.append(plain(item.name, 120), style="bold")
        text.append(f"  {plain(redact(item.message), 1_200)}")
        out.print(text, soft_wrap=True)
        if item.replacement:
            out.print(Text(f"    use instead: {item.replacement}", style="green"), soft_wrap=True)
        out.print(Text(f"    source: {item.source}", style="dim"), soft_wrap=True)
