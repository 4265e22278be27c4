"""compare, history, findings, ignore, import, export and db as they are typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from results.kept_files import KeptFiles
from results.store import Store
from results.vocabulary import Outcome
from runners.cli.main import app
from tests.results.conftest import MakeBoot, minutes
from tests.results.conftest import make_boot as make_boot  # noqa: PLC0414 - a fixture

CLAIMS = Path(__file__).parents[2] / "data" / "claims"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    home = tmp_path / "home"
    monkeypatch.setenv("SPARKPROOF_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "220")
    return Store(home, wait_s=5)


@pytest.fixture
def broken(store: Store, make_boot: MakeBoot) -> Store:
    """vLLM 0.30.0 and 0.31.0 pass, 0.32.0 crashes twice, and a fork build."""
    for number, version in enumerate(["0.30.0", "0.31.0", "0.32.0", "0.32.0", "0.1.dev7+gabc"]):
        outcome = Outcome.CRASH if version == "0.32.0" else Outcome.PASS
        decode = () if outcome is Outcome.CRASH else (100.0 + number,)
        make_boot(version=version, outcome=outcome, decode=decode, started_at=minutes(10 * number), session=f"s{number}")
    store.ingest_pending()
    return store


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def _json(*arguments: str) -> Any:
    done = _run(*arguments, "--json")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return json.loads(done.stdout)


def test_compare_shows_what_broke_and_says_so_with_its_exit_code(broken: Store) -> None:
    done = _run("compare", "vllm==0.31.0", "vllm==0.32.0")
    assert done.exit_code == 1
    assert "broke in 0.32.0: pass -> crash" in done.stdout
    (cell,) = _json("compare", "vllm==0.31.0", "vllm==0.32.0")["cells"]
    assert (cell["verdict"], cell["alarm"], cell["old"]["state"], cell["new"]["state"]) == ("broke", True, "pass", "crash")


def test_compare_judges_two_releases_that_are_not_neighbours(broken: Store) -> None:
    (cell,) = _json("compare", "vllm==0.30.0", "vllm==0.32.0")["cells"]
    assert (cell["verdict"], cell["alarm"]) == ("broke", True)
    (cell,) = _json("compare", "vllm==0.30.0", "vllm==0.31.0")["cells"]
    assert cell["verdict"] == "inconclusive"
    assert {number["boots_to_decide"] for number in cell["numbers"]} == {3}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["vllm==0.31.0", "vllm==0.99.0"], "was never booted here"),
        (["vllm==0.31.0", "sglang==0.5.14"], "not two releases of one engine"),
        (["vllm==0.31.0", "vllm"], "both sides need a version"),
        (["vllm==0.31.0", "vllm==x.y"], "is not a version"),
    ],
)
def test_compare_refuses_what_cannot_be_compared(broken: Store, arguments: list[str], said: str) -> None:
    done = _run("compare", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr


def test_compare_of_a_filter_that_fits_nothing_is_no_error(broken: Store) -> None:
    assert _json("compare", "vllm==0.31.0", "vllm==0.32.0", "--backend", "none")["cells"] == []
    assert "no cell was booted" in _run("compare", "vllm==0.31.0", "vllm==0.32.0", "--node", "elsewhere").stdout


def test_history_shows_every_release_and_what_was_left_out(broken: Store) -> None:
    done = _run("history", "--engine", "vllm", "--model", "canary-dense", "--backend", "eager")
    assert done.exit_code == 0
    assert "0.30.0" in done.stdout and "broke" in done.stdout
    assert "left out: 1 boots of builds that are no release" in done.stdout
    (cell,) = _json("history", "--cell", broken.query("SELECT history_id FROM histories")[0]["history_id"][:5])
    assert [row["release"] for row in cell["releases"]] == ["0.30.0", "0.31.0", "0.32.0"]
    assert cell["exclusions"]["not_a_release"] == 1
    assert cell["not_releases"] == ["0.1.dev7+gabc"]


def test_history_of_a_number_shows_its_level(broken: Store) -> None:
    (cell,) = _json("history", "--engine", "vllm", "--metric", "decode_tok_s")
    assert [(row["release"], row["median"]) for row in cell["numbers"]] == [("0.30.0", 100.0), ("0.31.0", 101.0)]
    assert all(row["level"] is not None for row in cell["numbers"])
    assert "level" in _run("history", "--engine", "vllm", "--metric", "decode_c1/decode_tok_s/launch_bound").stdout
    assert "no number 'speed'" in _run("history", "--metric", "speed").stderr


def test_an_unknown_cell_is_a_usage_error(broken: Store) -> None:
    assert _run("history", "--cell", "zzz").exit_code == 2


def test_a_finding_is_listed_ignored_and_taken_back(broken: Store) -> None:
    listed = _json("findings")
    assert (listed["exit_code"], _run("findings").exit_code) == (1, 1)
    (finding,) = listed["findings"]
    short = finding["finding_id"][:6]
    assert _run("ignore", short, "--why", "known upstream, vllm-project/vllm#1").exit_code == 0
    assert _json("findings") == {"exit_code": 0, "findings": []}
    (ignored,) = _json("findings", "--all")["findings"]
    assert (ignored["stage"], ignored["note"]) == ("ignored", "known upstream, vllm-project/vllm#1")
    assert len(KeptFiles(broken.root).read_all()[0]) == 1
    assert "known upstream" in _run("ignore", short, "--take-back").stdout
    assert _json("findings")["findings"][0]["stage"] == "confirmed"


@pytest.mark.parametrize(
    "arguments", [["abc"], ["abc", "--why", " "], ["abc", "--why", "x", "--take-back"], ["zzz", "--why", "x"], ["", "--why", "x"]]
)
def test_ignore_wants_an_id_and_either_a_reason_or_to_take_it_back(broken: Store, arguments: list[str]) -> None:
    assert _run("ignore", *arguments).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["findings"], 0),
        (["history"], 2),
        (["compare", "vllm==1.0", "vllm==2.0"], 2),
        (["ignore", "a", "--why", "x"], 2),
        (["db", "check"], 3),
        (["export", "--to", "x"], 3),
    ],
)
def test_an_empty_store_is_said_and_never_a_traceback(store: Store, arguments: list[str], code: int) -> None:
    done = _run(*arguments)
    assert done.exit_code == code
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert not store.database.exists()


def test_export_and_import_on_another_node(broken: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _json("export", "--to", str(tmp_path / "export"))["tables"]["runs"] == 5
    monkeypatch.setenv("SPARKPROOF_HOME", str(tmp_path / "other"))
    report = _json("import", str(tmp_path / "export"), "--label", "spark 2")
    assert (report["exit_code"], len(report["imported"])) == (0, 5)
    assert _json("findings")["findings"][0]["node_label"] == "spark 2"
    assert "0 boots imported, 5 were here already" in _run("import", str(broken.root)).stdout


def test_claims_are_imported_with_what_the_user_says_of_them(store: Store) -> None:
    arguments = ["import", str(CLAIMS / "llama-benchy-0.4.0.json"), "--engine", "vllm==0.32.0", "--model", "gpt-oss-120b", "--source", "me"]
    first, again = _json(*arguments), _json(*arguments)
    assert (first["new"] > 0, again["new"]) == (True, 0)
    rows = store.query("SELECT DISTINCT engine, engine_version, recipe_name, source FROM claims")
    assert rows == [{"engine": "vllm", "engine_version": "0.32.0", "recipe_name": "gpt-oss-120b", "source": "me"}]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["/nowhere"], 2, "no boot folders here"),
        ([str(CLAIMS / "README.md")], 2, "no JSON object"),
        ([str(CLAIMS)], 2, "no boot folders here"),
        ([str(CLAIMS), "--engine", "vllm==0.32.0"], 2, "is for another tool's file"),
        ([str(CLAIMS / "llama-benchy-0.4.0.json"), "--label", "x"], 2, "--label is for boots"),
    ],
)
def test_import_says_what_it_can_take(store: Store, arguments: list[str], code: int, said: str) -> None:
    done = _run("import", *arguments)
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr


def test_db_check_and_vacuum(broken: Store) -> None:
    assert _json("db", "check")["problems"] == []
    assert _json("db", "vacuum")["tables"]["runs"] == 5
    assert _run("db", "check").exit_code == 0
    with broken.writing() as connection:
        connection.execute("UPDATE stored_medians SET decode_tok_s = 1")
    done = _run("db", "check")
    assert done.exit_code == 3
    assert "differ from their formula; run `sparkproof rebuild`" in done.stderr
    assert _run("rebuild").exit_code == 0
    assert _run("db", "check").exit_code == 0
