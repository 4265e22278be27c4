"""One boot as a bug report that its maintainers can act on: what ran, what it should have run, where it went wrong, what differs from good.

Trap: a bug report names a version and a model, and nobody can start the same server or see which of forty packages changed. Rule: build,
command, kernels asked for and kernels that ran, the first diverging token and the difference to the last good build are always there, or it
says that they are not known; everything is anonymised before anything is rendered.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from results.report.anonymous import Identity, anonymiser, cleaned, texts_in
from results.report.fences import cell, code, fenced, table
from results.report.wheels import wheel_changes
from results.vocabulary import Outcome

MOST_CHARACTERS = 60_000
"""GitHub refuses a text of more than 65,536 characters."""

_LOG, _ANSWER, _REASON, _COMMAND = 12_000, 1_500, 2_000, 6_000
_MOST_WHEELS, _MOST_IDS = 80, 12


@dataclass(frozen=True)
class IssueRows:
    """Rows of the store about one boot. `boot` is a row of the view `boots` with `wheels`, `good` one of the last boot that passed."""

    boot: Mapping[str, Any]
    good: Mapping[str, Any] | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    """Rows of `coherence_results` that were not right, the first one first."""
    diagnoses: Sequence[Mapping[str, Any]] = ()
    history: Sequence[Mapping[str, Any]] = ()
    """`release`, `state`, `boots` of the same cell, newest release first."""
    same_signature: Sequence[str] = ()
    """Engine and version of other boots that ended with the same signature."""
    backend_environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Issue:
    """Everything a report says, anonymised; `as_json` gives it to programs and `issue_markdown` to people."""

    title: str
    run_id: str
    outcome: str
    facts: Mapping[str, Any]
    build: Mapping[str, Any]
    wheel_changes: Sequence[Mapping[str, Any]]
    compared_with: Mapping[str, Any] | None
    command: str
    environment: Mapping[str, str]
    kernels: Sequence[Mapping[str, str]]
    reason: str | None
    divergence: Mapping[str, Any] | None
    wrong_answers: int
    diagnosis: Mapping[str, Any] | None
    history: Sequence[Mapping[str, Any]]
    same_signature: Sequence[str]
    log_excerpt: str | None
    warnings: Sequence[str] = field(default=())
    reproduce: str = ""

    def as_json(self) -> dict[str, Any]:
        """Every field."""
        return dict(vars(self))


def issue_of(rows: IssueRows, identity: Identity, *, own_backend: bool = False) -> Issue:
    """The report on one boot, without secrets, names and addresses. `own_backend`: its backend is a file that only its author has."""
    raw = vars(_issue(rows, own_backend=own_backend))
    clean = anonymiser(identity, list(texts_in(raw)))
    exact: dict[str, Callable[[Any], Any]] = {"run_id": str, "wheel_changes": list}  # versions look like addresses
    return Issue(**{name: exact[name](value) if name in exact else cleaned(value, clean) for name, value in raw.items()})


def _issue(rows: IssueRows, *, own_backend: bool) -> Issue:
    boot, good = rows.boot, rows.good
    first = rows.answers[0] if rows.answers else None
    engine = f"{boot['engine']} {boot['engine_version']}"
    where = boot["gpu_name"] or "CPU"
    return Issue(
        title=f"[{where}] {engine}: {boot['outcome'] or 'unfinished'} with {boot['recipe_name']} on backend {boot['backend_name']}",
        run_id=boot["run_id"],
        outcome=boot["outcome"] or f"unfinished, in phase {boot['phase']}",
        facts=_facts(boot),
        build=_build(boot),
        wheel_changes=[vars(c) for c in wheel_changes(_packages(good), _packages(boot))] if good is not None else [],
        compared_with=_build(good) if good is not None else None,
        command=shlex.join(boot["command"] or ()),
        environment=dict(boot["environment"] or {}),
        kernels=_kernels(boot),
        reason=boot["reason"],
        divergence=_divergence(first) if first is not None else None,
        wrong_answers=len(rows.answers),
        diagnosis=dict(rows.diagnoses[-1]) if rows.diagnoses else None,
        history=[dict(row) for row in rows.history],
        same_signature=list(rows.same_signature),
        log_excerpt=boot["log_excerpt"],
        warnings=list(boot["warnings"] or ()),
        reproduce=_reproduce(boot, rows.backend_environment if own_backend else None),
    )


def _facts(boot: Mapping[str, Any]) -> dict[str, Any]:
    names = {
        "phase": "phase",
        "signature": "signature",
        "model": "model",
        "model revision": "recipe_revision",
        "quantization": "quantization",
        "GPU": "gpu_name",
        "compute capability": "compute_capability",
        "driver": "driver_version",
        "CUDA": "cuda_version",
        "kernel": "kernel_version",
        "firmware": "firmware",
        "max_model_len": "max_model_len",
        "KV cache tokens": "kv_cache_tokens",
        "started at": "started_at",
    }
    return {shown: str(boot[column]) for shown, column in names.items() if boot.get(column) is not None}


def _build(boot: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "engine": boot["engine"],
        "version": boot["engine_version"],
        "version the server reports": boot["server_version"],
        "distribution": boot["distribution"],
        "image": boot["image_digest"],
        "python": boot["python_version"],
        "packages": len(boot["wheels"] or ()),
        "build": boot["build_id"],
    }


def _packages(boot: Mapping[str, Any] | None) -> Sequence[str]:
    return boot["wheels"] or () if boot is not None else ()


def _kernels(boot: Mapping[str, Any]) -> list[dict[str, str]]:
    configured, actual = boot["configured"] or {}, boot["actual"] or {}
    slots = sorted({*configured, *actual})
    return [{"slot": slot, "configured": configured.get(slot, "–"), "actual": actual.get(slot, "unknown")} for slot in slots]


def _divergence(answer: Mapping[str, Any]) -> dict[str, Any]:
    at = answer["first_divergence"]
    got, expected = answer["token_ids"] or [], answer["expected_ids"] or []
    start = max(0, (at or 0) - 3)
    return {
        "step": answer["step"],
        "prompt": answer["prompt_name"],
        "verdict": answer["verdict"],
        "reason": answer["reason"],
        "token": at,
        "shown from token": start,
        "expected ids": list(expected[start : start + _MOST_IDS]),
        "ids": list(got[start : start + _MOST_IDS]),
        "text": answer["text"],
    }


def _reproduce(boot: Mapping[str, Any], own_backend: Mapping[str, str] | None) -> str:
    """The command; `own_backend` is the environment of a backend that has to be written to a file first."""
    spec = f"{boot['engine']}=={boot['engine_version']}" + ("@docker" if boot["distribution"] == "docker" else "")
    backend = boot["backend_name"] if own_backend is None else "./backend.toml"
    command = shlex.join(["sparkproof", "run", "--engine", spec, "--model", boot["recipe_name"], "--backend", backend])
    return command if own_backend is None else f"cat > backend.toml <<'END'\n{_backend_file(boot, own_backend)}END\n{command}"


def _backend_file(boot: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """A backend file (suites/backends) that asks for the same; strings of JSON are strings of TOML."""
    lines = [
        f"name = {json.dumps(boot['backend_name'])}",
        f"description = {json.dumps('The backend of run ' + boot['run_id'])}",
        "",
        f"[[engines.{boot['engine']}]]",
        f"arguments = {json.dumps(list(boot['backend_arguments'] or ()))}",
    ]
    for name, mapping in (("environment", environment), ("kernels", boot["configured"] or {})):
        lines.append(f"{name} = {{ {', '.join(f'{json.dumps(key)} = {json.dumps(mapping[key])}' for key in sorted(mapping))} }}")
    return "\n".join(lines) + "\n"


def issue_markdown(issue: Issue) -> str:
    """The report as GitHub Markdown. Nothing in it that came from a server, a log or a name can be markup."""
    parts = [f"### {code(issue.title, 300)}", *_what_happened(issue), *_what_ran(issue), *_what_changed(issue), *_evidence(issue)]
    text = "\n\n".join(parts) + "\n"
    return text if len(text) <= MOST_CHARACTERS else _shortened(issue)


def _shortened(issue: Issue) -> str:
    """Without the long parts, so that fences stay whole."""
    parts = [f"### {code(issue.title, 300)}", *_what_happened(issue), *_what_ran(issue)]
    return "\n\n".join([*parts, "The log excerpt and the wheel difference are too long for one report."])[:MOST_CHARACTERS] + "\n"


def _what_happened(issue: Issue) -> list[str]:
    parts = [f"Outcome: **{_outcome(issue.outcome)}**" + (f", run {code(issue.run_id)}")]
    if issue.reason:
        parts.append(fenced(issue.reason, _REASON))
    if issue.diagnosis is not None:
        why = issue.diagnosis
        use = ", ".join(code(flag) for flag in why.get("use_instead") or ()) or "nothing found"
        controls = len(why.get("controls") or ())
        parts += [
            "#### Diagnosis",
            fenced(str(why.get("sentence")), _REASON),
            f"From {controls} control boots on the same weights. Works: {use}",
        ]
    if issue.divergence is not None:
        parts += _diverged(issue.divergence, issue.wrong_answers)
    return parts


def _outcome(text: str) -> str:
    return text if text in set(Outcome) else code(text)


def _diverged(first: Mapping[str, Any], wrong: int) -> list[str]:
    at = "unknown" if first["token"] is None else str(first["token"])
    rows = [
        ("judged in step", cell(str(first["step"]))),
        ("prompt", cell(str(first["prompt"]))),
        ("verdict", cell(str(first["verdict"]))),
        ("first differing token", at),
        (f"expected ids from {first['shown from token']}", cell(" ".join(map(str, first["expected ids"])) or "none")),
        (f"ids from {first['shown from token']}", cell(" ".join(map(str, first["ids"])) or "not reported")),
    ]
    head = f"#### First wrong answer ({wrong} in all)"
    return [head, table(("", ""), rows), fenced(str(first["reason"]), _REASON), "The answer:", fenced(str(first["text"]), _ANSWER)]


def _what_ran(issue: Issue) -> list[str]:
    facts = [(name, cell(value)) for name, value in issue.facts.items()]
    build = [(name, cell(str(value))) for name, value in issue.build.items() if value is not None]
    kernels = [(cell(k["slot"]), cell(k["configured"]), cell(k["actual"])) for k in issue.kernels]
    parts = ["#### Build and node", table(("", ""), [*build, *facts])]
    parts += ["#### Kernels", table(("slot", "configured", "actual"), kernels) if kernels else "No kernel is known."]
    variables = "".join(f"{name}={shlex.quote(value)} \\\n" for name, value in sorted(issue.environment.items()))
    command = fenced(variables + issue.command, _COMMAND, "sh") if issue.command else "No server was started for this boot."
    again = "The same boot again (a model of one's own is given by its path):"
    return [*parts, "#### Command", command, again, fenced(issue.reproduce, _COMMAND, "sh")]


def _what_changed(issue: Issue) -> list[str]:
    parts: list[str] = []
    if issue.history:
        rows = [(cell(str(row["release"])), cell(str(row["state"])), str(int(row["boots"]))) for row in issue.history]
        parts += ["#### The same cell on other releases", table(("release", "state", "boots"), rows)]
    if issue.compared_with is None:
        return [*parts, "#### Difference to the last good build", "No boot of this cell has passed on this release or an earlier one."]
    good = f"{issue.compared_with['engine']} {issue.compared_with['version']}"
    parts.append(f"#### Difference to the last good build ({code(good)})")
    if not issue.wheel_changes:
        known = issue.build["packages"] and issue.compared_with["packages"]
        return [*parts, "No package differs." if known else "The packages of one side are not known."]
    shown = [(cell(c["name"]), cell(c["before"] or "–"), cell(c["after"] or "–")) for c in issue.wheel_changes[:_MOST_WHEELS]]
    more = len(issue.wheel_changes) - len(shown)
    return [*parts, table(("package", "good", "this boot"), shown), *([f"and {more} more"] if more else [])]


def _evidence(issue: Issue) -> list[str]:
    parts: list[str] = []
    if issue.same_signature:
        parts.append("The same signature was seen on: " + ", ".join(code(one) for one in issue.same_signature[:20]))
    if issue.warnings:
        parts += ["#### Warnings", fenced("\n".join(issue.warnings), _REASON)]
    log = fenced(issue.log_excerpt, _LOG) if issue.log_excerpt else "No log excerpt was kept."
    return [*parts, "#### Log excerpt", log]
