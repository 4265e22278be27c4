"""What is wrong with a serve command and its environment for one version, before anything is started.

Trap: an environment variable that a release no longer reads is ignored, and the wrong kernel runs for a night; a debug flag from an old
forum post halves the speed. Rule: every flag, value and variable is looked up in the tables of that very version; a name that is not
there is reported with the versions that had it, what replaced it, or the nearest names. Versions nobody read are said to be so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from runners.engines.flag_registry import FlagRegistry, nearest, registry
from runners.engines.versions import VersionRange, parse_version
from suites.backends import contradiction


class Severity(StrEnum):
    """`error`: no effect, no start, or a contradiction. `warning`: works, and is probably not what is wanted. `info`: good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class LintFinding:
    """One remark on the flag or variable `name`. `replacement` is what to write instead, `source` where the fact stands."""

    severity: Severity
    name: str
    message: str
    replacement: str | None
    source: str


@dataclass(frozen=True)
class _Given:
    """One flag as written (`flag`), without its value; `known` is its spelling in the tables, `value` None when none was given."""

    flag: str
    known: str
    value: str | None
    key: str = ""
    """Dotted JSON key behind the flag, such as moe_backend in --kernel-config.moe_backend."""


_JSON_CHOICES = {
    ("--kernel-config", "moe_backend"): "--moe-backend",
    ("--kernel-config", "linear_backend"): "--linear-backend",
    ("--attention-config", "backend"): "--attention-backend",
    ("--compilation-config", "cudagraph_mode"): "cudagraph_mode",
}
_FOLDED = {"--moe-backend": str.lower, "--linear-backend": str.lower, "--attention-backend": str.upper, "cudagraph_mode": str.upper}
_OPEN_LISTS = {("vllm", "--quantization")}
"""Choices that plugins may extend: an unknown value is a warning."""

MAX_SHOWN = 24
"""Choices that are listed in one message."""

_PREFIXES = {"vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_")}
_ALSO_OPTIMIZATION = "-O"


def lint(engine: str, version: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> list[LintFinding]:
    """Findings on serve arguments `argv` (without the serve command itself) and environment `env` for `engine` in `version`, errors first.

    Values are not printed unless they are no choice of a known list. Raises UnknownEngineError and VersionTextError.
    """
    facts = registry(engine)
    findings = list(_standing(facts, version))
    given = list(_parse(facts, version, argv, findings))
    for item in given:
        findings += _flag(facts, version, item)
    findings += _together(facts, version, argv, given, env or {})
    for name, value in sorted((env or {}).items()):
        if name.startswith(_PREFIXES[engine]):
            findings += _variable(facts, version, name, value)
    order = {severity: rank for rank, severity in enumerate(Severity)}
    return sorted(dict.fromkeys(findings), key=lambda finding: (order[finding.severity], finding.name))


def _standing(facts: FlagRegistry, version: str) -> Iterator[LintFinding]:
    sentence = facts.position(version).sentence(facts.engine)
    if sentence is not None:
        source = f"versions read: {facts.versions_read[0]} to {facts.versions_read[-1]}"
        yield LintFinding(Severity.INFO, f"{facts.engine}=={version}", sentence, None, source)


def _parse(facts: FlagRegistry, version: str, argv: Sequence[str], findings: list[LintFinding]) -> Iterator[_Given]:
    """The flags in `argv`; unknown ones become findings."""
    known = set(facts.flags_of(version))
    index = 0
    while index < len(argv):
        token = argv[index]
        index += 1
        if not token.startswith("-") or token in ("-", "--") or _is_number(token):
            continue
        written, equals, value = token.partition("=")
        flag, _, key = written.partition(".")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if facts.engine == "vllm" and not flag.startswith("--") and flag.startswith(_ALSO_OPTIMIZATION):
            continue
        spelled = flag if flag in known else _abbreviated(facts, version, flag, known, findings)
        following = argv[index] if not equals and index < len(argv) else None
        if spelled is None:
            continue
        fact = facts.flags[spelled]
        if not equals and fact.takes_value and following is not None and (not following.startswith("-") or _is_number(following)):
            value, equals, index = following, "=", index + 1
        if fact.takes_value and not equals and not key:
            findings.append(LintFinding(Severity.ERROR, flag, "needs a value and has none", None, _flags_source(facts)))
        yield _Given(flag, spelled, value if equals else None, key.removesuffix("+"))


def _abbreviated(facts: FlagRegistry, version: str, flag: str, known: set[str], findings: list[LintFinding]) -> str | None:
    """The one known flag that `flag` begins, as argparse would take it; else a finding and None."""
    canonical = {
        facts.flags[name].canonical for name in known if flag.startswith("--") and name.startswith(flag) and not name.startswith("--no-")
    }
    if len(canonical) == 1 and flag != "--":
        full = canonical.pop()
        findings.append(
            LintFinding(
                Severity.WARNING, flag, f"an abbreviation of {full}; a later flag can make it ambiguous", full, _flags_source(facts)
            )
        )
        return full
    findings.append(_unknown_flag(facts, version, flag, known))
    return None


def _unknown_flag(facts: FlagRegistry, version: str, flag: str, known: set[str]) -> LintFinding:
    notes = [note for note in facts.notes_for(flag, version) if note.level == "error"]
    if notes:
        return LintFinding(Severity.ERROR, flag, notes[0].message, notes[0].replacement, notes[0].source)
    fact = facts.flags.get(flag)
    if fact is not None:
        return LintFinding(
            Severity.ERROR, flag, _elsewhere(facts, "flag", version, fact.recognised), fact.replacement, _flags_source(facts)
        )
    close = nearest(flag, known)
    message = f"is no flag of {facts.engine} {version}, nor of any version read"
    return LintFinding(Severity.ERROR, flag, message + _did_you_mean(close), close[0] if close else None, _flags_source(facts))


def _flag(facts: FlagRegistry, version: str, item: _Given) -> Iterator[LintFinding]:
    fact = facts.flags[item.known]
    at = facts.effective(version)
    if fact.deprecated is not None and fact.deprecated.contains(at):
        message = f"deprecated in {version}" + (
            "" if fact.recognised.contains(facts.versions_read[-1]) else f", gone after {fact.recognised.last()}"
        )
        yield LintFinding(Severity.WARNING, item.flag, message, fact.replacement, _flags_source(facts))
    if not item.known.startswith("--no-"):
        for note in facts.notes_for(fact.canonical, version):
            yield LintFinding(Severity(note.level), item.flag, note.message, note.replacement, note.source)
    if item.value is not None:
        for table, value in _values(facts, version, item, fact.canonical):
            yield from _choice(facts, version, item.flag, table, value)


def _values(facts: FlagRegistry, version: str, item: _Given, canonical: str) -> Iterator[tuple[str, str]]:
    """(name of the table of choices, value) of one flag, looking into JSON and dotted keys too."""
    if item.value is None:
        return
    if facts.choices_of(canonical, version) is not None and not item.key:
        yield canonical, item.value
    pairs = {item.key: item.value} if item.key else _json(item.value)
    for key, value in pairs.items():
        table = _JSON_CHOICES.get((canonical, key)) or _JSON_CHOICES.get((_alias(facts, canonical), key))
        if table is not None and isinstance(value, str):
            yield table, value


def _alias(facts: FlagRegistry, flag: str) -> str:
    """The long name of a short flag, such as --compilation-config for -cc."""
    return next((name for name, fact in facts.flags.items() if fact.canonical == flag and name.startswith("--")), flag)


def _json(text: str) -> dict[str, object]:
    if not text.lstrip().startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _choice(facts: FlagRegistry, version: str, flag: str, table: str, value: str) -> Iterator[LintFinding]:
    choices = facts.choices_of(table, version)
    if choices is None or value == "auto" or "$" in value:
        return
    wanted = _FOLDED.get(table, str)(value)
    if table in ("--moe-backend", "--linear-backend"):
        wanted = wanted.replace("-", "_")
    if wanted in choices:
        return
    span = facts.choices.get(table, {}).get(wanted)
    close = nearest(wanted, choices)
    if span is not None:
        close = []
    message = f"{value[:60]!r} is no choice of {version}" + (f"; {_when(span)}" if span is not None else _did_you_mean(close))
    severity = Severity.WARNING if (facts.engine, table) in _OPEN_LISTS else Severity.ERROR
    shown = ", ".join(choices if len(choices) <= MAX_SHOWN else [*choices[:MAX_SHOWN], "..."])
    yield LintFinding(severity, flag, f"{message} (choices: {shown})", close[0] if close else None, f"facts/{facts.engine}/choices.csv")


def _variable(facts: FlagRegistry, version: str, name: str, value: str) -> Iterator[LintFinding]:
    at = facts.effective(version)
    notes = facts.notes_for(name, version)
    for note in notes:
        yield LintFinding(Severity(note.level), name, note.message, note.replacement, note.source)
    source = f"facts/{facts.engine}/environment.csv"
    span = facts.environment.get(name)
    if span is None or not span.contains(at):
        if any(note.level == "error" for note in notes):
            return
        if span is not None:
            yield LintFinding(Severity.ERROR, name, f"{_elsewhere(facts, 'variable', version, span)}; it has no effect here", None, source)
            return
        close = _nearest_variable(facts, version, name)
        silence = " (ignored without a word)" if facts.engine == "sglang" or not VersionRange.parse("0.17.0..").contains(at) else ""
        message = f"not a variable of {facts.engine} {version}, nor of any release read{silence}{_did_you_mean(close)}"
        yield LintFinding(Severity.ERROR, name, message, close[0] if close else None, source)
        return
    choices = facts.environment_choices.get(name)
    if choices and value and "$" not in value:
        allowed = [choice for choice, where in choices.items() if where.contains(at)]
        if allowed and value.casefold() not in {choice.casefold() for choice in allowed}:
            where = choices.get(value)
            message = f"{value[:60]!r} is no value of {name} in {version}" + (f"; {_when(where)}" if where is not None else "")
            yield LintFinding(
                Severity.ERROR, name, f"{message} (values: {', '.join(allowed)})", None, f"facts/{facts.engine}/environment_choices.csv"
            )


def _nearest_variable(facts: FlagRegistry, version: str, name: str) -> list[str]:
    """Variables of the version whose part after the common prefix looks like that of `name`."""
    prefix = next(item for item in _PREFIXES[facts.engine] if name.startswith(item))
    tails = {known.removeprefix(prefix): known for known in facts.environment_of(version) if known.startswith(prefix)}
    return [tails[tail] for tail in nearest(name.removeprefix(prefix), tails)]


def _together(
    facts: FlagRegistry, version: str, argv: Sequence[str], given: Sequence[_Given], env: Mapping[str, str]
) -> Iterator[LintFinding]:
    """Settings that contradict each other."""
    problem = contradiction(argv)
    if problem is not None:
        yield LintFinding(Severity.ERROR, problem.split(" ", 1)[0], f"contradiction: {problem}", None, "this command")
    canonical = {facts.flags[item.known].canonical: item for item in given}
    if facts.engine != "vllm":
        return
    config = canonical.get("--attention-config")
    if "--attention-backend" in canonical and config is not None and (config.key == "backend" or "backend" in _json(config.value or "")):
        yield LintFinding(
            Severity.ERROR,
            "--attention-backend",
            "given beside --attention-config backend: the engine refuses both",
            None,
            "engine/arg_utils.py",
        )
    moe = canonical.get("--moe-backend")
    marlin = env.get("VLLM_MXFP4_USE_MARLIN", "0").strip() not in ("", "0", "false", "False")
    if moe is not None and moe.value not in (None, "auto", "marlin") and marlin:
        yield LintFinding(
            Severity.ERROR, "VLLM_MXFP4_USE_MARLIN", f"asks for Marlin while --moe-backend asks for {moe.value}", None, "this command"
        )


def _elsewhere(facts: FlagRegistry, what: str, version: str, span: VersionRange) -> str:
    first, last, here = span.first(), span.last(), parse_version(facts.effective(version))
    if first is not None and here < first:
        return f"{what} exists from {first}" + (f" to {last}" if last is not None else "")
    if last is not None and here > last:
        return f"{what} removed after {last}"
    return f"{what} known in {span.text} only"


def _when(span: VersionRange) -> str:
    return f"it exists from {span.first()}" if span.last() is None else f"it was known from {span.first()} to {span.last()}"


def _did_you_mean(close: Iterable[str]) -> str:
    names = list(close)
    return f". Did you mean {' or '.join(names)}?" if names else ""


def _flags_source(facts: FlagRegistry) -> str:
    return f"facts/{facts.engine}/flags.csv"


def _is_number(text: str) -> bool:
    return text.lstrip("-").replace(".", "", 1).isdigit()
