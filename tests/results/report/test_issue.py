"""A boot as a bug report: what must be in it, what must not, and that nothing in it is markup."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from results.boot_folder import BootFolder
from results.records import CoherenceRecord, DiagnosisRecord, EngineBuildRecord
from results.report.anonymous import Identity
from results.report.issue import MOST_CHARACTERS, Issue, IssueRows, issue_markdown, issue_of
from results.report.issue_rows import issue_rows
from results.store import Store
from results.vocabulary import Outcome
from suites.backends import Expressed, backend_for, express
from tests.results.planted_boots import plant
from tests.results.report.markdown import SHOWN, active, kinds_holding

IDENTITY = Identity(frozenset({"gx10-0815"}), frozenset({"hildegard"}), frozenset())
EVIL = "EVIL``` <img src=x onerror=alert(1)> [l](javascript:alert) @someone\n```\n# EVIL"
SECRETS = ("hildegard", "gx10-0815", "hf_aaaaaaaaaaaaaaaaaaaa", "/home/", "192.168.1.7", "anna.k")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def _rewrite(store: Store, run_id: str, *, wheels: tuple[str, ...] = (), rows: tuple[Any, ...] = (), **fields: Any) -> None:
    """Change what a planted boot recorded, in its folder and in the store."""
    folder = BootFolder(store.boots, run_id)
    summary = folder.summary()
    build = EngineBuildRecord(f"build-{run_id}", "vllm", summary.run.engine_version, "venv", "3.12.3", wheels)
    run = dataclasses.replace(summary.run, build_id=build.build_id, **fields)
    folder.write_summary(dataclasses.replace(summary, run=run, build=build))
    folder.append(rows)
    store.ingest(folder)


@pytest.fixture
def broken(store: Store) -> str:
    """0.31.0 passed twice, 0.32.0 is incoherent: the run id of the latter, full of names and secrets."""
    first, good, bad = plant(store, {"0.30.0": [100.0], "0.31.0": [100.0], "0.32.0": [Outcome.INCOHERENT]})
    _rewrite(store, first, wheels=("vllm==0.30.0", "torch==2.8.0"))
    _rewrite(store, good, wheels=("vllm==0.31.0", "torch==2.9.0", "numpy==2.1.0", "gone==1"))
    answers = (
        CoherenceRecord(bad, "cold", "p0", "golden", "match", "as expected", "fine", (1, 2), (1, 2)),
        CoherenceRecord(
            bad,
            "cold",
            "p1",
            "golden",
            "wrong",
            "differs at token 5",
            "the /home/anna.k answer",
            tuple(range(9)),
            (0, 1, 2, 3, 4, 50, 51),
            5,
        ),
        CoherenceRecord(bad, "warm", "p2", "golden", "token_flood", "a flood", "!!!!", (0,) * 9, (7,), 0),
    )
    why = DiagnosisRecord(
        bad,
        "2026-11-30T13:00:00+00:00",
        "kernel",
        "moe=cutlass",
        "Only the CUTLASS experts are wrong.",
        ("--moe-backend marlin",),
        ("c1", "c2"),
    )
    _rewrite(
        store,
        bad,
        wheels=("vllm==0.32.0", "torch==2.9.0", "numpy==2.2.0", "flashinfer-python==0.5.0"),
        rows=(*answers, why),
        command=(
            "/home/anna.k/env/bin/python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            "/home/anna.k/m",
            "--host",
            "192.168.1.7",
        ),
        environment={"HF_HOME": "/home/anna.k/hf", "VLLM_USE_FLASHINFER_MOE_FP4": "1"},
        configured={"moe": "cutlass"},
        actual={"moe": "marlin", "attention": "unknown"},
        reason="broken on gx10-0815",
        signature="ARCH09",
        log_excerpt="hildegard@gx10-0815 HF_TOKEN=hf_aaaaaaaaaaaaaaaaaaaa\nERROR no kernel image",
        server_version="0.32.0",
    )
    return bad


def _issue(store: Store, run_id: str) -> Issue:
    rows = issue_rows(store, run_id)
    assert rows is not None
    return issue_of(rows, IDENTITY)


def test_everything_a_maintainer_needs_is_in_it(store: Store, broken: str) -> None:
    text = issue_markdown(_issue(store, broken))
    for words in (
        "vllm 0.32.0: incoherent",
        "vllm.entrypoints.openai.api_server",
        "VLLM_USE_FLASHINFER_MOE_FP4=1",
        "| `moe` | `cutlass` | `marlin` |",
        "| `attention` | `–` | `unknown` |",
        "| first differing token | 5 |",
        "(2 in all)",
        "`2 3 4 50 51`",
        "`2 3 4 5 6 7 8`",
        "Only the CUTLASS experts are wrong.",
        "`--moe-backend marlin`",
        "ARCH09",
        "ERROR no kernel image",
        "sparkproof run --engine vllm==0.32.0 --model canary-dense --backend eager",
        "| `0.31.0` | `pass` | 1 |",
    ):
        assert words in text, words


def test_a_backend_that_is_a_file_of_ones_own_comes_with_the_report(store: Store, broken: str, tmp_path: Path) -> None:
    rows = issue_rows(store, broken)
    assert rows is not None
    boot = {**rows.boot, "backend_name": "blocks", "backend_arguments": ["--block-size", "16", 'say "END"\nEND']}
    own = dataclasses.replace(rows, boot=boot, backend_environment={"VLLM_X": "1"})
    shown = issue_of(own, IDENTITY, own_backend=True).reproduce
    found = re.fullmatch(r"cat > backend\.toml <<'END'\n(.*\n)END\n(sparkproof run .*)", shown, re.DOTALL)
    assert found is not None
    text, command = found.groups()
    assert command.endswith("--backend ./backend.toml")
    assert "\nEND\n" not in text
    (tmp_path / "backend.toml").write_text(text)
    expressed = express(backend_for(str(tmp_path / "backend.toml")), "vllm", "0.32.0")
    assert isinstance(expressed, Expressed)
    assert (list(expressed.arguments), expressed.environment) == (boot["backend_arguments"], {"VLLM_X": "1"})
    assert "--backend blocks" in issue_of(own, IDENTITY).reproduce, "a backend of Sparkproof's needs no file"


def test_the_wheel_difference_is_against_the_newest_good_build_the_kernels_first(store: Store, broken: str) -> None:
    issue = _issue(store, broken)
    assert issue.compared_with is not None
    assert issue.compared_with["version"] == "0.31.0"
    assert [(c["name"], c["before"], c["after"]) for c in issue.wheel_changes] == [
        ("vllm", "0.31.0", "0.32.0"),
        ("flashinfer-python", None, "0.5.0"),
        ("gone", "1", None),
        ("numpy", "2.1.0", "2.2.0"),
    ]


def test_no_planted_secret_name_or_address_is_in_it(store: Store, broken: str) -> None:
    issue = _issue(store, broken)
    for shown in (issue_markdown(issue), json.dumps(issue.as_json(), default=str)):
        for secret in SECRETS:
            assert secret not in shown, secret
    assert "my spark" not in issue_markdown(issue), "the label of a node is its owner's"


def _rows(**more: Any) -> IssueRows:
    """Rows in which every text from outside is hostile."""
    told = (
        "engine engine_version recipe_name backend_name phase reason signature log_excerpt model recipe_revision quantization distribution"
    )
    node = "gpu_name compute_capability driver_version cuda_version kernel_version firmware"
    build = "build_id image_digest python_version server_version"
    boot: dict[str, Any] = dict.fromkeys(f"{told} {node} {build}".split(), EVIL)
    boot |= {"run_id": "20261130T130501Z-1f00ab42", "outcome": "crash", "command": [EVIL], "environment": {EVIL: EVIL}, "warnings": [EVIL]}
    boot |= {
        "configured": {EVIL: EVIL},
        "actual": {EVIL: EVIL},
        "wheels": [f"{EVIL}==1"],
        "max_model_len": 8,
        "kv_cache_tokens": None,
        **more,
    }
    good = {**boot, "wheels": [f"{EVIL}==2"]}
    answer = {"step": EVIL, "prompt_name": EVIL, "verdict": EVIL, "reason": EVIL, "text": EVIL, "first_divergence": None}
    diagnosis = {"sentence": EVIL, "use_instead": [EVIL], "controls": ["a"]}
    history = [{"release": EVIL, "state": EVIL, "boots": 1}]
    return IssueRows(boot, good, [{**answer, "token_ids": None, "expected_ids": None}], [diagnosis], history, [EVIL])


def test_hostile_text_anywhere_in_the_rows_never_becomes_markup() -> None:
    text = issue_markdown(issue_of(_rows(), IDENTITY))
    assert not active(text)
    assert kinds_holding(text, "EVIL") == SHOWN - {"code_block"}
    assert kinds_holding(text, "@someone") <= SHOWN


def test_a_report_that_would_be_refused_for_its_length_is_shortened_with_whole_fences() -> None:
    text = issue_markdown(
        issue_of(
            dataclasses.replace(
                _rows(), same_signature=["x" * 190] * 20, history=[{"release": "r" * 200, "state": "pass", "boots": 1}] * 400
            ),
            IDENTITY,
        )
    )
    assert len(text) <= MOST_CHARACTERS
    assert not active(text)


def test_a_boot_that_started_nothing_and_has_no_good_one_says_so(store: Store) -> None:
    (run_id,) = plant(store, {"0.32.0": [Outcome.UNSUPPORTED]})
    text = issue_markdown(_issue(store, run_id))
    for words in ("No server was started", "No boot of this cell has passed", "No log excerpt", "No kernel is known"):
        assert words in text


def test_an_unknown_run_has_no_rows(store: Store) -> None:
    plant(store, {"0.32.0": [100.0]})
    assert issue_rows(store, "20200101T000000Z-00000000") is None
