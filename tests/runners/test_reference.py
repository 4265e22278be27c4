"""Known good references: collected, kept, found, widened; and whole boots that make and use one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.store import Store
from runners.coherence.collecting import LEAST_FLOOR_RMS, Collected, collect, widened
from runners.coherence.gate import GateTarget
from runners.coherence.reference_file import Answer, Key, Made, Reference, find_reference, read_reference, write_reference
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for
from runners.errors import UsageError
from runners.model_references import key_of, known_good_for
from runners.models import LocalModel
from runners.reference_maker import widen
from suites.recipes import Recipe, Source, recipe_for
from tests.planted import Planted, plant
from tests.runners.coherence.test_model_gate import ModelServer, question_of

_KEY = Key(model="owner/model", revision="abc", template=None, prompts="p")
_MADE = Made(run_id="r", made_at="2026-11-30T00:00:00Z", engine="vllm", engine_version="0.32.0", backend="eager", node="n")


def collected(server: ModelServer) -> Collected:
    target = GateTarget("run", "http://server", "model", context=2048)
    return asyncio.run(collect(server.send, target, adapter_for("vllm"), lambda _line: None, lambda: 0.0))


def test_every_prompt_is_collected_alone_and_in_batches_with_its_counts() -> None:
    found = collected(ModelServer())
    assert found.problem is None
    assert {"raw_story", "chat_sky", "chat_system", "raw_long_context", "golden_sum"} <= set(found.answers)
    assert all([answer.seen for answer in answers] == [4] for answers in found.answers.values())
    assert all(answer.margins and len(answer.margins) == len(answer.tokens) for answers in found.answers.values() for answer in answers)
    assert len(found.passages) == 4
    assert {passage.floor_rms for passage in found.passages.values()} == {LEAST_FLOOR_RMS}, "a server that repeats itself exactly"


def test_a_bistable_prompt_keeps_its_alternatives_the_most_frequent_first() -> None:
    server = ModelServer()
    asked: list[HttpRequest] = []

    def bistable(request: HttpRequest) -> str:
        if "umbrellas" not in question_of(request) and "frightens" not in question_of(request):
            return "A plain answer."
        asked.append(request)
        return "Biscuit fears umbrellas." if len(asked) % 4 else "She fears umbrellas."

    server.text_for = bistable
    answers = collected(server).answers["chat_turns"]
    assert [(answer.text, answer.seen) for answer in answers] == [("Biscuit fears umbrellas.", 3), ("She fears umbrellas.", 1)]


def test_a_broken_answer_makes_no_reference() -> None:
    server = ModelServer()
    server.text_for = lambda request: "!" * 80 if "frightens" in question_of(request) else "A plain answer."
    found = collected(server)
    assert "chat_turns" in (found.problem or "")
    assert not found.answers


def test_a_reference_comes_back_as_it_was_written(tmp_path: Path) -> None:
    found = collected(ModelServer())
    passages = {"bf16 / none / auto": found.passages}
    reference = Reference(key=_KEY, made=(_MADE,), answers=found.answers, texts=found.texts, passages=passages)
    write_reference(tmp_path / "r.json", reference)
    assert read_reference(tmp_path / "r.json") == reference
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is no reference"),
        ("[]", "is no reference"),
        ('{"format": 2}', "format"),
        ('{"format": 1, "key": {}, "made": []}', "key.model"),
        ("{" * 10_000, "is no reference"),
    ],
)
def test_a_damaged_reference_is_refused_with_the_place(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=words) as caught:
        read_reference(path)
    assert caught.value.where == str(path)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=120))
def test_any_bytes_are_a_reference_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(raw)
    with pytest.raises(UsageError):
        read_reference(path)


def test_a_reference_is_found_by_its_key_alone(tmp_path: Path) -> None:
    write_reference(tmp_path / _KEY.file_name, Reference(key=_KEY, made=(_MADE,)))
    assert find_reference(_KEY, tmp_path, tmp_path / "shipped") is not None
    for other in ({"revision": "def"}, {"template": "t"}, {"prompts": "q"}, {"model": "owner/other"}):
        assert find_reference(_KEY.model_copy(update=other), tmp_path, tmp_path / "shipped") is None


def test_a_file_under_a_foreign_name_is_refused(tmp_path: Path) -> None:
    write_reference(tmp_path / _KEY.file_name, Reference(key=_KEY.model_copy(update={"revision": "zzz"}), made=(_MADE,)))
    with pytest.raises(UsageError, match="belongs to another model"):
        find_reference(_KEY, tmp_path, tmp_path / "shipped")


def test_a_hostile_model_name_stays_inside_the_folder() -> None:
    name = _KEY.model_copy(update={"model": "../../etc/passwd\x00\u202e"}).file_name
    assert "/" not in name
    assert not name.startswith(".")


def test_the_key_changes_with_weights_template_and_bos(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"12")
    recipe, model = Recipe(name="m", kind="model", source=Source(path=str(tmp_path))), LocalModel("m", tmp_path)
    keys = {key_of(recipe, model).digest, key_of(recipe.model_copy(update={"bos": "omit"}), model).digest}
    (tmp_path / "model.safetensors").write_bytes(b"123")
    keys.add(key_of(recipe, model).digest)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    keys.add(key_of(recipe, model).digest)
    (tmp_path / "chat_template.jinja").write_text("{{ other }}")
    keys.add(key_of(recipe, model).digest)
    assert len(keys) == 5
    assert known_good_for(recipe, model, tmp_path) is None


def test_all_formats_of_a_canary_share_one_key() -> None:
    recipe = recipe_for("canary-dense")
    other = recipe.model_copy(update={"name": "canary-dense-fp8", "weight_format": "fp8"})
    assert key_of(recipe, LocalModel("a", None)) == key_of(other, LocalModel("b", None))


def test_an_answer_is_added_once_and_marked() -> None:
    first = (Answer(text="a", tokens=("a",)),)
    grown = widened(first, Answer(text="b", tokens=("b",), why="read it"))
    assert [(a.text, a.by, a.why) for a in grown] == [("a", "make", ""), ("b", "widen", "read it")]
    assert widened(grown, Answer(text="b")) == grown


# --- whole boots -------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """One planted cache and store for all whole boots of this module."""
    return plant(tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def made(world: Planted) -> Any:
    """What `reference make` printed for the dense canary."""
    done = world.sparkproof("reference", "make", "--engine", "vllm==0.32.0", "--model", "canary-dense", "--json", timeout_s=300)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_a_reference_boot_is_recorded_as_one_and_writes_the_file(world: Planted, made: Any) -> None:
    path = Path(made["written"])
    assert path.parent == world.home / "references"
    assert len(made["passages"]["any / none / auto"]) == len(made["texts"]) >= 4
    (run,) = Store(world.home).query("SELECT outcome, purpose, phase FROM runs")
    assert (run["outcome"], run["purpose"]) == ("pass", "reference")
    shown = world.sparkproof("reference", "show", str(path), "--json")
    assert json.loads(shown.stdout)["key"]["model"] == "canary/dense"
    listed = json.loads(world.sparkproof("reference", "show", "--json").stdout)
    assert str(path) in [entry["file"] for entry in listed]


def test_a_later_boot_is_compared_with_the_reference(world: Planted, made: Any) -> None:
    code, shown = world.run(SCRIPTED_AS="scores_drift")
    assert code == 1, shown
    (cell,) = shown["cells"]
    assert cell["outcome"] == "wrong"
    assert "log-probabilities of a fixed text drifted by 2.000 nats rms" in cell["reason"]
    assert "points at the numbers themselves" in cell["reason"]
    rows = Store(world.home).query(
        "SELECT metric, value, verdict FROM scores WHERE run_id = ? AND metric = 'nll_drift_rms'", [cell["run_ids"][0]]
    )
    assert {(round(row["value"], 3), row["verdict"]) for row in rows} == {(2.0, "drift")}


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [("loses_text", "wrong", "points at streaming"), ("scores_nan", "incoherent", "no finite numbers"), ("scores_refused", "pass", "")],
)
def test_faults_beyond_single_answers_get_their_outcome(world: Planted, made: Any, script: str, outcome: str, words: str) -> None:
    _, shown = world.run(SCRIPTED_AS=script)
    (cell,) = shown["cells"]
    assert cell["outcome"] == outcome, cell["reason"]
    assert words in (cell["reason"] or "")


def test_a_boot_that_fails_its_gate_writes_no_reference(world: Planted, tmp_path: Path) -> None:
    to = tmp_path / "bad.json"
    arguments = ("reference", "make", "--engine", "vllm==0.32.0", "--model", "canary-dense", "--to", str(to), "--json")
    done = world.sparkproof(*arguments, timeout_s=300, SCRIPTED_AS="flood")
    assert done.returncode == 1
    assert json.loads(done.stdout)["written"] is None
    assert not to.exists()


def test_widening_needs_a_reason_a_known_prompt_and_a_run(world: Planted, made: Any, tmp_path: Path) -> None:
    run_id = Store(world.home).query("SELECT run_id FROM runs WHERE outcome = 'pass' LIMIT 1")[0]["run_id"]
    prompt = Store(world.home).query("SELECT prompt_name FROM coherence_results WHERE run_id = ? LIMIT 1", [run_id])[0]["prompt_name"]
    path = tmp_path / "r.json"
    write_reference(path, Reference(key=_KEY, made=(_MADE,), answers={prompt: (Answer(text="something else"),)}))
    for arguments, words in (
        (("--run", run_id, "--prompt", prompt, "--why", " "), "only with a reason"),
        (("--run", run_id, "--prompt", "nothing", "--why", "w"), "has no prompt"),
        (("--run", "no-such-run", "--prompt", prompt, "--why", "w"), "has no answer"),
    ):
        refused = world.sparkproof("reference", "widen", str(path), *arguments)
        assert refused.returncode == 2
        assert words in " ".join(refused.stderr.split())
    changed, added = widen(read_reference(path), Store(world.home), run_id, prompt, "read it")
    assert added == 1
    assert [(a.by, a.why) for a in changed.answers[prompt]] == [("make", ""), ("widen", "read it")]
    done = world.sparkproof("reference", "widen", str(path), "--run", run_id, "--prompt", prompt, "--why", "read it", "--json")
    assert json.loads(done.stdout)["added"] == 1
    assert (
        json.loads(world.sparkproof("reference", "widen", str(path), "--run", run_id, "--prompt", prompt, "--why", "x", "--json").stdout)[
            "added"
        ]
        == 0
    )
