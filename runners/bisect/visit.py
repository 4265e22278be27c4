"""A bisect as a visit to the node: the question, the boots that answer it, and the result.

Trap: a bisect of hours starts from the beginning after Ctrl-C or a reboot, or trusts boots made under another driver. Rule: nothing is kept
but the boots; the state is read back from the store before every step, from boots of the same cell under the present node state.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from packaging.version import Version

from results.kept_records import SessionRecord
from results.records import PROTOCOL_VERSION, NodeRecord
from results.store import Store
from results.verdict.facts import BootFact, NodeState
from results.verdict.metrics import METRICS, metric_of, series_name
from results.vocabulary import Outcome, Purpose
from runners.bisect.answers import Question, ReleaseAnswer, answers_of, judged_releases
from runners.bisect.search import Answer, EndsDisagreeError, Range, next_probe, range_of
from runners.confirm_boots import cell_in, history_of
from runners.envs.index import list_versions
from runners.envs.resolve import Lister, resolve_version
from runners.errors import Unsupported, UsageError
from runners.models import as_served_now
from runners.node.facts import has_cuda
from runners.pipeline import BootResult
from runners.plan import Cell, PlannedBoot
from runners.recorder import utc_now
from runners.session import Plan, RunRequest, Watcher, make_plan, run_session
from runners.spec import EngineSpec, is_fork_build
from suites.backends import Unsupported as BackendUnsupported

MOST_FAULTS = 2
"""Boots of one release that end without evidence (infrastructure) before this visit steps around it."""
NUMBER_BOOTS = 3
"""Boots of a release for a number, unless asked otherwise (M15)."""

_STREAMS: Mapping[str, Callable[[int], bool]] = {
    "decode_tok_s": lambda streams: streams == 1,
    "aggregate_tok_s": lambda streams: streams > 1,
    "ttft_s": lambda streams: True,
    "itl_p99_s": lambda streams: True,
}
"""Numbers of a workload, and with how many streams they are judged (results/history.py)."""
_OF_THE_BOOT = frozenset(metric.name for metric in METRICS.values() if metric.unit not in ("tok/s", "s"))


@dataclass(frozen=True)
class BisectRequest:
    """What was asked for. `good` may be newer than `bad`: then the release that repaired it is looked for."""

    engine: str
    good: str
    bad: str
    model: str
    backend: str
    metric: str | None = None
    boots: int | None = None
    repeats: int | None = None
    label: str | None = None
    download: bool = False


@dataclass(frozen=True)
class Bisect:
    """A checked question: nothing has been started yet. `cannot` holds releases that cannot run here, with the reason."""

    request: BisectRequest
    question: Question
    plan: Plan
    cannot: dict[str, str]

    @property
    def cell(self) -> Cell:
        """The cell in the release at the start."""
        return self.plan.boots[0].cell


@dataclass(frozen=True)
class BisectResult:
    """What is known after a visit. `known` is None, and `problem` says why, if an end is not what it was said to be."""

    question: Question
    tested: dict[str, ReleaseAnswer]
    known: Range | None
    next_release: str | None
    """Still to test (the visit was interrupted, or the node is not clean)."""
    problem: str | None
    made: tuple[BootResult, ...] = ()

    @property
    def finished(self) -> bool:
        """Nothing is left to test."""
        return self.next_release is None


def prepare(request: BisectRequest, lister: Lister = list_versions) -> Bisect:
    """Check everything and list the releases between both ends. Raises what make_plan raises."""
    spec = EngineSpec.parse(request.engine)
    origin = {spec.name: "", f"{spec.name}@venv": "", f"{spec.name}@docker": "@docker"}.get(request.engine.strip())
    if origin is None:
        raise UsageError(f"{request.engine[:80]!r} is no engine without a version.", todo="Give vllm, sglang or vllm@docker.")
    good, bad = (_release(text) for text in (request.good, request.bad))
    if good == bad:
        raise UsageError(f"good and bad are both {good}: there is nothing between them.")
    known = cache(lister)
    ends = (str(good), str(bad))
    plan = make_plan(
        RunRequest(
            engines=tuple(f"{spec.name}=={end}{origin}" for end in ends),
            models=(request.model,),
            backends=(request.backend,),
            repeats=request.repeats,
            boots=1,
            label=request.label,
            download=request.download,
        )
    )
    between = [v for v in known(spec.name) if min(good, bad) < v < max(good, bad) and not v.is_prerelease]
    ordered = sorted({good, bad, *between}, reverse=good > bad)
    cell = plan.boots[0].cell
    series = None if request.metric is None else _series(request.metric, cell)
    boots = request.boots or (1 if series is None else NUMBER_BOOTS)
    question = Question(tuple(str(v) for v in ordered), boots, series)
    cuda = has_cuda(plan.node)
    cannot = {r: why for r in question.releases if (why := _cannot_run(cell, r, cuda=cuda, lister=known)) is not None}
    return Bisect(request, question, plan, cannot)


def run_bisect(bisect: Bisect, store: Store, cache_root: Path, watcher: Watcher, say: Callable[[str], None]) -> BisectResult:
    """Make the boots that answer the question, one after the other, and say after each what is known. Ctrl-C ends it in an orderly way."""
    made: list[BootResult] = []

    def step(so_far: Sequence[BootResult]) -> Sequence[PlannedBoot]:
        made[:] = so_far
        result = present(bisect, store, so_far)
        if result.next_release is None:
            return []
        say(sentence(result))
        return [_boot(bisect, result.next_release, result.tested)]

    first = step(())
    if first:
        session = SessionRecord(uuid.uuid4().hex[:16], bisect.plan.node.node_id, "bisect", utc_now())
        request = RunRequest(download=bisect.request.download, session=session)
        made = run_session(request, replace(bisect.plan, boots=tuple(first)), store, cache_root, watcher, step)
    return replace(present(bisect, store, made), made=tuple(made))


def present(bisect: Bisect, store: Store, made: Sequence[BootResult] = ()) -> BisectResult:
    """What the boots in the store say now. Raises StoreError."""
    question = bisect.question
    tested = judged_releases(question, _boots(bisect, store), {**bisect.cannot, **_given_up(made, question)})
    answers = answers_of(tested)
    try:
        probe = next_probe(question.releases, answers)
    except EndsDisagreeError as wrong:
        return BisectResult(question, tested, None, None, _disagreement(question, tested[wrong.release], wrong))
    return BisectResult(question, tested, range_of(question.releases, answers), probe, None)


def sentence(result: BisectResult) -> str:
    """What is known, in one sentence."""
    if result.known is None:
        return result.problem or "nothing is known"
    known, question = result.known, result.question
    what, ends = question.series or "the cell", f"good in {known.last}, bad in {known.first}"
    if result.next_release in (question.releases[0], question.releases[-1]):
        said = "good" if result.next_release == question.releases[0] else "bad"
        return f"{what}: first to see is whether {result.next_release} is {said}"
    if result.next_release is not None:
        return f"{what}: {ends}, {len(known.between)} releases between; next: {result.next_release}"
    backwards = Version(known.last) > Version(known.first)
    older, newer = (known.first, known.last) if backwards else (known.last, known.first)
    verb = "was repaired" if backwards else "broke" if question.series is None else "got worse"
    where = f"between {older} and {newer} ({', '.join(known.between)} cannot be tested)" if known.between else f"in {newer}"
    before = f"; before that also bad in {', '.join(known.contradictions)}" if known.contradictions else ""
    return f"{what} {verb} {where}: {ends}{before}"


def _release(text: str) -> Version:
    if is_fork_build(text):
        raise UsageError(f"{text[:60]!r} is no release: a bisect walks over published releases.")
    return Version(text)


def _series(metric: str, cell: Cell) -> str:
    """The series that `METRIC` or `WORKLOAD/METRIC` names. Raises UsageError."""
    workload, _, name = metric.rpartition("/")
    if name in _OF_THE_BOOT and not workload:
        return name
    if name not in _STREAMS:
        raise UsageError(f"no number {metric[:60]!r}.", todo=f"Known: {', '.join([*_STREAMS, *sorted(_OF_THE_BOOT)])}.")
    fitting = [one.name for one in cell.workloads if _STREAMS[name](one.concurrency)]
    if not fitting or (workload and workload not in fitting):
        raise UsageError(f"{name} is not measured in {workload or 'this suite'}.", todo=f"It is in: {', '.join(fitting) or 'no workload'}.")
    return series_name(name, workload=workload or fitting[0], launch_bound=cell.recipe.launch_bound)


def _cannot_run(cell: Cell, release: str, *, cuda: bool, lister: Lister) -> str | None:
    """Why a release cannot run here, found out without a boot; None if a boot must tell."""
    try:
        other = cell_in(cell, release, has_cuda=cuda)
        resolve_version(other.spec, has_cuda=cuda, lister=lister)
    except (Unsupported, UsageError) as error:
        return error.message
    if isinstance(other.expressed, BackendUnsupported):
        return other.expressed.reason
    return other.recipe.unsupported(other.spec.name, other.spec.version)


def _boots(bisect: Bisect, store: Store) -> dict[str, list[BootFact]]:
    """Boots of the releases asked about, under the present node state."""
    cell, node = bisect.cell, bisect.plan.node
    history = history_of(store, cell, node.node_id)
    spelled = {Version(release): release for release in bisect.question.releases}
    boots: dict[str, list[BootFact]] = {}
    for boot in history.boots if history else ():
        version = EngineSpec(cell.spec.name, boot.release).release
        if version in spelled and replace(boot.node_state, prompts=None) == _present_state(node, cell):
            boots.setdefault(spelled[version], []).append(boot)
    return boots


def _present_state(node: NodeRecord, cell: Cell) -> NodeState:
    return NodeState(
        driver=node.driver_version,
        kernel=node.kernel,
        firmware=node.firmware,
        clock_cap_mhz=node.sm_clock_cap_mhz,
        protocol=PROTOCOL_VERSION,
        recipe_revision=as_served_now(cell.recipe).recipe_id,
    )


def _given_up(made: Sequence[BootResult], question: Question) -> dict[str, str]:
    """Releases that this visit stops trying: their boots end for reasons that are not theirs, or do not count (a void visit)."""
    runs = [result.run for result in made]
    given_up: dict[str, str] = {}
    for release in question.releases:
        mine = [run for run in runs if run.engine_version == release]
        faults = [run for run in mine if run.outcome is Outcome.INFRASTRUCTURE]
        if len(faults) >= MOST_FAULTS or len(mine) >= question.boots + MOST_FAULTS:
            last = faults[-1].reason if faults else "they do not count as evidence"
            given_up[release] = f"{len(mine)} boots in this visit gave no answer: {last}"
    return given_up


def _boot(bisect: Bisect, release: str, tested: Mapping[str, ReleaseAnswer]) -> PlannedBoot:
    cell = cell_in(bisect.cell, release, has_cuda=has_cuda(bisect.plan.node))
    done = tested[release].boots if release in tested else 0
    return PlannedBoot(cell, done + 1, max(done + 1, bisect.question.boots), Purpose.BISECT)


def _disagreement(question: Question, tested: ReleaseAnswer, wrong: EndsDisagreeError) -> str:
    said = "good" if wrong.release == question.releases[0] else "bad"
    if wrong.answer is Answer.CANNOT_TELL:
        return f"{wrong.release} was said to be {said} and cannot be tested: {tested.reason}"
    if question.series is None:
        return f"{wrong.release} was said to be {said}, but it is not ({tested.reason})"
    floor = metric_of(question.series).floor
    return f"{wrong.release} was said to be bad, but its {question.series} is not worse by {floor:.0%} or more ({tested.reason})"
