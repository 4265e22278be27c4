"""`sparkproof nightly`: what the timer starts: find releases, measure what is missing, tell what broke."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import platformdirs
import typer

from results.errors import StoreError
from results.redact import plain
from results.store import Store
from results.vocabulary import ExitCode
from runners.alarms.deliver import Bell, Delivery
from runners.alarms.news import FINDINGS, FIXED, ROOFLINES, Alarm, above_roofline, alarms_of, is_bad, of_failure
from runners.alarms.settings import read_settings
from runners.cli.progress import SessionProgress
from runners.cli.shell import err, errors_shown, open_store, out, print_json, shown
from runners.envs.environment import cache_folder
from runners.errors import UsageError
from runners.nightly.cells import name_of
from runners.nightly.install_ahead import InstallAhead
from runners.nightly.planner import Candidate, Choice, why_not_now
from runners.nightly.self_check import boots_in_sight
from runners.nightly.state import StateFile
from runners.nightly.visit import NightPlan, NightRequest, NightResult, Tools, plan_night, preview, run_night
from runners.node.lock import node_lock
from runners.process.interrupt import Interrupted, interruptible
from runners.recorder import utc_now
from suites.suite_files import suite_for

_BUDGET = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(s|m|min|h)")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
LOCK = "nightly"


def nightly(
    suite: Annotated[str, typer.Option(help="Suite name, or the path of a suite file.")] = "nightly",
    budget: Annotated[str | None, typer.Option(help="Time that may be used, such as 6h or 90m. Default: until all is measured.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be measured, in which order; start nothing.")] = False,
    prereleases: Annotated[bool, typer.Option("--prereleases", help="Count pre-releases as releases.")] = False,
    download: Annotated[bool, typer.Option("--download", help="Allow fetching model files from a hub.")] = False,
    install_beside: Annotated[
        bool, typer.Option("--install-beside", help="Install the next environment while a boot is measured; may cost speed.")
    ] = False,
    label: Annotated[str | None, typer.Option(help="What you call this node.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find new releases, measure what is missing or stale by value, confirm what moved, and tell what broke, slowed down or was fixed.

    Killed, rebooted or out of budget, it goes on where it stopped the next time. One runs per node.

    Examples:

      sparkproof nightly --budget 6h

      sparkproof nightly --suite my-night.toml --budget 90m --dry-run

    Exit codes: 0 nothing new is broken or slower, 1 something is (confirmed), 2 usage, 3 our or the node's fault, 130 interrupted.
    """
    with errors_shown():
        store, allowed = open_store(), duration(budget)

        def make_request() -> NightRequest:
            return NightRequest(suite_for(suite), allowed, prereleases, download, label, install_beside)

        if dry_run:
            request = make_request()
            _show_preview(plan_night(request), request, store, json_)
            return
        bell = Bell(store.root, read_settings())
        try:
            with node_lock(platformdirs.user_state_path("sparkproof"), sys.argv, wait_s=0.0, name=LOCK), interruptible():
                result = _night(make_request, store, bell)
        except Interrupted as stop:  # between two visits: inside one it is a boot's outcome
            _say(f"{stop}; start it again and it goes on here")
            raise SystemExit(ExitCode.INTERRUPTED) from stop
        delivery = _tell(bell, store, result)
        exit_code = _exit_code(result, delivery)
        if json_:
            print_json(_as_json(result, delivery, exit_code))
        else:
            _print(result, delivery)
        raise SystemExit(exit_code)


def _night(make_request: Callable[[], NightRequest], store: Store, bell: Bell) -> NightResult:
    """The night; whatever ends it early is told by the bell before it is raised."""
    try:
        request = make_request()
        with err.status("asking the index for releases ..."):
            plan = plan_night(request)
        for engine, why in plan.discovery.troubles:
            _say(f"{engine}: {why}")
        with SessionProgress(open_ended=True) as progress, InstallAhead(cache_folder(), has_cuda=plan.has_cuda) as ahead:
            return run_night(plan, request, store, cache_folder(), progress, Tools(install_ahead=ahead.next, say=_say))
    except Exception as error:
        day = utc_now()[:10]
        try:
            delivery = bell.ring([of_failure(str(error) or repr(error), day)], f"Night of {day}", ["It ended early."])
            problems = delivery.problems
        except StoreError as mute:
            problems = (str(mute),)
        for problem in problems:
            _say(f"alarm not delivered: {problem}")
        raise


def _say(text: str) -> None:
    err.print(shown(text, 1_000), markup=False)


def duration(text: str | None) -> timedelta | None:
    """`6h`, `90m`, `1.5h` as a duration; None stays None. Raises UsageError."""
    if text is None:
        return None
    found = _BUDGET.fullmatch(text.strip().lower())
    if found is None or float(found.group(1)) <= 0:
        raise UsageError(f"{text[:40]!r} is no duration.", todo="Write something like 6h, 90m or 1.5h.")
    return timedelta(**{_UNITS[found.group(2)]: float(found.group(1))})


def _tell(bell: Bell, store: Store, result: NightResult) -> Delivery:
    alarms = current_alarms(store)
    day = utc_now()[:10]
    if result.unsafe is not None or result.node_off is not None:
        alarms.append(of_failure(result.ended, day, result.plan.node.label))
    failures = [*result.failures, *(f"{engine}: {why}" for engine, why in result.plan.discovery.troubles)]
    alarms += [of_failure(failure, day, result.plan.node.label) for failure in failures]
    return bell.ring(alarms, f"Night of {day}", _facts(result))


def current_alarms(store: Store) -> list[Alarm]:
    """Everything in the store that is worth an alarm, told or not."""
    if not store.database.exists():
        return []
    return [*alarms_of(store.query(FINDINGS), store.query(FIXED)), *above_roofline(store.query(ROOFLINES))]


def _facts(result: NightResult) -> list[str]:
    outcomes: dict[str, int] = {}
    for made in result.results:
        outcomes[str(made.run.outcome)] = outcomes.get(str(made.run.outcome), 0) + 1
    boots = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items())) or "none"
    facts = [f"node {result.plan.node.label}", f"boots: {boots}", f"ended: {result.ended}"]
    if result.left:
        facts.append(f"left for another night: {result.left} boots")
    if result.went_on:
        facts.append("went on with a session that was cut off")
    if result.removed is not None:
        facts.append(f"environments removed: {', '.join(result.removed.removed)} ({result.removed.freed_bytes / 1e9:.1f} GB)")
    if result.self_check is not None:
        facts.append(result.self_check.sentence)
    return [*facts, *result.notes]


def _exit_code(result: NightResult, delivery: Delivery) -> int:
    if result.interrupted:
        return ExitCode.INTERRUPTED
    if any(is_bad(alarm) and alarm.kind != "nightly_failed" for alarm in delivery.new):
        return ExitCode.BROKEN_OR_SLOWER
    off = result.unsafe is not None or result.node_off is not None
    failed = off or bool(result.failures) or any(made.unstored for made in result.results)
    return ExitCode.INFRASTRUCTURE if failed or (not result.results and result.plan.discovery.troubles) else ExitCode.OK


def _print(result: NightResult, delivery: Delivery) -> None:
    for fact in _facts(result):
        out.print(shown(fact, 1_000), markup=False)
    for alarm in delivery.new:
        out.print(shown(f"{alarm.kind}: {alarm.title}: {alarm.reason}", 1_000), markup=False, style="red" if is_bad(alarm) else "green")
    for problem in delivery.problems:
        _say(f"alarm not delivered: {problem}")
    out.print(shown(f"summary: {delivery.summary}"), markup=False)


def _as_json(result: NightResult, delivery: Delivery, exit_code: int) -> dict[str, Any]:
    return {
        "node": result.plan.node.label,
        "releases": [str(spec) for spec in result.plan.discovery.specs],
        "passed_over": dict(result.plan.discovery.passed_over),
        "troubles": dict(result.plan.discovery.troubles),
        "boots": [
            {
                "run_id": made.run.run_id,
                "session_id": made.run.session_id,
                "cell": name_of(made.planned.cell),
                "purpose": made.run.purpose,
                "outcome": made.run.outcome,
                "void": made.void,
            }
            for made in result.results
        ],
        "ended": result.ended,
        "left": result.left,
        "went_on": result.went_on,
        "notes": result.notes,
        "removed_environments": list(result.removed.removed) if result.removed else [],
        "self_check": result.self_check.sentence if result.self_check else None,
        "alarms": [{"kind": alarm.kind, "title": alarm.title, "reason": alarm.reason, "key": alarm.key} for alarm in delivery.new],
        "not_delivered": list(delivery.problems),
        "summary": str(delivery.summary),
        "feed": str(delivery.feed),
        "exit_code": exit_code,
    }


def _show_preview(plan: NightPlan, request: NightRequest, store: Store, json_: bool) -> None:
    choices, candidates = preview(plan, request, store)
    every = timedelta(days=request.suite.nightly.self_check_days)
    check = boots_in_sight(plan.night.anchor, StateFile(store.root).read(), datetime.now(UTC), every)
    if json_:
        print_json(
            {
                "node": plan.node.label,
                "releases": [str(spec) for spec in plan.discovery.specs],
                "passed_over": dict(plan.discovery.passed_over),
                "troubles": dict(plan.discovery.troubles),
                "boots": [_choice_row(choice) for choice in choices],
                "self_check_boots": check,
                "left_out": {**dict(plan.night.left_out), **_blocked(candidates)},
            }
        )
        return
    out.print(f"node {plain(plan.node.label, 80)}: {len(choices)} boots{_how_long(choices)}", markup=False)
    for name, why in (*plan.discovery.passed_over, *plan.discovery.troubles, *plan.night.left_out, *_blocked(candidates).items()):
        out.print(shown(f"  not {name}: {why}", 400), markup=False, style="dim")
    for number, choice in enumerate(choices, start=1):
        row = _choice_row(choice)
        minutes = f", about {row['seconds'] / 60:.0f} min" if row["seconds"] is not None else ""
        out.print(shown(f"{number:3}. {row['cell']}  ({row['why']}{minutes})"), markup=False)
    if check:
        out.print(f"and {check} of the anchor for the self-check, which is due, if there is time for all of them", markup=False)


def _how_long(choices: Sequence[Choice]) -> str:
    known = [choice.candidate.seconds for choice in choices if choice.candidate.seconds is not None]
    unknown = len(choices) - len(known)
    told = f", about {sum(known) / 60:.0f} min" if known else ""
    return told + (f"; how long {unknown} of them take is not known yet, so that a budget may end before them" if unknown else "")


def _choice_row(choice: Choice) -> dict[str, Any]:
    return {"cell": choice.candidate.name, "why": choice.value.name.lower(), "seconds": choice.candidate.seconds}


def _blocked(candidates: list[Candidate]) -> dict[str, str]:
    reasons = {c.name: why_not_now(c, candidates) for c in candidates if c.needed}
    return {name: why for name, why in reasons.items() if why is not None}
