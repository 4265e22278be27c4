"""One night: discover, measure by value, confirm, check ourselves, clean up. Every boot is chosen after the one before it is stored.

Trap: a night that is planned once, killed at two and started again at three measures everything twice, or goes on measuring on a node that
has become slow. Rule: each choice is made from the store; a cut-off session is gone on with while the machine is up and its budget lasts;
a node whose probe is off ends the session, rests, and is tried again.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from results.errors import StoreError
from results.kept_records import SessionRecord
from results.records import NodeRecord
from results.store import Store
from results.verdict.facts import VerdictInputError
from results.verdict.numbers import MIN_BOOTS
from results.verdict.words import NO_EVIDENCE
from results.vocabulary import Outcome, Purpose
from runners.confirm_boots import confirming_boots
from runners.errors import UsageError
from runners.nightly.cells import Known, NightCells, candidates_of, cells_of, name_of, stored_boots
from runners.nightly.collect import Removed, collect, last_uses, stamps_in
from runners.nightly.discovery import Discovery, discover
from runners.nightly.planner import (
    MOST_FAULTS,
    NOTHING_YET,
    Candidate,
    Choice,
    LastBoot,
    Value,
    booted,
    next_choice,
    whole_night,
    why_not_now,
)
from runners.nightly.self_check import SELF_CHECK_BOOTS, SelfCheck, judge_self_check, next_self_check
from runners.nightly.state import NightState, StateFile
from runners.node.facts import has_cuda, read_node
from runners.pipeline import BootResult
from runners.plan import Cell, PlannedBoot
from runners.process.table import machine_boot_id
from runners.session import Plan, RunRequest, Watcher, run_session
from runners.spec import EngineSpec
from suites.suite_files import Suite

REST_S = 900.0
"""A node whose probe is off cools down this long before it is tried again."""
MOST_RESTS = 3


@dataclass(frozen=True)
class NightRequest:
    """What was asked for. `budget` None: until everything is measured."""

    suite: Suite
    budget: timedelta | None = None
    prereleases: bool = False
    download: bool = False
    label: str | None = None
    install_beside: bool = False
    """Install the next environment while a boot is measured, at low priority. Off: nobody has shown yet that it does not disturb."""


@dataclass(frozen=True)
class NightPlan:
    """What is known before anything starts."""

    node: NodeRecord
    discovery: Discovery
    night: NightCells
    wanted: int

    @property
    def has_cuda(self) -> bool:
        """Whether the node has an NVIDIA driver."""
        return has_cuda(self.node)


@dataclass
class NightResult:
    """What a night did. `ended` says why it stopped, in words."""

    plan: NightPlan
    results: list[BootResult] = field(default_factory=list)
    ended: str = "everything that can be measured is measured"
    interrupted: bool = False
    node_off: str | None = None
    went_on: bool = False
    left: int = 0  # boots that are still wanted and could be made
    removed: Removed | None = None
    self_check: SelfCheck | None = None
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """What went wrong with the night itself, in words: cells that were given up, a night before this one that was cut off."""

    @property
    def unsafe(self) -> str | None:
        """Why no further boot may follow on this node."""
        return next((result.unsafe for result in self.results if result.unsafe is not None), None)


@dataclass(frozen=True)
class Tools:
    """Everything of the outside world that a night uses, for tests to replace."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep
    read_node: Callable[[str | None], NodeRecord] = read_node
    discover: Callable[..., Discovery] = discover
    run_session: Callable[..., list[BootResult]] = run_session
    machine_boot_id: Callable[[], str] = machine_boot_id
    boots: Callable[[Store, str], Sequence[Mapping[str, Any]]] = stored_boots
    install_ahead: Callable[[Cell | None], None] = lambda cell: None
    """Told of the cell that comes after the present one (None: nothing is to be installed)."""
    say: Callable[[str], None] = lambda text: None


def plan_night(request: NightRequest, tools: Tools | None = None) -> NightPlan:
    """Find the releases and make the cells. Raises UsageError, SuiteError or InfrastructureError before anything starts."""
    tools = tools or Tools()
    choice = request.suite.nightly
    node = tools.read_node(request.label)
    cuda = has_cuda(node)
    also = [EngineSpec.parse(text) for text in choice.also]
    found = tools.discover(choice.engines, choice.releases, has_cuda=cuda, prereleases=request.prereleases or choice.prereleases)
    specs = [*found.specs, *(spec for spec in also if spec not in found.specs)]
    night = cells_of(request.suite, specs, has_cuda=cuda, may_download=request.download)
    if not night.cells:
        told = "; ".join(f"{name}: {why}" for name, why in (*found.troubles, *night.left_out))
        raise UsageError(
            "there is nothing to measure tonight.", where=request.suite.name, todo=told or "Name engines and recipes in the suite."
        )
    return NightPlan(node, found, night, max(MIN_BOOTS, request.suite.boots))


def preview(plan: NightPlan, request: NightRequest, store: Store, tools: Tools | None = None) -> tuple[list[Choice], list[Candidate]]:
    """For `--dry-run`: the boots in the order they would be made now, the session's anchor first, and every cell."""
    tools = tools or Tools()
    candidates = candidates_of(plan.night, Known(plan.node, tools.boots(store, plan.node.node_id), tools.now()), plan.wanted)
    left = None if request.budget is None else request.budget.total_seconds()
    goes_on = StateFile(store.root).read().goes_on(tools.now(), request.budget, tools.machine_boot_id())
    anchor = None if goes_on else next((c for c in candidates if c.is_anchor), None)
    if anchor is None:
        return list(whole_night(candidates, left)), candidates
    after = [booted(c) if c.is_anchor else c for c in candidates]
    left = None if left is None else max(0.0, left - (anchor.seconds or 0.0))
    rest = whole_night(after, left, LastBoot(anchor.name, not anchor.is_canary))
    return [Choice(anchor, Value.ANCHOR), *rest], candidates


def run_night(
    plan: NightPlan, request: NightRequest, store: Store, cache_root: Path, watcher: Watcher, tools: Tools | None = None
) -> NightResult:
    """Measure until nothing is left, the budget is used, the node is off, or somebody interrupts. Raises StoreError and SparkproofError."""
    return _Night(plan, request, store, cache_root, watcher, tools or Tools()).run()


class _Night:
    def __init__(self, plan: NightPlan, request: NightRequest, store: Store, cache_root: Path, watcher: Watcher, tools: Tools) -> None:
        self.plan, self.request, self.store, self.cache_root, self.watcher, self.tools = plan, request, store, cache_root, watcher, tools
        self.state_file = StateFile(store.root)
        self.state = NightState()
        self.result = NightResult(plan)
        self.session: SessionRecord | None = None
        self.collected: frozenset[Path] | None = None

    def run(self) -> NightResult:
        try:
            return self._run()
        except BaseException:  # told by whoever catches it; the next night need not tell it again
            with contextlib.suppress(StoreError):
                self.state_file.update(end_known=True)
            raise

    def _run(self) -> NightResult:
        self.store.ingest_pending()
        self._collect_environments()
        self._begin()
        for rest in range(MOST_RESTS + 1):
            self._session()
            if self.result.node_off is None or self._stopped() or rest == MOST_RESTS or not self._can_rest():
                break
            self.tools.say(f"the node is off ({self.result.node_off}); resting {REST_S / 60:.0f} minutes")
            self.tools.sleep(REST_S)
            self._new_session()
        self.state_file.update(finished=not self.result.interrupted, end_known=True)
        self.result.failures += self._known().given_up(self.plan.night.cells)
        candidates = self._candidates()
        self.result.left = sum(c.needed for c in candidates if why_not_now(c, candidates) is None)
        if not self.result.interrupted:  # who wants it to end does not want to wait for hundreds of thousands of files
            self._collect_environments()
        return self.result

    def _begin(self) -> None:
        """Go on with a session that was cut off, or begin a new one."""
        self.state = self.state_file.read()
        boot_id = self.tools.machine_boot_id()
        if self.state.goes_on(self.tools.now(), self.request.budget, boot_id):
            self.result.went_on = True
            self.state = self.state_file.update(end_known=False)
            cut_off = SessionRecord(self.state.session_id or "", self.plan.node.node_id, "nightly", self.state.began_at or "")
            self.session = cut_off
            passed = [b["run_id"] for b in self._of_session(Purpose.ANCHOR) if b["outcome"] == Outcome.PASS]
            self.session = replace(cut_off, anchor_run_id=passed[0] if passed else None)
            return
        if not self.state.finished and not self.state.end_known and self.state.began_at is not None:
            self.result.failures.append(f"the night that began at {self.state.began_at} was cut off, and nothing went on with it")
        self._new_session()

    def _new_session(self) -> None:
        now = self.tools.now().isoformat(timespec="milliseconds")
        session_id = uuid.uuid4().hex[:16]
        began = self.state.began_at if self.result.results and self.state.began_at else now
        self.state = self.state_file.update(
            session_id=session_id, began_at=began, machine_boot_id=self.tools.machine_boot_id(), finished=False, end_known=False
        )
        self.session = SessionRecord(session_id, self.plan.node.node_id, "nightly", now)

    def _session(self) -> None:
        """Boots in one visit, under the node's lock, until a choice is None."""
        self.result.node_off = None
        first = self._next([])
        if not first:
            return
        request = RunRequest(download=self.request.download, label=self.request.label, session=self.session)
        made = self.tools.run_session(
            request, Plan(self.plan.node, tuple(first)), self.store, self.cache_root, self.watcher, follow_up=self._next
        )
        self.result.results += made
        if any(result.run.outcome is Outcome.INTERRUPTED for result in made):
            self.result.interrupted, self.result.ended = True, "interrupted; start it again and it goes on here"
        elif self.result.unsafe is not None:
            self.result.ended = f"the node is not clean: {self.result.unsafe}"
        self._judge_self_check()

    def _stopped(self) -> bool:
        return self.result.interrupted or self.result.unsafe is not None

    def _next(self, made: Sequence[BootResult]) -> list[PlannedBoot]:
        """The boots to make next: one, or a round that confirms something in turns; empty ends the session."""
        void = next((result.void for result in made if result.void is not None), None)
        if void is not None:
            self.result.node_off, self.result.ended = void, f"the node is off: {void}"
            return []
        remaining = self._remaining_s()
        if remaining == 0.0:
            self.result.ended = "the budget is used"
            return []
        anchor = self._anchor(made)
        return [anchor] if anchor is not None else self._choose(made, remaining)

    def _anchor(self, made: Sequence[BootResult]) -> PlannedBoot | None:
        """The anchor comes first in every session: it is the control that all its numbers stand on."""
        anchor = self.plan.night.anchor
        if anchor is None or any(result.run.purpose is Purpose.ANCHOR for result in made):
            return None
        done = [boot for boot in self._of_session(Purpose.ANCHOR) if boot["outcome"] not in NO_EVIDENCE]
        return None if done else PlannedBoot(anchor, 1, 1, Purpose.ANCHOR)

    def _choose(self, made: Sequence[BootResult], remaining: float | None) -> list[PlannedBoot]:
        candidates = self._candidates()
        last = _last_of(made)
        choice = next_choice(candidates, last, remaining)
        if choice is None or choice.value > Value.LAST_BROKEN:
            confirming = self._confirming(made, remaining)
            if confirming:
                return confirming
            check = self._self_check()
            if check is not None:
                return [check]
        if choice is None:
            self._say_what_is_left(candidates, remaining)
            return []
        self._announce_next(candidates, choice)
        return [self._planned(choice)]

    def _planned(self, choice: Choice) -> PlannedBoot:
        cell = self._cell(choice.candidate.name)
        purpose = Purpose.ANCHOR if choice.candidate.is_anchor else Purpose.MEASURE
        return PlannedBoot(cell, choice.candidate.made + 1, choice.candidate.made + choice.candidate.needed, purpose)

    def _confirming(self, made: Sequence[BootResult], remaining: float | None) -> list[PlannedBoot]:
        """A whole round, because the releases must take turns; none if the round is too long for what remains."""
        if not self.request.suite.nightly.confirm:
            return []
        asked = [PlannedBoot(cell, 1, 1) for cell in self.plan.night.cells]
        boots = confirming_boots(self.store, asked, made, node_id=self.plan.node.node_id, has_cuda=self.plan.has_cuda, say=self._note)
        known = Known(self.plan.node, self._boots(), self.tools.now())
        seconds = sum(known.seconds(boot.cell) or 0.0 for boot in boots)
        if boots and remaining is not None and seconds > remaining:
            self._note(
                f"{name_of(boots[0].cell)}: confirming takes {len(boots)} boots, about {seconds / 60:.0f} minutes; left for another night"
            )
            return []
        return boots

    def _self_check(self) -> PlannedBoot | None:
        anchor = self.plan.night.anchor
        every = timedelta(days=self.request.suite.nightly.self_check_days)
        if anchor is None or not self.state.self_check_due(self.tools.now(), every):
            return None
        seconds = Known(self.plan.node, self._boots(), self.tools.now()).seconds(anchor)
        remaining = self._remaining_s()
        boots = [boot for boot in self._of_session(Purpose.SELF_CHECK) if boot["outcome"] != Outcome.INTERRUPTED]
        done = sum(boot["outcome"] not in NO_EVIDENCE for boot in boots)
        fits = remaining is None or (seconds is not None and (SELF_CHECK_BOOTS - done) * seconds <= remaining)
        return next_self_check(anchor, done) if fits and len(boots) - done < MOST_FAULTS else None

    def _judge_self_check(self) -> None:
        anchor = self.plan.night.anchor
        runs = [boot["run_id"] for boot in self._of_session(Purpose.SELF_CHECK) if boot["outcome"] not in NO_EVIDENCE]
        if anchor is None or len(runs) < SELF_CHECK_BOOTS:
            return
        try:
            self.result.self_check = judge_self_check(self.store, anchor, self.plan.node.node_id, runs)
        except (StoreError, VerdictInputError) as error:
            self._note(f"the self-check could not be judged: {error}")
            return
        self.state = self.state_file.update(last_self_check_at=self.tools.now().isoformat(timespec="seconds"))

    def _say_what_is_left(self, candidates: Sequence[Candidate], remaining: float | None) -> None:
        left = [c for c in candidates if c.needed]
        for candidate in left:
            reason = why_not_now(candidate, candidates)
            if reason is not None:
                self._note(f"{candidate.name}: {reason}")
        if remaining is not None and any(why_not_now(c, candidates) is None for c in left):
            left_s = f"{remaining / 60:.0f} minutes" if remaining >= 120 else f"{remaining:.0f} seconds"
            self.result.ended = f"nothing that is left fits into the remaining {left_s}"

    def _announce_next(self, candidates: Sequence[Candidate], choice: Choice) -> None:
        """What comes after the present boot may be installed meanwhile, if that was asked for."""
        after = next(iter(list(whole_night(candidates, most=2))[1:]), None)
        self.tools.install_ahead(self._cell(after.candidate.name) if after is not None and self.request.install_beside else None)

    def _candidates(self) -> list[Candidate]:
        return candidates_of(self.plan.night, self._known(), self.plan.wanted)

    def _known(self) -> Known:
        since = datetime.fromisoformat(self.state.began_at) if self.state.began_at else self.tools.now()
        return Known(self.plan.node, self._boots(), since)

    def _boots(self) -> Sequence[Mapping[str, Any]]:
        return self.tools.boots(self.store, self.plan.node.node_id)

    def _of_session(self, purpose: Purpose) -> list[Mapping[str, Any]]:
        """The finished boots of the anchor that this session made for a purpose, also before it was cut off."""
        anchor = self.plan.night.anchor
        wanted = (self.session and self.session.session_id, purpose, anchor and anchor.series_id(self.plan.node.node_id))
        return [boot for boot in self._boots() if (boot["session_id"], boot["purpose"], boot["series_id"]) == wanted]

    def _cell(self, name: str) -> Cell:
        return next(cell for cell in self.plan.night.cells if name_of(cell) == name)

    def _can_rest(self) -> bool:
        """Whether something may follow a rest within the budget; to sleep the budget away would only keep the node from others."""
        remaining = self._remaining_s()
        if remaining is None or remaining > REST_S:
            return True
        self.result.ended += f"; the {remaining / 60:.0f} minutes left are too few for a rest of {REST_S / 60:.0f}"
        return False

    def _remaining_s(self) -> float | None:
        if self.request.budget is None or self.state.began_at is None:
            return None
        end = datetime.fromisoformat(self.state.began_at) + self.request.budget
        return max(0.0, (end - self.tools.now()).total_seconds())

    def _collect_environments(self) -> None:
        """Remove what is over the quota. Does nothing if no environment was made since the last time."""
        folder = self.cache_root / "environments"
        if self.collected == (present := stamps_in(folder)):
            return
        self.collected = present
        quota = int(self.request.suite.nightly.environments_gb * 1e9)
        spared = {str(cell.spec) for cell in self.plan.night.cells}
        removed = collect(folder, quota, spared, last_uses(self.store))
        if removed.removed:
            before = self.result.removed or Removed((), 0, 0)
            self.result.removed = replace(
                removed, removed=(*before.removed, *removed.removed), freed_bytes=before.freed_bytes + removed.freed_bytes
            )

    def _note(self, text: str) -> None:
        if text not in self.result.notes:
            self.result.notes.append(text)


def _last_of(made: Sequence[BootResult]) -> LastBoot:
    cell = made[-1].planned.cell if made else None
    return NOTHING_YET if cell is None else LastBoot(name_of(cell), cell.recipe.kind != "canary")
