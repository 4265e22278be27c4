from __future__ import annotations

from results.boot_folder import BootFolder
from results.store import Store
from results.vocabulary import Outcome
from runners.process.teardown import TeardownProof
from runners.stale import end_stale_boots
from tests.results.conftest import MakeBoot, make_boot, store

__all__ = ["make_boot", "store"]  # fixtures


def _proof(*, clean: bool) -> TeardownProof:
    return TeardownProof(clean, 0.1, False, () if clean else (4711,), None, "nothing left" if clean else "still alive: pid 4711")


def test_an_unfinished_boot_is_filed_as_interrupted_with_the_phase_it_died_in(store: Store, make_boot: MakeBoot) -> None:
    finished, unfinished = make_boot(), make_boot(outcome=None)
    asked: list[str] = []

    def end(folder: BootFolder) -> TeardownProof:
        asked.append(folder.run_id)
        return _proof(clean=True)

    assert [s.run_id for s in end_stale_boots(store, end)] == [unfinished.run_id]
    assert asked == [unfinished.run_id]
    run = unfinished.summary().run
    assert (run.outcome, run.finished_at is not None) == (Outcome.INTERRUPTED, True)
    assert "without finishing this boot (phase teardown); nothing left" in (run.reason or "")
    assert finished.summary().run.outcome is Outcome.PASS


def test_a_boot_whose_server_could_not_be_ended_is_tried_again_by_the_next_start(store: Store, make_boot: MakeBoot) -> None:
    unfinished = make_boot(outcome=None)
    end_stale_boots(store, lambda folder: _proof(clean=False))
    assert unfinished.summary().run.outcome is None
    assert len(end_stale_boots(store, lambda folder: _proof(clean=True))) == 1


def test_a_damaged_folder_does_not_stop_the_cleaning(store: Store, make_boot: MakeBoot) -> None:
    damaged, unfinished = make_boot(), make_boot(outcome=None)
    (damaged.path / "run.json").write_text("{")
    assert [s.run_id for s in end_stale_boots(store, lambda folder: _proof(clean=True))] == [unfinished.run_id]
