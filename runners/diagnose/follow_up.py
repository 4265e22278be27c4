"""From failed boots to control boots to a diagnosis: the shell around the planner, as a session's follow-up.

Trap: controls that belong to no boot, or a diagnosis that is only printed. Rule: a control is an ordinary recorded boot that names the run
it is a control of, the diagnosis is a row of the failed boot's own folder, and both are bounded: so many boots, so many minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from results.boot_folder import BootContent, BootFolder
from results.errors import FolderError, StoreError
from results.records import CoherenceRecord, DiagnosisRecord, RunRecord
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose
from runners.diagnose.controls import Failed, cell_of, controls_for, unchanged
from runners.diagnose.evidence import evidence_of
from runners.diagnose.model_facts import ModelFacts, model_facts
from runners.diagnose.planner import Case, Cause, Conclusion, Control, Result, Tried, next_control
from runners.errors import UsageError
from runners.pipeline import BootResult
from runners.plan import Cell, PlannedBoot
from runners.recorder import utc_now
from runners.spec import is_fork_build
from suites.canaries import zoo

GATE_FAILURES = frozenset({Outcome.INCOHERENT, Outcome.WRONG})
DIAGNOSABLE = GATE_FAILURES | {Outcome.CRASH, Outcome.HANG}
"""How a boot may have ended for controls to tell why; out of memory and `unsupported` name their cause themselves."""
_AFTER_THE_GATE = frozenset({Phase.WARMUP, Phase.THROUGHPUT, Phase.CONTEXT, Phase.RECHECK})


@dataclass(frozen=True)
class Limits:
    """Control boots of one failed boot at most, and seconds after which no further one is begun."""

    boots: int = 8
    seconds: float = 2_700.0


@dataclass
class Investigation:
    """One failed boot and what was found so far."""

    run: RunRecord
    cell: Cell
    case: Case
    began: float
    tried: list[Tried] = field(default_factory=list)
    waiting: Control | None = None
    conclusion: Conclusion | None = None


@dataclass
class Controls:
    """A follow-up that makes control boots for every cell whose boot failed its gate, one case after the other.

    Of a cell only the first failure is looked at. `crashes_too`: also boots that crash or hang. `diagnoses` holds what was concluded.
    """

    store: Store
    cache_root: Path
    has_cuda: bool
    limits: Limits = Limits()
    crashes_too: bool = False
    clock: Callable[[], float] = time.monotonic
    diagnoses: list[tuple[RunRecord, DiagnosisRecord]] = field(default_factory=list)
    _cases: list[Investigation] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def __call__(self, made: Sequence[BootResult]) -> Sequence[PlannedBoot]:
        """The next control boot, or none when every case is concluded."""
        for result in made:
            if result.run.run_id not in self._seen:
                self._seen.add(result.run.run_id)
                self._take(result)
        for case in self._cases:
            if case.conclusion is None and (planned := self._go_on(case)) is not None:
                return [planned]
        return []

    def open(self, run: RunRecord, cell: Cell) -> None:
        """Begin with a boot, whatever failed in it. Raises UsageError if controls cannot tell why."""
        if run.outcome not in DIAGNOSABLE:
            todo = "Controls explain boots that are incoherent, wrong, crash or hang; `sparkproof show RUN` says what ended this one."
            raise UsageError(f"the boot ended as {run.outcome or 'not finished'}.", where=run.run_id, todo=todo)
        content = BootFolder(self.store.boots, run.run_id).read()
        self._cases.append(Investigation(run, cell, self._case(run, cell, content), self.clock()))

    def _take(self, result: BootResult) -> None:
        run = result.run
        if run.purpose is Purpose.CONTROL:
            for case in self._cases:
                if case.run.run_id == run.control_of and case.waiting is not None:
                    case.tried.append(Tried(case.waiting, result_of(run.outcome, case.run.outcome), run.run_id))
                    case.waiting = None
        elif self._is_asked_for(result) and all(case.run.cell_id != run.cell_id for case in self._cases):
            self.open(run, result.planned.cell)

    def _is_asked_for(self, result: BootResult) -> bool:
        outcomes = DIAGNOSABLE if self.crashes_too else GATE_FAILURES
        return result.run.outcome in outcomes and result.unsafe is None and result.unstored is None

    def _go_on(self, case: Investigation) -> PlannedBoot | None:
        step = next_control(case.case, case.tried)
        if isinstance(step, Control) and (why := self._over_limit(case)) is not None:
            sentence = f"Given up after {len(case.tried)} control boots ({why}): nothing is decided yet."
            step = Conclusion(Cause.UNDECIDED, None, sentence)
        if isinstance(step, Conclusion):
            self._conclude(case, step)
            return None
        case.waiting = step
        timed = case.run.phase in _AFTER_THE_GATE
        return PlannedBoot(cell_of(case.cell, step), 1, 1, Purpose.CONTROL, case.run.run_id, timed=timed)

    def _over_limit(self, case: Investigation) -> str | None:
        if len(case.tried) >= self.limits.boots:
            return "their number is limited"
        return "the time for them is over" if self.clock() - case.began > self.limits.seconds else None

    def _conclude(self, case: Investigation, conclusion: Conclusion) -> None:
        case.conclusion = conclusion
        diagnosis = DiagnosisRecord(
            run_id=case.run.run_id,
            concluded_at=utc_now(),
            conclusion=str(conclusion.cause),
            detail=conclusion.detail,
            sentence=conclusion.sentence,
            use_instead=conclusion.use_instead,
            controls=tuple(t.run_id for t in case.tried if t.run_id is not None),
        )
        folder = BootFolder(self.store.boots, case.run.run_id)
        folder.append([diagnosis])
        try:
            self.store.ingest(folder)
        except (StoreError, FolderError):
            diagnosis = replace(diagnosis, sentence=f"{diagnosis.sentence} (not in the database yet: `sparkproof rebuild` stores it)")
        self.diagnoses.append((case.run, diagnosis))

    def _case(self, run: RunRecord, cell: Cell, content: BootContent) -> Case:
        canary = zoo.load(cell.recipe.source.canary) if cell.recipe.source.canary is not None else None
        facts: ModelFacts = model_facts(cell.recipe, self.cache_root, run.actual)
        failed = Failed(
            cell=cell,
            has_cuda=self.has_cuda,
            evidence=evidence_of(content.of(CoherenceRecord), canary, cell.recipe.bos),
            kernels=run.actual,
            configured=run.configured,
            has_experts=facts.has_experts,
            quantised=facts.quantised,
            weight_bytes=facts.weight_bytes,
            proven=f"they are the canary {canary.name}, verified by hash, and its golden answers" if canary is not None else None,
            previous_good=previous_good(self.store, run),
        )
        return Case(failed.evidence, controls_for(failed), unchanged(), failed.proven)


def result_of(control: Outcome | None, failed: Outcome | None) -> Result:
    """What a control's outcome says about a boot that ended as `failed`.

    A fallback answers right on a kernel nobody asked for, so it says nothing; so does a control that failed for want of something else.
    """
    if control is Outcome.PASS:
        return Result.RIGHT
    same = GATE_FAILURES if failed in GATE_FAILURES else DIAGNOSABLE
    return Result.WRONG if control in same else Result.NOTHING


def previous_good(store: Store, run: RunRecord) -> str | None:
    """The newest older release that passed with this recipe and backend on this node; None if there is none, or order means nothing."""
    if is_fork_build(run.engine_version):
        return None
    try:
        rows = store.query(
            "SELECT DISTINCT engine_version FROM runs WHERE engine = ? AND recipe_name = ? AND backend_name = ? AND node_id = ?"
            " AND distribution = 'venv' AND outcome = 'pass' AND purpose <> 'control'",
            [run.engine, run.recipe_name, run.backend_name, run.node_id],
        )
    except StoreError:
        return None
    versions = [Version(row["engine_version"]) for row in rows if not is_fork_build(row["engine_version"])]
    older = [version for version in versions if version < Version(run.engine_version)]
    return str(max(older)) if older else None
