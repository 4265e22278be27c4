"""Token ids of texts from servers whose endpoint works, fails or is not there."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.coherence.tokenizing import _MOST_CHARACTERS, Tokenizer, _pieces
from runners.coherence.transport import Refused
from runners.engines.base import HttpRequest
from runners.engines.registry import adapter_for

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "answers" / "gemma3-270m-sglang-0.5.14-cpu.json").read_text())
READ = [entry for name, entry in RECORDED.items() if name.startswith("text ")]
BOS = 2


class Gemma:
    """SGLang 0.5.14 with Gemma, as recorded; `asked` are the paths."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def send(self, request: HttpRequest) -> Any:
        self.asked.append(request.path)
        if request.path == "/tokenize":
            raise Refused(RECORDED["tokenize"]["status"], RECORDED["tokenize"]["body"])
        return json.loads(next(entry["body"] for entry in READ if entry["request"]["body"] == request.body))


def ids_of(tokenizer: Tokenizer, text: str, *, special: bool) -> tuple[int, ...]:
    return asyncio.run(tokenizer.ids(text, add_special_tokens=special))


@pytest.mark.parametrize("entry", READ[2:], ids=lambda entry: entry["request"]["body"]["text"][:24])
def test_the_ids_that_a_failing_endpoint_does_not_tell_are_those_of_the_models_tokenizer(entry: Any) -> None:
    tokenizer = Tokenizer(Gemma().send, adapter_for("sglang"), "model")
    expected = tuple(RECORDED["ids"][entry["request"]["body"]["text"]])
    assert expected[0] == BOS
    assert ids_of(tokenizer, entry["request"]["body"]["text"], special=True) == expected
    assert ids_of(tokenizer, entry["request"]["body"]["text"], special=False) == expected[1:]


def test_a_failing_endpoint_is_asked_once_and_its_words_are_kept() -> None:
    server = Gemma()
    tokenizer = Tokenizer(server.send, adapter_for("sglang"), "model")
    for _ in range(3):
        ids_of(tokenizer, READ[2]["request"]["body"]["text"], special=True)
    assert server.asked == ["/tokenize"] + ["/generate"] * 5
    assert tokenizer.refusal is not None
    assert tokenizer.refusal.status == 500


def test_an_engine_that_tells_ids_in_its_endpoint_only_passes_the_refusal_on() -> None:
    with pytest.raises(Refused, match="500"):
        ids_of(Tokenizer(Gemma().send, adapter_for("vllm"), "model"), "x", special=True)


def test_a_release_that_answers_without_the_ids_passes_the_refusal_on() -> None:
    async def send(request: HttpRequest) -> Any:
        if request.path == "/tokenize":
            raise Refused(404, "Not Found")
        return {"text": "x", "output_ids": [3], "meta_info": {}}

    with pytest.raises(Refused, match="404"):
        ids_of(Tokenizer(send, adapter_for("sglang"), "model"), "x", special=True)


class Letters:
    """No endpoint, a tokenizer with an id per character and BOS before them."""

    def __init__(self) -> None:
        self.longest = self.asked = 0

    async def send(self, request: HttpRequest) -> Any:
        if request.path == "/tokenize":
            raise Refused(404, "Not Found")
        assert request.body is not None
        text = request.body["text"]
        self.longest = max(self.longest, len(text))
        self.asked += 1
        return {"prompt_token_ids": [BOS, *map(ord, text)]}


def test_a_long_text_is_read_in_pieces_and_has_one_bos() -> None:
    server = Letters()
    text = "seven days " * 900
    ids = ids_of(Tokenizer(server.send, adapter_for("sglang"), "model"), text, special=True)
    assert ids == (BOS, *map(ord, text))
    assert server.longest <= _MOST_CHARACTERS


def test_no_more_of_a_text_is_read_than_is_wanted() -> None:
    server = Letters()
    asked = Tokenizer(server.send, adapter_for("sglang"), "model")
    ids = asyncio.run(asked.ids("seven days " * 900, add_special_tokens=True, most=2_000))
    assert ids == (BOS, *map(ord, ("seven days " * 900)[:1_999]))
    assert server.asked == 2 + 2  # where a text begins, and two pieces


@given(st.text(alphabet="ab \n", max_size=6 * _MOST_CHARACTERS))
def test_pieces_are_short_and_together_the_text(text: str) -> None:
    pieces = _pieces(text)
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= _MOST_CHARACTERS for piece in pieces)
