"""`sparkproof judge FILE` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from runners.cli.judge import judge
from runners.coherence.saved_outputs import judge_saved, read_outputs
from runners.errors import UsageError

_APP = typer.Typer()
_APP.command()(judge)
_CASES = Path(__file__).parents[2] / "data" / "structural_cases.json"


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(_APP, list(arguments), env={"COLUMNS": "200"})


def _file(tmp_path: Path, content: Any, name: str = "outputs.json") -> str:
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_every_recorded_case_gets_its_class_and_a_broken_one_makes_the_exit_code_1() -> None:
    result = _run(str(_CASES), "--json")
    classes = {item["name"]: item["class"] for item in json.loads(result.stdout)["items"]}
    expected = {case["name"]: case["expect"] for case in json.loads(_CASES.read_text(encoding="utf-8"))}
    assert classes == {name: "pass_structure" if kind == "wrong" else kind for name, kind in expected.items()}
    assert result.exit_code == 1


def test_good_outputs_exit_0_and_say_how_many(tmp_path: Path) -> None:
    result = _run(_file(tmp_path, [{"name": "sky", "text": "It scatters blue light."}]))
    assert result.exit_code == 0
    assert "nothing broken in 1 outputs" in result.stdout


def test_plain_text_is_one_output_with_class_reason_and_position(tmp_path: Path) -> None:
    result = _run(_file(tmp_path, "The capital of France is Paris. " + "so it goes " * 40, "answer.txt"))
    assert result.exit_code == 1
    shown = " ".join(result.stdout.split())
    assert "repetition_loop" in shown
    assert "repeats" in shown
    assert " 3" in shown


def test_text_that_begins_like_a_footnote_is_plain_text() -> None:
    (output,) = read_outputs(b"[1] See the second chapter, and [2] the third.", "notes.txt")
    assert output.text.startswith("[1]")


def test_fluent_but_wrong_text_is_wrong_only_against_a_golden_text(tmp_path: Path) -> None:
    outputs = _file(tmp_path, [{"name": "paris", "text": "The capital of France is Lyon."}, {"name": "other", "text": "A fine day."}])
    golden = _file(
        tmp_path,
        [{"name": "paris", "text": "It is Paris."}, {"name": "paris", "text": "The capital of France is Paris."}],
        "golden.json",
    )
    assert _run(outputs).exit_code == 0
    result = _run(outputs, "--golden", golden, "--json")
    paris, other = json.loads(result.stdout)["items"]
    assert (paris["class"], paris["position"], paris["broken"]) == ("wrong", 25, False)
    assert "'Lyon.' and should be 'Paris.'" in paris["reason"]
    assert other["class"] == "pass_structure"
    assert result.exit_code == 1


def test_an_alternative_golden_text_is_a_match_even_if_it_repeats(tmp_path: Path) -> None:
    text = "echo " * 60
    outputs = _file(tmp_path, [{"name": "echo", "text": text}])
    golden = _file(tmp_path, [{"name": "echo", "text": "no"}, {"name": "echo", "text": text}], "golden.json")
    assert json.loads(_run(outputs, "--golden", golden, "--json").stdout)["items"][0]["class"] == "match"
    assert _run(outputs, "--golden", golden).exit_code == 0


def test_null_text_is_empty_and_a_known_stop_allows_a_refrain(tmp_path: Path) -> None:
    lines = "I will not feed the printer to the goat.\n" * 10
    path = _file(
        tmp_path,
        [
            {"name": "null", "text": None},
            {"name": "refrain", "text": lines, "finish_reason": "stop"},
            {"name": "loop", "text": lines, "finish_reason": "length"},
        ],
    )
    items = json.loads(_run(path, "--json").stdout)["items"]
    assert [item["class"] for item in items] == ["empty", "pass_structure", "repetition_loop"]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 1, "a list should begin here, found the end of the file"),
        ("{}", 1, "a list should begin here, found '{}'"),
        ("[]", None, "holds no output"),
        ('[{"name": "a", "text": "b"}', 1, "comma or ], found the end of the file"),
        ('[\n{"name": "a", "text": "b"}\n{"name": "c"}]', 3, "followed by a comma or ]"),
        ('[{"name": "a", "text": "b"},\n {"text": "c"}]', 2, "item 2: name is missing and should be a text"),
        ('[{"name": "a", "text": "b"},\n\n {"name": "c"}]', 3, "item 2: text is missing and should be a text or null"),
        ('[{"name": 5, "text": "b"}]', 1, "item 1: name is a number and should be a text"),
        ('[{"name": "a", "text": ["b"]}]', 1, "item 1: text is a list"),
        ('["a"]', 1, "item 1 is a text and should be an object"),
        ('[{"name": "a", "text": "b"}]\n\nmore', 3, "nothing should follow the list"),
        ('[{"name": "a",\n "text": b}]', 2, "not valid JSON"),
        ("[" + '{"a":' * 5_000, 1, "JSON that cannot be read: RecursionError"),
    ],
)
def test_bad_input_is_refused_with_file_line_and_expectation(tmp_path: Path, content: str, line: int | None, words: str) -> None:
    path = _file(tmp_path, content)
    result = _run(path)
    shown = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert words in shown
    assert (f"{path}:{line}" if line else path) in shown.replace(" ", "")
    assert 'JSON list of {"name": ..., "text": ...}' in shown


def test_a_missing_file_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    assert _run(str(tmp_path / "none.json")).exit_code == 2
    binary = tmp_path / "weights.bin"
    binary.write_bytes(b"abc\n\xff\xfe\x00")
    result = _run(str(binary))
    assert result.exit_code == 2
    assert f"{binary}:2" in "".join(result.stderr.split())


def test_escape_sequences_of_an_output_never_reach_the_terminal(tmp_path: Path) -> None:
    result = _run(_file(tmp_path, [{"name": "\x1b[31mred\u202e\ud800", "text": "\x1b]0;title\x07 evil" * 60}]))
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


@settings(max_examples=200, deadline=None)
@given(st.one_of(_JSON, st.lists(st.fixed_dictionaries({"name": _JSON, "text": _JSON}), max_size=3)))
def test_any_json_is_judged_or_refused(data: Any) -> None:
    try:
        outputs = read_outputs(json.dumps(data).encode(), "any.json")
    except UsageError as error:
        assert error.where.startswith("any.json")
        return
    assert len(judge_saved(outputs)) == len(outputs)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_judged_or_refused(raw: bytes) -> None:
    try:
        outputs = read_outputs(raw, "any")
    except UsageError as error:
        assert error.where
        return
    assert judge_saved(outputs)[0].reason
