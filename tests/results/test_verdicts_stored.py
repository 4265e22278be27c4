"""Verdicts, findings and bands in the database: right, kept up to date, and the same whichever way the boots came in."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from results.boot_folder import BootFolder
from results.kept_records import SessionRecord
from results.records import ContextRecord, HealthRecord, ScoreRecord
from results.store import Store
from results.verdict.facts import admit
from results.vocabulary import Outcome, Purpose
from tests.results.conftest import NODE, MakeBoot, dump, minutes

DECODE = "decode_c1/decode_tok_s"


def _speeds(make_boot: MakeBoot, turns: str, old: float, new: float, *, start: int = 0, session: str = "", **more: Any) -> list[BootFolder]:
    """One boot per letter: `o` of 0.31.0 at about `old` tok/s, `n` of 0.32.0 at about `new`."""
    chance = random.Random(start)
    return [
        make_boot(
            version="0.31.0" if turn == "o" else "0.32.0",
            decode=((old if turn == "o" else new) * chance.uniform(0.998, 1.002),),
            started_at=minutes(start + 10 * number),
            finished_at=minutes(start + 10 * number + 9),
            session=session or f"s{start}-{number}",
            launch_bound=False,
            **more,
        )
        for number, turn in enumerate(turns)
    ]


def _number(store: Store, series: str = DECODE) -> dict[str, Any]:
    (row,) = store.query("SELECT * FROM numbers WHERE release = '0.32.0' AND series = ?", [series])
    return row


def test_a_slowdown_is_open_until_an_interleaved_re_run_confirms_it(store: Store, make_boot: MakeBoot) -> None:
    _speeds(make_boot, "ooonnn", 100, 90)
    store.ingest_pending()
    assert (_number(store)["verdict"], _number(store)["moved"], _number(store)["boots_to_decide"]) == ("inconclusive", True, 6)
    assert [row["stage"] for row in store.query("SELECT stage FROM findings WHERE subject = ?", [DECODE])] == ["detected"]
    for folder in _speeds(make_boot, "ononon", 100, 90, start=100, session="again", purpose=Purpose.CONFIRM):
        store.ingest(folder)
    number = _number(store)
    assert (number["verdict"], number["baseline"], number["n_rerun"]) == ("slower", "0.31.0", 3)
    assert number["median"] == pytest.approx(90, rel=0.01)
    (row,) = store.query("SELECT headline, alarm, last_good, decode_change FROM matrix WHERE is_newest")
    assert (row["headline"], row["alarm"], row["last_good"]) == ("slower", True, "0.31.0")
    assert row["decode_change"] == pytest.approx(-0.1, abs=0.01)
    assert [(r["stage"], r["subject"]) for r in store.query("SELECT stage, subject FROM cell_findings")] == [("confirmed", DECODE)]


def test_every_way_in_gives_the_same_database(store: Store, make_boot: MakeBoot) -> None:
    folders = [
        *_speeds(make_boot, "ooonnn", 100, 90),
        *_speeds(make_boot, "ononon", 100, 90, start=100, session="again"),
        make_boot(version="0.33.0", outcome=Outcome.CRASH, decode=(), started_at=minutes(300)),
        make_boot(version="0.31.5", outcome=Outcome.PASS, started_at=minutes(310), session="late", launch_bound=False),
        make_boot(version="0.1.dev21830+gabc", started_at=minutes(320), session="fork"),
        make_boot(version="v0.33", started_at=minutes(330), session="spelt", distribution="docker"),
        make_boot(version="0.33.0", started_at=minutes(340), session="driver", node=dataclasses.replace(NODE, driver_version="590.10")),
    ]
    session = SessionRecord("late", "node", "run", minutes(310), void=True)
    random.Random(7).shuffle(folders)
    for folder in folders:
        store.ingest(folder)
    store.keep(session)
    one_by_one = dump(store)
    store.rebuild()
    assert dump(store) == one_by_one
    for folder in folders[:4]:
        store.ingest(folder)
    assert dump(store) == one_by_one
    assert one_by_one["nodes"][0]["driver_version"] == "590.10", "the newest boot's record stands, whichever came in last"
    assert one_by_one["stale_histories"] == []


@pytest.mark.parametrize("seed", range(3))
def test_judging_only_what_a_boot_can_change_gives_what_judging_everything_gives(store: Store, make_boot: MakeBoot, seed: int) -> None:
    chance = random.Random(seed)
    speeds = {f"0.{number}.0": 100 * 0.93 ** (number % 4) for number in range(1, 9)}
    waiting: list[tuple[str, int]] = [(version, boot) for version in speeds for boot in range(6)]
    chance.shuffle(waiting)
    while waiting:
        for version, boot in waiting[:12]:
            fails = chance.random() < 0.02
            make_boot(
                version=version,
                outcome=Outcome.CRASH if fails else Outcome.PASS,
                decode=() if fails else (speeds[version] * chance.uniform(0.99, 1.01),),
                started_at=minutes(10 * (6 * list(speeds).index(version) + boot) + chance.randrange(9)),
                session=f"{boot // 3}-{chance.randrange(3)}",
                launch_bound=False,
                node=dataclasses.replace(NODE, driver_version=chance.choice(["580.95", "580.95", "590.10"])),
            )
        del waiting[:12]
        store.ingest_pending()
    by_and_by = dump(store)
    store.rebuild()
    assert dump(store) == by_and_by
    assert len(by_and_by["number_verdicts"]) > 6


@pytest.mark.parametrize("seed", range(4))
def test_whatever_changes_the_stored_verdicts_are_those_of_a_judgement_from_scratch(store: Store, make_boot: MakeBoot, seed: int) -> None:
    """Old boots that change, clocks, workloads under one name, forks, void visits, late releases: all reach back somehow."""
    chance = random.Random(seed)
    versions = ["0.1.0", "0.2.0", "v0.3", "0.4.0", "0.4.1", "0.5.0", "0.6.0", "0.1.dev7+gabc"]
    folders: list[BootFolder] = []
    for turn in range(10):
        for _ in range(chance.randrange(1, 6)):
            at = 10 * chance.randrange(200)
            fails = chance.random() < 0.1
            folder = make_boot(
                version=chance.choice(versions[: 4 + turn // 2] if chance.random() < 0.7 else versions),
                outcome=Outcome.CRASH if fails else Outcome.PASS,
                decode=() if fails else (100 * chance.uniform(0.8, 1.2),),
                started_at=minutes(at),
                finished_at=minutes(at + chance.choice([9, 9, 9, 15, -3])),
                session=f"s{chance.randrange(6)}",
                recipe_id=chance.choice([None, "one", "two"]),
                node=dataclasses.replace(NODE, driver_version=chance.choice(["580.95", "580.95", "590.10"])),
            )
            if chance.random() < 0.05:
                path = folder.path / "samples.jsonl"
                path.write_text(path.read_text().replace('"prompt_tokens": null', '"prompt_tokens": 64'))
            folders.append(folder)
        if chance.random() < 0.5:
            folder = chance.choice(folders)
            summary = folder.summary()
            changed = chance.choice([{"outcome": Outcome.WRONG}, {"finished_at": None}, {"engine_version": "0.4.1"}, {"session_id": "s1"}])
            folder.write_summary(dataclasses.replace(summary, run=dataclasses.replace(summary.run, **changed)))
            store.ingest(folder)
        store.ingest_pending()
        if chance.random() < 0.3:
            store.keep(SessionRecord(f"s{chance.randrange(6)}", "node", "run", minutes(0), void=chance.random() < 0.7))
    by_and_by = dump(store)
    store.rebuild()
    assert dump(store) == by_and_by


def test_a_boot_of_the_newest_release_has_no_older_one_judged_again(
    store: Store, make_boot: MakeBoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        make_boot(version=f"0.{number}.0", started_at=minutes(10 * number), session=f"s{number}")
    store.ingest_pending()
    read: list[int] = []
    monkeypatch.setattr(
        "results.verdicts_stored.admit", lambda history, *standing: read.append(len(history.boots)) or admit(history, *standing)
    )
    store.ingest(make_boot(version="0.5.0", started_at=minutes(100), session="new"))
    store.ingest(make_boot(version="0.3.0", started_at=minutes(110), session="old"))
    assert read == [2, 5], "the release of the boot, and what comes after it"


def test_a_verdict_of_another_rule_does_not_stand(store: Store, make_boot: MakeBoot, monkeypatch: pytest.MonkeyPatch) -> None:
    _speeds(make_boot, "ooonnn", 100, 100)
    store.ingest_pending()
    with store.writing() as connection:
        connection.execute("UPDATE number_verdicts SET reason = 'said by another rule'")
    store.ingest(make_boot(version="0.33.0", started_at=minutes(300)))
    said = "SELECT DISTINCT reason = 'said by another rule' AS old FROM numbers WHERE release = '0.32.0'"
    assert store.query(said) == [{"old": True}], "what has not changed was not judged again"
    monkeypatch.setattr("results.settled.rule", lambda: "another")
    store.ingest(make_boot(version="0.33.0", started_at=minutes(400)))
    assert store.query(said) == [{"old": False}]


def test_a_release_measured_late_changes_what_is_said_of_the_cells_around_it(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot(version="0.31.0", started_at=minutes(0)))
    store.ingest(make_boot(version="0.33.0", outcome=Outcome.CRASH, decode=(), started_at=minutes(10)))
    assert "in 0.33.0" in store.query("SELECT reason FROM matrix WHERE release = '0.33.0'")[0]["reason"]
    store.ingest(make_boot(version="0.32.0", started_at=minutes(20), backend_name="other", series="other"))
    cell = store.query("SELECT release, state, verdict, reason FROM matrix WHERE backend_name = 'eager' ORDER BY position")
    assert [(row["release"], row["state"], row["verdict"]) for row in cell] == [
        ("0.31.0", "pass", "new"),
        ("0.32.0", "not_run", None),
        ("0.33.0", "crash", "broke"),
    ]
    assert "between 0.31.0 and 0.33.0" in cell[-1]["reason"]


@pytest.mark.parametrize("purpose", [Purpose.CONTROL, Purpose.SWEEP, Purpose.REFERENCE, Purpose.SELF_CHECK])
def test_a_boot_made_for_something_else_is_no_evidence(store: Store, make_boot: MakeBoot, purpose: Purpose) -> None:
    store.ingest(make_boot())
    before = store.query("SELECT * FROM verdicts")
    store.ingest(make_boot(outcome=Outcome.CRASH, decode=(), purpose=purpose, started_at=minutes(10)))
    assert store.query("SELECT * FROM verdicts") == before
    assert [row["is_evidence"] for row in store.query("SELECT is_evidence FROM boots WHERE purpose = ?", [purpose])] == [False]


def test_a_running_boot_is_no_evidence_until_it_ends(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot(outcome=None)
    store.ingest(folder)
    assert store.query("SELECT * FROM verdicts") == []
    summary = folder.summary()
    folder.write_summary(dataclasses.replace(summary, run=dataclasses.replace(summary.run, outcome=Outcome.PASS)))
    store.ingest(folder)
    assert [row["state"] for row in store.query("SELECT state FROM verdicts")] == ["pass"]


def test_a_version_that_becomes_known_while_the_boot_runs_leaves_nothing_of_the_former_one(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot(version="0.31.0", started_at=minutes(0)))
    folder = make_boot(version="unknown", outcome=None, started_at=minutes(10))
    store.ingest(folder)
    summary = folder.summary()
    run = dataclasses.replace(summary.run, outcome=Outcome.PASS, engine_version="0.32.0", backend_name="other")
    folder.write_summary(dataclasses.replace(summary, run=run))
    store.ingest(folder)
    before = dump(store)
    assert [row["version"] for row in before["engine_versions"]] == ["0.31.0", "0.32.0"]
    store.rebuild()
    assert dump(store) == before


@pytest.mark.parametrize(
    ("changed", "phrase"),
    [
        ({"node": dataclasses.replace(NODE, driver_version="590.10")}, "driver (580.95 -> 590.10)"),
        ({"node": dataclasses.replace(NODE, sm_clock_cap_mhz=None)}, "clock_cap_mhz (2400 -> unknown)"),
        ({"protocol_version": 2}, "protocol (1 -> 2)"),
        ({"recipe_id": "other"}, "recipe_revision (unknown -> other)"),
    ],
)
def test_what_changed_with_the_release_makes_it_confounded(store: Store, make_boot: MakeBoot, changed: dict[str, Any], phrase: str) -> None:
    _speeds(make_boot, "ooo", 100, 90)
    _speeds(make_boot, "nnn", 100, 90, start=100, **changed)
    store.ingest_pending()
    assert (_number(store)["verdict"], _number(store)["differs"]) == ("confounded", [phrase])


def test_other_token_counts_under_one_workload_name_are_confounded(store: Store, make_boot: MakeBoot) -> None:
    for folder in _speeds(make_boot, "ooonnn", 100, 90):
        tokens = 128 if folder.summary().run.engine_version == "0.31.0" else 64
        path = folder.path / "samples.jsonl"
        path.write_text(path.read_text().replace('"prompt_tokens": null', f'"prompt_tokens": {tokens}'))
    store.ingest_pending()
    assert _number(store)["differs"] == ["prompts (decode_c1 128+? tokens x1 -> decode_c1 64+? tokens x1)"]


def test_an_image_and_a_wheel_of_one_release_are_two_histories(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot())
    store.ingest(make_boot(outcome=Outcome.CRASH, decode=(), distribution="docker", started_at=minutes(10)))
    rows = store.query("SELECT distribution, state FROM matrix ORDER BY distribution")
    assert rows == [{"distribution": "docker", "state": "crash"}, {"distribution": "venv", "state": "pass"}]


def test_numbers_beside_the_rates_are_judged_with_their_direction(store: Store, make_boot: MakeBoot) -> None:
    gib = 2**30
    for folder in _speeds(make_boot, "ooonnn", 100, 100) + _speeds(make_boot, "ononon", 100, 100, start=100, session="again"):
        new = folder.summary().run.engine_version == "0.32.0"
        memory = {"memory_baseline_bytes": gib, "memory_after_load_bytes": (70 if new else 61) * gib, "memory_peak_bytes": 71 * gib}
        from_log = {"model_memory_bytes": (66 if new else 60) * gib, "kv_cache_bytes": (18 if new else 20) * gib}
        from_log["swap_used_bytes"] = (9 if new else 0) * gib
        run = dataclasses.replace(
            folder.summary().run, memory_after_teardown_bytes=gib, kv_cache_tokens=90_000 if new else 100_000, **memory, **from_log
        )
        folder.write_summary(dataclasses.replace(folder.summary(), run=run))
        depths = (1_000, 4_000) if new else (1_000, 4_000, 16_000)
        folder.append([ContextRecord(run.run_id, "needle", depth, True, "recalled") for depth in depths])
        folder.append([ContextRecord(run.run_id, "needle", 16_000, False, "forgotten")] if new else [])
        folder.append([ScoreRecord(run.run_id, "cold", "nll_drift_rms", "passage", 0.02 if new else 0.00001)])
    store.ingest_pending()
    said = {row["series"]: row["verdict"] for row in store.query("SELECT series, verdict FROM numbers WHERE release = '0.32.0'")}
    assert said == {
        DECODE: "unchanged",
        "decode_c1/ttft_s": "unchanged",
        "memory_used_bytes": "slower",
        "memory_peak_used_bytes": "unchanged",
        "memory_leak_bytes": "unchanged",
        "swap_used_bytes": "slower",
        "model_memory_bytes": "slower",
        "kv_cache_bytes": "slower",
        "kv_cache_tokens": "slower",
        "verified_context_tokens": "slower",
        "nll_drift_rms": "slower",
    }
    assert _number(store, "memory_used_bytes")["median"] == 69 * gib
    assert _number(store, "memory_leak_bytes")["median"] == 0, "shown as measured, whatever the verdict's resolution is"
    assert {row["verified_context_tokens"] for row in store.query("SELECT verified_context_tokens FROM boots")} == {4_000, 16_000}


def test_a_canary_speed_never_joins_a_models(store: Store, make_boot: MakeBoot) -> None:
    store.ingest(make_boot(launch_bound=True))
    names = {row["series"] for row in store.query("SELECT series FROM numbers WHERE workload IS NOT NULL")}
    assert names == {"decode_c1/decode_tok_s/launch_bound", "decode_c1/ttft_s/launch_bound"}


# -- bad input --------------------------------------------------------------------------------------------------------------------------


def _exclusions(store: Store) -> dict[str, int]:
    (row,) = store.query("SELECT exclusions::VARCHAR AS text FROM histories")
    text = str(row["text"]).strip("{}")
    return {name.strip(' "'): int(number) for name, _, number in (part.partition(":") for part in text.split(",") if part)}


def test_numbers_of_a_boot_whose_node_was_off_are_left_out_and_counted(store: Store, make_boot: MakeBoot) -> None:
    good, bad = make_boot(started_at=minutes(0)), make_boot(started_at=minutes(10), decode=(10.0,), session="b")
    bad.append([HealthRecord(bad.run_id, minutes(10), "before", "void", ("bandwidth 60 % of history",))])
    good.append([HealthRecord(good.run_id, minutes(0), "before", "suspect", throttle_reasons=("thermal",))])
    store.ingest_pending()
    assert _exclusions(store) == {"node_not_fit": 3}
    assert store.query("SELECT boots, state, counts->>'pass' AS passed FROM verdicts") == [{"boots": 2, "state": "pass", "passed": "2"}]
    assert {row["health"] for row in store.query("SELECT health FROM boots")} == {"void", "suspect"}
    number = store.query("SELECT median, n_candidate FROM numbers WHERE series = ?", [f"{DECODE}/launch_bound"])
    assert number == [{"median": 101.0, "n_candidate": 1}]


def test_nan_from_anywhere_is_null_and_never_a_median(store: Store, make_boot: MakeBoot) -> None:
    folder = make_boot(decode=(100.0, float("nan"), float("inf")))
    path = folder.path / "samples.jsonl"
    assert '"decode_tok_s": null' in path.read_text(), "our own writer has no NaN"
    path.write_text(path.read_text().replace('"ttft_s": 0.1', '"ttft_s": NaN', 1))  # somebody else's has
    assert store.ingest_pending().ingested == (folder.run_id,)
    assert store.query("SELECT count(*) AS n FROM samples WHERE isnan(ttft_s) OR isnan(decode_tok_s)") == [{"n": 0}]
    medians = store.query("SELECT decode_tok_s, samples, ttft_s FROM boot_medians")
    assert medians == [{"decode_tok_s": 100.0, "samples": 1, "ttft_s": 0.1}]


def test_a_clock_that_went_back_costs_the_boots_their_numbers_and_is_counted(store: Store, make_boot: MakeBoot) -> None:
    make_boot(started_at=minutes(0), finished_at=minutes(9))
    make_boot(started_at=minutes(30), finished_at=minutes(10), session="back")
    store.ingest_pending()
    assert _exclusions(store) == {"clock_went_back": 1}
    assert [row["boots"] for row in store.query("SELECT boots FROM verdicts")] == [2]


def test_two_nodes_with_one_name_are_never_one_history(store: Store, make_boot: MakeBoot) -> None:
    make_boot(version="0.31.0", started_at=minutes(0))
    make_boot(version="0.32.0", started_at=minutes(10), node=dataclasses.replace(NODE, node_id="other"))
    store.ingest_pending()
    rows = store.query("SELECT node_id, node_label, headline FROM matrix ORDER BY node_id")
    assert [(row["node_id"], row["node_label"], row["headline"]) for row in rows] == [
        ("node", "my spark", "new"),
        ("other", "my spark", "new"),
    ]


@pytest.mark.parametrize("version", ["0.1.dev21830+g1234", "main", "0.32.0+fork.3", "", "0.33.0.dev5"])
def test_a_version_that_is_no_release_is_counted_and_never_sorted_as_one(store: Store, make_boot: MakeBoot, version: str) -> None:
    make_boot(version="0.32.0", started_at=minutes(0))
    make_boot(version=version, outcome=Outcome.CRASH, decode=(), started_at=minutes(10))
    store.ingest_pending()
    assert store.query("SELECT release, state FROM matrix") == [{"release": "0.32.0", "state": "pass"}]
    assert _exclusions(store) == {"not_a_release": 1}
    assert store.query("SELECT not_releases FROM histories") == [{"not_releases": [version]}]
    assert store.query("SELECT release, position FROM boots WHERE engine_version = ?", [version]) == [{"release": None, "position": None}]


def test_boots_of_two_protocols_are_never_compared_as_one(store: Store, make_boot: MakeBoot) -> None:
    _speeds(make_boot, "ooo", 100, 90)
    _speeds(make_boot, "nnn", 100, 90, start=100, protocol_version=2)
    _speeds(make_boot, "o", 90, 90, start=200, protocol_version=2)
    store.ingest_pending()
    number = _number(store)
    assert (number["verdict"], number["n_baseline"], number["n_candidate"]) == ("inconclusive", 1, 3)
    assert "3 boots under another node state were left out" in number["warnings"]
