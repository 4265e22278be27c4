"""One final row whatever happens, at the moments that a whole boot rarely meets."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from results.boot_folder import BootFolder
from results.records import NodeRecord
from results.store import Store
from results.vocabulary import Outcome
from runners.pipeline import Workshop, run_boot
from runners.plan import plan_boots
from runners.process.interrupt import Interrupts
from runners.spec import EngineSpec
from suites.backends import backend_for
from suites.recipes import Recipe, Source
from suites.workloads import STANDARD_WORKLOADS

NODE = NodeRecord("n", "node")
SERVED = Recipe(name="nothing", kind="model", source=Source(served="nothing"))
ENDPOINT = EngineSpec.parse("vllm==0.32.0@endpoint:http://127.0.0.1:9")


class InterruptedStore(Store):
    """The user presses Ctrl-C while the first row is stored."""

    interrupts: Interrupts | None = None

    def ingest(self, folder: BootFolder) -> None:
        super().ingest(folder)
        if self.interrupts is not None and not self.interrupts.received:
            self.interrupts.handle(signal.SIGINT)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_boot_that_is_stopped_while_it_begins_has_its_final_row(tmp_path: Path, interrupted: bool) -> None:
    (planned,) = plan_boots([ENDPOINT], [SERVED], [backend_for("default")], STANDARD_WORKLOADS, 1, ())
    store, interrupts = InterruptedStore(tmp_path), Interrupts()
    store.interrupts = interrupts if interrupted else None
    result = run_boot(planned, Workshop(store, tmp_path / "cache", NODE, False, "session", interrupts))
    assert result.run.outcome is (Outcome.INTERRUPTED if interrupted else Outcome.INFRASTRUCTURE)
    assert store.query("SELECT outcome, phase FROM runs") == [{"outcome": result.run.outcome, "phase": result.run.phase}]
    assert result.run.finished_at is not None
