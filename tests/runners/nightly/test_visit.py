"""Nights on a simulated clock: boots take the time that the test says and end as it says. With `real` they are kept in a real store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from results.boot_folder import BootFolder, BootSummary, new_run_id
from results.records import HealthRecord, NodeRecord, PhaseRecord, RunRecord
from results.series import node_state_row
from results.store import Store
from results.vocabulary import Outcome, Phase, Purpose
from runners.errors import UsageError
from runners.nightly.cells import stored_boots
from runners.nightly.discovery import Discovery
from runners.nightly.state import StateFile
from runners.nightly.visit import REST_S, NightRequest, NightResult, Tools, plan_night, preview, run_night
from runners.pipeline import BootResult
from runners.plan import PlannedBoot
from runners.spec import EngineSpec
from suites.suite_files import NightlyChoice, Suite
from tests.runners.nightly.test_collect import environment

NODE = NodeRecord("ab" * 8, "spark", driver_version="580.159.03")
BOOT_S = 100.0
HOUR = timedelta(hours=1)


@dataclass
class Simulated:
    """A node whose boots take `BOOT_S` seconds. `ends` says how a boot ends (outcome, void), by its planned boot and number so far."""

    root: Path
    now: datetime = datetime(2026, 12, 1, 1, 30, tzinfo=UTC)
    ends: Callable[[PlannedBoot, int], tuple[Outcome, str | None]] = lambda planned, made: (Outcome.PASS, None)
    kill_after: int | None = None
    boot_id: str = "boot-1"
    releases: tuple[str, ...] = ("0.32.0", "0.31.0")
    slept: list[float] = field(default_factory=list)
    made: list[PlannedBoot] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    real: bool = False
    self_check_due: bool = False

    def __post_init__(self) -> None:
        if not self.self_check_due:
            StateFile(self.root).update(last_self_check_at=(self.now + timedelta(days=300)).isoformat())

    @property
    def store(self) -> Store:
        return Store(self.root)

    def tools(self) -> Tools:
        return Tools(
            now=lambda: self.now,
            sleep=self._sleep,
            read_node=lambda label: NODE,
            discover=lambda *args, **kwargs: Discovery(tuple(EngineSpec("vllm", v) for v in self.releases)),
            run_session=self._run_session,
            machine_boot_id=lambda: self.boot_id,
            boots=stored_boots if self.real else lambda store, node_id: list(self.rows),
            install_ahead=lambda cell: self.ahead.append(str(cell.spec) if cell is not None else "-"),
            say=self.said.append,
        )

    def night(self, budget: timedelta | None = None, **choice: Any) -> NightResult:
        suite = Suite(name="n", recipes=("canary-dense",), nightly=NightlyChoice(**{"confirm": False, "self_check_days": 366, **choice}))
        request = NightRequest(suite, budget)
        return run_night(plan_night(request, self.tools()), request, self.store, self.root / "cache", None, self.tools())  # type: ignore[arg-type]

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)

    def _run_session(self, request: Any, plan: Any, store: Store, cache: Path, watcher: Any, follow_up: Any) -> list[BootResult]:
        results: list[BootResult] = []
        store.keep(request.session) if self.real else None
        self.sessions.append(request.session.session_id)
        boots: Sequence[PlannedBoot] = plan.boots
        while boots:
            for planned in boots:
                if self.kill_after == len(self.made):
                    raise KilledError
                results.append(self._boot(planned, request.session.session_id))
            boots = follow_up(results)
        return results

    def _boot(self, planned: PlannedBoot, session_id: str) -> BootResult:
        outcome, void = self.ends(planned, len(self.made))
        started = self.now
        self.now += timedelta(seconds=BOOT_S)
        self.made.append(planned)
        cell = planned.cell
        run = RunRecord(
            new_run_id(started), session_id, "c", cell.series_id(NODE.node_id), "vllm", cell.spec.version or "", "venv", cell.recipe.name,
            cell.backend.name, NODE.node_id, 1, started.isoformat(), self.now.isoformat(), outcome=outcome, purpose=planned.purpose,
        )  # fmt: skip
        if self.real:
            self._keep(run, void)
        else:
            more = {
                "node_state_id": node_state_row(NODE)["node_state_id"],
                "health": "void" if void else "ok",
                "total_s": BOOT_S,
                "void": False,
            }
            self.rows.append({**vars(run), **more, "started_at": started})
        return BootResult(run, planned, void=void)

    def _keep(self, run: RunRecord, void: str | None) -> None:
        folder = BootFolder(self.store.boots, run.run_id)
        folder.create()
        folder.write_summary(BootSummary(run, NODE))
        folder.append([PhaseRecord(run.run_id, Phase.THROUGHPUT, run.started_at, BOOT_S, True)])
        folder.append([HealthRecord(run.run_id, run.started_at, "before", "void" if void else "ok")])
        self.store.ingest(folder)


class KilledError(Exception):
    """kill -9."""


def cells(boots: Sequence[PlannedBoot]) -> list[tuple[str, str]]:
    return [(boot.cell.spec.version or "", str(boot.purpose)) for boot in boots]


ANCHOR = "vllm==0.30.0"


def test_a_night_begins_with_its_anchor_and_measures_new_releases_then_the_rest(tmp_path: Path) -> None:
    node = Simulated(tmp_path)
    result = node.night(anchor=ANCHOR)
    made = cells(node.made)
    assert made[0] == ("0.30.0", "anchor")
    assert made[1:4] == [("0.32.0", "measure")] * 3
    assert made[4:6] == [("0.30.0", "anchor")] * 2, "the anchor's own boots come before coverage"
    assert made[6:] == [("0.31.0", "measure")] * 3
    assert (result.left, result.ended) == (0, "everything that can be measured is measured")


def test_the_next_night_boots_only_its_anchor_until_a_release_appears(tmp_path: Path) -> None:
    node = Simulated(tmp_path)
    node.night(anchor=ANCHOR)
    before = len(node.made)
    node.now += timedelta(days=1)
    node.night(anchor=ANCHOR)
    assert cells(node.made[before:]) == [("0.30.0", "anchor")]
    node.now += timedelta(days=1)
    node.releases = ("0.33.0", *node.releases)
    node.night(anchor=ANCHOR)
    assert cells(node.made[before + 1 :]) == [("0.30.0", "anchor"), *[("0.33.0", "measure")] * 3]


def test_killed_three_times_at_any_boot_the_night_ends_complete_in_one_session(tmp_path: Path) -> None:
    node = Simulated(tmp_path)
    for kill_after in (1, 3, 6):
        node.kill_after = kill_after
        with pytest.raises(KilledError):
            node.night(6 * HOUR, anchor=ANCHOR)
        node.now += timedelta(minutes=1)
    node.kill_after = None
    result = node.night(6 * HOUR, anchor=ANCHOR)
    assert result.went_on
    assert Counter(cells(node.made)) == {("0.30.0", "anchor"): 3, ("0.32.0", "measure"): 3, ("0.31.0", "measure"): 3}
    assert len(set(node.sessions)) == 1


def test_after_a_reboot_a_new_session_begins_with_its_anchor(tmp_path: Path) -> None:
    node = Simulated(tmp_path, kill_after=2)
    with pytest.raises(KilledError):
        node.night(6 * HOUR, anchor=ANCHOR)
    node.kill_after, node.boot_id = None, "boot-2"
    result = node.night(6 * HOUR, anchor=ANCHOR)
    assert not result.went_on
    assert len(set(node.sessions)) == 2
    assert Counter(cells(node.made)) == {("0.30.0", "anchor"): 3, ("0.32.0", "measure"): 3, ("0.31.0", "measure"): 3}


def test_budget_of_a_cut_off_night_goes_on_where_it_was(tmp_path: Path) -> None:
    node = Simulated(tmp_path, kill_after=2)
    with pytest.raises(KilledError):
        node.night(timedelta(seconds=500), anchor=ANCHOR)
    node.kill_after = None
    result = node.night(timedelta(seconds=500), anchor=ANCHOR)
    assert len(node.made) == 5, "two before the kill, three after: 500 s in all"
    assert result.ended == "the budget is used"


def test_a_boot_that_would_not_fit_is_not_begun(tmp_path: Path) -> None:
    node = Simulated(tmp_path)
    result = node.night(timedelta(seconds=350), anchor=ANCHOR)
    assert len(node.made) == 3
    assert result.ended == "nothing that is left fits into the remaining 50 seconds"
    assert result.left == 6


def test_node_that_is_off_rests_and_is_tried_again_in_a_new_session(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda planned, made: (Outcome.PASS, "before the boot: slower" if made == 1 else None))
    result = node.night(anchor=ANCHOR)
    assert node.slept == [REST_S]
    assert len(set(node.sessions)) == 2
    assert Counter(cells(node.made))["0.32.0", "measure"] == 4, "the boot on the slow node does not count"
    assert result.node_off is None


def test_node_that_stays_off_ends_the_night_after_three_rests(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda planned, made: (Outcome.PASS, "before the boot: slower"))
    result = node.night(anchor=ANCHOR)
    assert node.slept == [REST_S] * 3
    assert len(node.made) == 4
    assert result.node_off == "before the boot: slower"
    assert "the node is off" in result.ended


def test_budget_is_not_slept_away(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda planned, made: (Outcome.PASS, "before the boot: slower"))
    result = node.night(timedelta(seconds=REST_S + BOOT_S - 60), anchor=ANCHOR)
    assert node.slept == []
    assert result.ended == "the node is off: before the boot: slower; the 14 minutes left are too few for a rest of 15"


def test_interruption_ends_the_night_and_leaves_it_to_be_gone_on_with(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda planned, made: (Outcome.INTERRUPTED if made == 2 else Outcome.PASS, None))
    node_result = node_night_until_interrupted(node)
    assert node_result.interrupted
    node.ends = lambda planned, made: (Outcome.PASS, None)
    assert node.night(6 * HOUR, anchor=ANCHOR).went_on


def node_night_until_interrupted(node: Simulated, **choice: Any) -> NightResult:
    """As `run_session` does: nothing follows an interrupted boot."""
    tools = node.tools()

    def until_interrupted(request: Any, plan: Any, store: Any, cache: Any, watcher: Any, follow_up: Any) -> list[BootResult]:
        def stop(made: Sequence[BootResult]) -> Sequence[PlannedBoot]:
            return [] if made[-1].run.outcome is Outcome.INTERRUPTED else follow_up(made)

        return node._run_session(request, plan, store, cache, watcher, stop)

    nightly = NightlyChoice(confirm=False, self_check_days=366, anchor=ANCHOR, **choice)
    suite = Suite(name="n", recipes=("canary-dense",), nightly=nightly)
    request = NightRequest(suite, 6 * HOUR)
    replaced = replace(tools, run_session=until_interrupted)
    return run_night(plan_night(request, replaced), request, node.store, node.root / "cache", None, replaced)  # type: ignore[arg-type]


def test_a_release_that_fails_gets_two_boots_and_no_third(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda p, made: (Outcome.INCOHERENT if p.cell.spec.version == "0.32.0" else Outcome.PASS, None))
    node.night()
    assert Counter(cells(node.made)) == {("0.32.0", "measure"): 2, ("0.31.0", "measure"): 3}


def test_a_cell_that_never_gets_to_evidence_is_left_alone_and_said(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda p, made: (Outcome.INSTALL_FAILED if p.cell.spec.version == "0.32.0" else Outcome.PASS, None))
    result = node.night()
    assert Counter(cells(node.made)) == {("0.32.0", "measure"): 2, ("0.31.0", "measure"): 3}
    assert result.notes == ["vllm==0.32.0 canary-dense eager: 2 boots ended without evidence tonight"]
    (failure,) = result.failures
    last = [row["run_id"] for row in node.rows if row["engine_version"] == "0.32.0"][-1]
    assert failure == f"vllm==0.32.0 canary-dense eager: 2 boots ended without evidence tonight; the last, {last}, ended install_failed"


def test_a_night_cut_off_that_nothing_went_on_with_is_told_by_the_next_one_once(tmp_path: Path) -> None:
    node = Simulated(tmp_path, kill_after=2)
    with pytest.raises(KilledError):
        node.night(6 * HOUR)
    node.kill_after = None
    StateFile(tmp_path).update(end_known=False)  # kill -9 and power cuts leave no word
    began = StateFile(tmp_path).read().began_at
    node.now += timedelta(days=1)
    assert node.night(6 * HOUR).failures == [f"the night that began at {began} was cut off, and nothing went on with it"]
    node.now += timedelta(days=1)
    assert node.night(6 * HOUR).failures == []


def test_a_night_that_was_interrupted_by_hand_or_whose_failure_was_told_is_no_failure_of_the_next(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda planned, made: (Outcome.INTERRUPTED if made == 2 else Outcome.PASS, None), kill_after=4)
    assert node_night_until_interrupted(node).interrupted
    node.now += timedelta(days=1)
    with pytest.raises(KilledError):  # stands for any error that ends a night: the command line tells it
        node.night(6 * HOUR)
    node.kill_after = None
    node.now += timedelta(days=1)
    assert node.night(6 * HOUR).failures == []


def test_monthly_self_check_boots_the_anchor_six_times_and_is_not_due_again(tmp_path: Path) -> None:
    node = Simulated(tmp_path, real=True, self_check_due=True, releases=("0.30.0",))
    result = node.night(anchor=ANCHOR, self_check_days=30)
    assert Counter(str(b.purpose) for b in node.made)["self_check"] == 6
    assert result.self_check is not None and result.self_check.boots == 6
    assert "false alarms: none" in result.self_check.sentence
    node.now += timedelta(days=1)
    assert node.night(anchor=ANCHOR, self_check_days=30).self_check is None


def test_an_anchor_that_was_interrupted_is_booted_again_first(tmp_path: Path) -> None:
    node = Simulated(tmp_path, ends=lambda planned, made: (Outcome.INTERRUPTED if made == 0 else Outcome.PASS, None))
    assert node_night_until_interrupted(node).interrupted
    result = node.night(6 * HOUR, anchor=ANCHOR)
    assert result.went_on
    assert cells(node.made)[:3] == [("0.30.0", "anchor"), ("0.30.0", "anchor"), ("0.32.0", "measure")]


def test_a_self_check_that_never_gets_to_evidence_is_given_up(tmp_path: Path) -> None:
    node = Simulated(
        tmp_path,
        self_check_due=True,
        releases=("0.30.0",),
        ends=lambda p, made: (Outcome.INFRASTRUCTURE if p.purpose is Purpose.SELF_CHECK else Outcome.PASS, None),
    )
    assert node.night(anchor=ANCHOR, self_check_days=30).self_check is None
    assert Counter(str(b.purpose) for b in node.made)["self_check"] == 2


def test_a_self_check_cut_off_by_a_kill_goes_on_and_makes_no_seventh_boot(tmp_path: Path) -> None:
    node = Simulated(tmp_path, self_check_due=True, releases=("0.30.0",), kill_after=4)
    with pytest.raises(KilledError):
        node.night(anchor=ANCHOR, self_check_days=30)
    node.kill_after = None
    node.night(anchor=ANCHOR, self_check_days=30)
    assert Counter(str(b.purpose) for b in node.made)["self_check"] == 6


def test_a_session_that_another_suite_began_lends_its_anchors_boots_to_no_other_anchor(tmp_path: Path) -> None:
    node = Simulated(tmp_path, self_check_due=True, releases=("0.30.0",), kill_after=4)
    with pytest.raises(KilledError):
        node.night(anchor=ANCHOR, self_check_days=30)
    for row in node.rows:
        row["series_id"] = "another cell"
    node.kill_after = None
    node.night(anchor=ANCHOR, self_check_days=30)
    assert node.made[4].purpose is Purpose.ANCHOR
    assert Counter(str(b.purpose) for b in node.made[4:])["self_check"] == 6


def test_what_comes_next_is_announced_only_when_installing_beside_was_asked_for(tmp_path: Path) -> None:
    node = Simulated(tmp_path)
    node.night()
    assert set(node.ahead) == {"-"}


@pytest.mark.parametrize("anchor", [None, "vllm==0.30.0"])
@pytest.mark.parametrize("budget", [None, timedelta(seconds=450)])
def test_preview_is_what_the_night_then_does(tmp_path: Path, anchor: str | None, budget: timedelta | None) -> None:
    node = Simulated(tmp_path)
    node.night(timedelta(seconds=150), anchor=anchor)  # so that it is known how long a boot takes
    node.made.clear()
    suite = Suite(name="n", recipes=("canary-dense",), nightly=NightlyChoice(confirm=False, self_check_days=366, anchor=anchor))
    request = NightRequest(suite, budget)
    choices, _ = preview(plan_night(request, node.tools()), request, node.store, node.tools())
    node.night(budget, anchor=anchor)
    assert [c.candidate.name.split()[0] for c in choices] == [f"vllm=={version}" for version, _ in cells(node.made)]


def test_a_night_without_any_cell_is_refused_with_the_reason(tmp_path: Path) -> None:
    node = Simulated(tmp_path, releases=())
    with pytest.raises(UsageError):
        node.night()


@pytest.mark.parametrize(("ends", "removed"), [(Outcome.PASS, ("vllm==0.19.0", "vllm==0.20.0")), (Outcome.INTERRUPTED, ("vllm==0.19.0",))])
def test_environments_over_the_quota_go_before_the_night_and_those_it_made_after_it(
    tmp_path: Path, ends: Outcome, removed: tuple[str, ...]
) -> None:
    folder = tmp_path / "cache" / "environments"
    environment(folder, "0.19.0", 1, day=1)
    environment(folder, "0.30.0", 1, day=0)

    def make_one(planned: PlannedBoot, made: int) -> tuple[Outcome, None]:
        if made == 0:
            environment(folder, "0.20.0", 1, day=2)
        return ends, None

    node = Simulated(tmp_path, ends=make_one)
    result = node_night_until_interrupted(node, environments_gb=1e-6)
    assert result.removed is not None and result.removed.removed == removed
    assert (folder / "vllm-0.30.0-cp311-abc").exists(), "the anchor's stays, however old it is"


def test_every_session_is_kept_with_its_kind(tmp_path: Path) -> None:
    node = Simulated(tmp_path, real=True, releases=("0.30.0",))
    node.night(anchor=ANCHOR)
    (session,) = node.store.query("SELECT kind, node_id FROM sessions")
    assert session == {"kind": "nightly", "node_id": NODE.node_id}
    assert Purpose.ANCHOR in {boot.purpose for boot in node.made}
