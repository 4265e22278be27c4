from __future__ import annotations

from results.store import Store
from results.summary import summarise
from results.vocabulary import Outcome, exit_code_of
from tests.results.conftest import MakeBoot


def test_a_cell_shows_median_range_and_change_against_the_previous_version(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot(version="0.31.0", decode=(100.0, 100.0), started_at="2026-11-29T13:00:00+00:00"))
    new = make_boot(version="0.32.0", decode=(108.0, 110.0, 112.0))
    store.ingest(new)
    (cell,) = summarise(store, [new.run_id])
    assert cell.decode_tok_s is not None
    assert (cell.decode_tok_s.median, cell.decode_tok_s.low, cell.decode_tok_s.high) == (110.0, 108.0, 112.0)
    assert cell.previous is not None
    assert (cell.previous.engine_version, cell.previous.last_good, cell.previous.verdict) == ("0.31.0", "0.31.0", "inconclusive")
    assert cell.previous.decode_change is not None
    assert abs(cell.previous.decode_change - 0.10) < 1e-9
    assert cell.memory_used_bytes == 4_000
    assert (cell.gate_prompts, cell.gate_matched) == (3, 3)


def test_memory_that_others_gave_back_is_not_taken_from_what_a_server_took(store: Store, make_boot: MakeBoot) -> None:
    """A control was said to have taken -0.155 GiB: processes of others had ended while it started."""
    boot = make_boot(memory_baseline_bytes=9_000, memory_after_load_bytes=8_000, memory_peak_bytes=8_500)
    store.ingest(boot)
    assert summarise(store, [boot.run_id])[0].memory_used_bytes is None
    assert store.query("SELECT memory_used_bytes, memory_peak_used_bytes FROM boots") == [
        {"memory_used_bytes": None, "memory_peak_used_bytes": None}
    ]


def test_a_newer_version_or_a_fork_build_is_never_the_previous_one(store: Store, make_boot: MakeBoot) -> None:
    for version in ("0.33.0", "0.1.dev21830+gabc"):
        store.ingest(make_boot(version=version))
    mine = make_boot(version="0.32.0")
    store.ingest(mine)
    assert summarise(store, [mine.run_id])[0].previous is None


def test_a_failed_boot_is_a_row_with_its_reason_and_no_rate(store: Store, make_boot: MakeBoot) -> None:
    broken = make_boot(outcome=Outcome.INCOHERENT, decode=(), broken_prompts=2)
    store.ingest(broken)
    (cell,) = summarise(store, [broken.run_id])
    assert (cell.outcome, cell.reason, cell.decode_tok_s) == ("incoherent", "because", None)
    assert (cell.gate_prompts, cell.gate_matched) == (3, 1)


def test_boots_that_disagree_make_a_cell_flaky(store: Store, make_boot: MakeBoot) -> None:
    boots = [make_boot(), make_boot(outcome=Outcome.CRASH, decode=())]
    for boot in boots:
        store.ingest(boot)
    (cell,) = summarise(store, [b.run_id for b in boots])
    assert cell.outcome == "flaky"
    assert cell.outcomes == {"pass": 1, "crash": 1}


def test_exit_codes_follow_the_worst_news() -> None:
    assert exit_code_of([Outcome.PASS]) == 0
    assert exit_code_of([Outcome.PASS, Outcome.WRONG, Outcome.INFRASTRUCTURE]) == 1
    assert exit_code_of([Outcome.PASS, Outcome.UNSUPPORTED]) == 1
    assert exit_code_of([Outcome.PASS, Outcome.INSTALL_FAILED]) == 3
    assert exit_code_of([Outcome.CRASH, Outcome.INTERRUPTED]) == 130
    assert exit_code_of([]) == 3
