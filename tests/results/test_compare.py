"""Two releases side by side: the stored verdict for neighbours, the same rule for others, and never more cells than somebody waits for."""

from __future__ import annotations

import random

import pytest

from results.compare import Question, UnknownReleaseError, compare
from results.store import Store
from results.vocabulary import Outcome
from tests.results.conftest import MakeBoot, minutes


def _plant(store: Store, make_boot: MakeBoot, speeds: dict[str, float | None], backends: tuple[str, ...] = ("eager",)) -> None:
    """Six boots of each release, releases in turns; a speed of None is a crash."""
    chance = random.Random(5)
    for number in range(6):
        for place, (version, speed) in enumerate(speeds.items()):
            for column, backend in enumerate(backends):
                make_boot(
                    version=version,
                    outcome=Outcome.CRASH if speed is None else Outcome.PASS,
                    decode=() if speed is None else (speed * chance.uniform(0.998, 1.002),),
                    started_at=minutes(1000 * (number // 3) + 10 * (number * len(speeds) + place) + 3 * column),
                    session=f"{'again' if number > 2 else number}-{backend}",
                    backend_name=backend,
                    launch_bound=False,
                )
    store.ingest_pending()


@pytest.mark.parametrize(
    ("old", "new", "word"), [("0.30.0", "0.31.0", "slower"), ("0.30.0", "0.32.0", "slower"), ("0.31.0", "0.32.0", "unchanged")]
)
def test_a_pair_is_judged_by_the_same_rule_whether_neighbours_or_not(
    store: Store, make_boot: MakeBoot, old: str, new: str, word: str
) -> None:
    _plant(store, make_boot, {"0.30.0": 100.0, "0.31.0": 90.0, "0.32.0": 90.0})
    (cell,) = compare(store, Question("vllm", old, new))
    assert (cell.verdict, cell.alarm) == (word, word == "slower")
    (decode,) = [number for number in cell.numbers if number.series == "decode_c1/decode_tok_s"]
    assert (decode.verdict, decode.boots) == (word, (6, 6))


def test_a_failed_side_has_no_numbers_and_a_side_never_booted_has_no_verdict(store: Store, make_boot: MakeBoot) -> None:
    _plant(store, make_boot, {"0.30.0": 100.0, "0.31.0": None})
    _plant(store, make_boot, {"0.31.0": 100.0}, backends=("other",))
    broke, alone = compare(store, Question("vllm", "0.30.0", "0.31.0"))
    assert (broke.verdict, broke.alarm, broke.numbers) == ("broke", True, ())
    assert (alone.backend_name, alone.verdict, alone.old, alone.reason) == ("other", None, None, "no evidence on the older release")


def test_a_spelling_of_a_release_is_that_release_and_an_unknown_one_is_named(store: Store, make_boot: MakeBoot) -> None:
    _plant(store, make_boot, {"v0.30": 100.0, "0.31.0": 100.0, "0.1.dev5+gabc": 100.0})
    (cell,) = compare(store, Question("vllm", "v0.30", "0.31.0"))
    assert cell.verdict == "unchanged"
    for version in ("0.1.dev5+gabc", "9.9"):
        with pytest.raises(UnknownReleaseError, match=r"Booted releases: 0\.31\.0, 0\.30"):
            compare(store, Question("vllm", version, "0.31.0"))


def test_cells_that_broke_do_not_take_every_turn_from_those_whose_numbers_can_be_judged(store: Store, make_boot: MakeBoot) -> None:
    _plant(store, make_boot, {"0.30.0": 100.0, "0.31.0": 100.0, "0.32.0": None}, backends=("a", "b"))
    _plant(store, make_boot, {"0.30.0": 100.0, "0.31.0": 100.0, "0.32.0": 90.0}, backends=("c",))
    broke, told, slower = compare(store, Question("vllm", "0.30.0", "0.32.0"), most_judged=2)
    assert [cell.verdict for cell in (broke, told, slower)] == ["broke", "broke", "slower"]
    assert slower.numbers and "pass -> crash; not judged" in told.reason


def test_of_more_cells_than_somebody_waits_for_those_that_changed_most_are_judged(store: Store, make_boot: MakeBoot) -> None:
    _plant(store, make_boot, {"0.30.0": 100.0, "0.31.0": 100.0, "0.32.0": 95.0}, backends=("a",))
    _plant(store, make_boot, {"0.30.0": 100.0, "0.31.0": 100.0, "0.32.0": 90.0}, backends=("b",))
    told, judged = compare(store, Question("vllm", "0.30.0", "0.32.0"), most_judged=1)
    assert judged.verdict == "slower"
    assert (told.verdict, told.numbers) == (None, ())
    assert "ask for one node" in told.reason
    one = compare(store, Question("vllm", "0.30.0", "0.32.0", backend="b"))
    assert [cell.verdict for cell in one] == ["slower"]
