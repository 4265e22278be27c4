"""Our own false-alarm rate over a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from results.boot_folder import BootFolder
from results.self_checks import SelfChecks, self_checks
from results.store import Store
from results.vocabulary import Outcome, Purpose
from tests.dashboard.stores import Planned, write_boot


def _store(root: Path, outcomes: list[Outcome], purpose: Purpose = Purpose.SELF_CHECK) -> Store:
    store = Store(root)
    for number, outcome in enumerate(outcomes, 1):
        folder = BootFolder(store.boots, write_boot(store, number, Planned(outcome=outcome, decode=50.0)))
        summary = folder.summary()
        folder.write_summary(dataclasses.replace(summary, run=dataclasses.replace(summary.run, purpose=purpose)))
    store.rebuild()
    return store


def test_equal_boots_tell_no_news(tmp_path: Path) -> None:
    found = self_checks(_store(tmp_path, [Outcome.PASS] * 6))
    assert (found.boots, found.alarms) == (6, ())
    assert found.comparisons > 1


def test_news_about_nothing_is_counted(tmp_path: Path) -> None:
    found = self_checks(_store(tmp_path, [Outcome.PASS, Outcome.CRASH] * 3))
    assert found.alarms == ("0.32.0 outcome: broke",)


@pytest.mark.parametrize("purpose", [Purpose.MEASURE, Purpose.CONTROL])
def test_other_boots_take_no_part(tmp_path: Path, purpose: Purpose) -> None:
    assert self_checks(_store(tmp_path, [Outcome.PASS, Outcome.CRASH] * 3, purpose)) == SelfChecks(0, 0, 0, ())


def test_only_the_node_asked_for_counts(tmp_path: Path) -> None:
    assert self_checks(_store(tmp_path, [Outcome.PASS] * 4), "another").boots == 0
