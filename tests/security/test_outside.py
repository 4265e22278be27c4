"""Attacks from outside: names that are paths, questions that write, an engine that tells secrets and writes to the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from results.boot_folder import checked_run_id
from results.errors import FolderError, StoreError
from results.sample import sample_store
from results.store import Store
from runners.session import _recipe
from runners.spec import EngineSpec
from suites.errors import SuiteError
from suites.recipes import Source, recipe_for
from tests.planted import Planted, plant

SECRET = "hf_" + "Q7wErTyUiOpAsDfGhJkLzXcVbNm1234567"
IDS = [
    "../../etc/passwd",
    "/etc/passwd",
    "20261130T130501Z-1f00ab42/../../x",
    "20261130T130501Z-1f00ab42\n",
    "..",
    "",
    "\x1b[2J",
    "%2e%2e%2f",
]


@pytest.mark.parametrize("run_id", IDS)
def test_no_text_but_one_of_our_ids_becomes_a_path(run_id: str) -> None:
    with pytest.raises(FolderError):
        checked_run_id(run_id)


NAMES = ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", "\x1b[2J", "name\n--trust-remote-code", "%2e%2e%2f", "$(id)", "a;b", "C:\\x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_served_models_name_becomes_no_path_and_no_option(name: str) -> None:
    recipe = _recipe(f"served:{name}", [EngineSpec.parse("vllm==0.32.0@endpoint:http://127.0.0.1:9")])
    assert re.fullmatch(r"[a-z0-9_-][a-z0-9._-]*", recipe.name)
    assert ".." not in recipe.name.split("/")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_no_recipe_is_refused_before_anything_is_read(name: str) -> None:
    with pytest.raises(SuiteError):
        recipe_for(name)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", "owner/..", "../owner", "a/b/c", "a/b\n"])
def test_a_hub_id_is_owner_and_name_and_nothing_else(name: str) -> None:
    with pytest.raises(ValidationError):
        Source(hub=name)


@pytest.mark.parametrize("statement", ["DELETE FROM runs", "DROP TABLE runs", "CREATE TABLE x (y INTEGER)", "UPDATE runs SET run_id = 'x'"])
def test_a_question_never_writes_to_the_store(store: Store, statement: str) -> None:
    """The dashboard and every reading command ask through `query`."""
    before = store.query("SELECT count(*) n FROM runs")
    with pytest.raises(StoreError):
        store.query(statement)
    assert store.query("SELECT count(*) n FROM runs") == before


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return sample_store(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Planted, list[str]]]:
    """A whole boot whose engine prints the token it was given, terminal escapes and markup, and dies; all that the commands print of it."""
    planted = plant(tmp_path_factory.mktemp("planted"))
    secrets = {"SCRIPTED_BOOT": "tells_everything", "HF_TOKEN": SECRET}
    ran = planted.sparkproof("run", "--engine", f"vllm=={planted.version}", "--model", "canary-dense", **secrets)
    run_id = Store(planted.home).query("SELECT run_id FROM runs")[0]["run_id"]
    shown = [
        planted.sparkproof(*words)
        for words in (
            ("show", run_id),
            ("show", run_id, "--json"),
            ("serve-script", run_id),
            ("findings",),
            ("report", "--format", "markdown"),
            ("report", "--issue", run_id),
        )
    ]
    assert ran.returncode == 1, ran.stderr
    yield planted, [text for done in (ran, *shown) for text in (done.stdout, done.stderr)]


def test_a_token_that_an_engine_prints_is_in_no_record_and_on_no_screen(told: tuple[Planted, list[str]]) -> None:
    """`server.log` is the engine's own file, as it wrote it; everything made out of it is ours."""
    planted, printed = told
    files = [p for p in planted.home.rglob("*") if p.is_file() and p.name != "server.log"]
    assert any(p.name == "run.json" for p in files)
    assert [p.name for p in files if SECRET.encode() in p.read_bytes()] == []
    assert not any(SECRET in text for text in printed)


def test_a_report_says_what_it_should_without_the_token_and_the_markup(told: tuple[Planted, list[str]]) -> None:
    release, issue = told[1][-4], told[1][-2]
    assert "crash" in release
    assert "ValueError" in issue
    assert "\x1b" not in release + issue


def test_a_log_of_a_secret_can_be_read_by_its_owner_only(told: tuple[Planted, list[str]]) -> None:
    (log,) = told[0].home.rglob("server.log")
    assert SECRET in log.read_text()
    closed = [p for p in (log, log.parent, log.parent.parent, told[0].home) if not p.stat().st_mode & 0o005]
    assert closed, f"the log is open to everybody: {oct(log.stat().st_mode)}"


def test_what_an_engine_prints_moves_no_terminal(told: tuple[Planted, list[str]]) -> None:
    assert not any("\x1b]0" in text or "\x1b[2J" in text or "\x07" in text for text in told[1])
