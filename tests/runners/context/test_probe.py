from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import pytest

from results.records import ContextRecord
from runners.context.probe import ANSWER_TOKENS, ContextPlan, ContextResult, verify_context
from runners.engines.registry import adapter_for
from runners.request_fields import TIMED_FIELDS
from runners.stream import StreamPolicy, Target
from suites.canaries import zoo
from tests.virtual_time import virtual_time

FIELDS = frozenset(TIMED_FIELDS)
CANARY = zoo.load("dense")
FACT = re.compile(r"the pass code is ([a-z]+-[a-z]+-\d+)")
TOKENS_PER_S = 20.0


@dataclass
class Engine(httpx.AsyncBaseTransport):
    """Tokenizes one id per character, answers the pass code (or what `answer` makes of it), one character a token at 20 tokens/s."""

    answer: Callable[[str, int], str] = lambda code, depth: f" {code}."
    refuse_tokenize: bool = False
    hang_beyond: int | None = None
    dead_beyond: int | None = None
    prompts: list[int] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(await request.aread())
        if request.url.path == "/tokenize":
            if self.refuse_tokenize:
                return httpx.Response(404, json={"detail": "Not Found"})
            bos = [1] if body["add_special_tokens"] else []
            return httpx.Response(200, json={"tokens": bos + [ord(c) for c in body["prompt"]]})
        prompt = body["prompt"]
        self.prompts.append(len(prompt))
        if self.hang_beyond is not None and len(prompt) > self.hang_beyond:
            await asyncio.Event().wait()
        if self.dead_beyond is not None and len(prompt) > self.dead_beyond:
            raise httpx.ReadError("connection lost", request=request)
        return httpx.Response(200, stream=_Stream(self._text(prompt), body["max_tokens"], len(prompt)))

    def _text(self, prompt: list[int]) -> str:
        golden = next((p for p in CANARY.prompts if list(p.prompt_ids) == prompt), None)
        if golden is not None:
            return self.answer(golden.answer_text, len(prompt))
        found = FACT.search("".join(map(chr, prompt)))
        return self.answer(found.group(1) if found else "nothing", len(prompt))


@dataclass
class _Stream(httpx.AsyncByteStream):
    text: str
    max_tokens: int
    prompt_tokens: int

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for n in range(1, self.max_tokens + 1):
            await asyncio.sleep(2.0 if n == 1 else 1 / TOKENS_PER_S)
            last = n == self.max_tokens
            piece = self.text[n - 1 :] if last else self.text[n - 1 : n]
            usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": n}
            choice = {"index": 0, "text": piece or ("" if last else "_"), "finish_reason": "length" if last else None}
            yield f"data: {json.dumps({'choices': [choice], 'usage': usage})}\n\n".encode()
        yield b"data: [DONE]\n\n"


def search(engine: Engine, *, wanted: tuple[int, ...] = (1_024, 4_096, 16_384), limit: int = 9_000, canary: bool = False) -> ContextResult:
    rows: list[ContextRecord] = []
    policy = StreamPolicy(first_byte_s=1_800.0, idle_s=120.0, total_s=3_600.0)
    plan = ContextPlan("20261130T130501Z-1f00ab42", wanted, limit, FIELDS, CANARY if canary else None, policy)
    with virtual_time() as time:
        result = verify_context(
            Target("http://127.0.0.1:1", "m", transport=engine), adapter_for("vllm"), plan, rows.append, clock=time.clock
        )
    assert rows == list(result.records), "every row is handed out as it is made"
    return result


def test_every_depth_up_to_the_limit_is_recalled_and_timed() -> None:
    engine = Engine()
    result = search(engine)
    assert [r.probe for r in result.records] == ["needle"] * 3
    assert [r.depth_tokens for r in result.records][:2] == [1_024, 4_096]
    deepest = result.records[-1]
    assert result.verified_tokens == deepest.depth_tokens
    assert 8_600 < deepest.depth_tokens < 9_000 - ANSWER_TOKENS
    assert max(engine.prompts) + ANSWER_TOKENS <= 9_000, "the deepest prompt and its answer fit the server"
    assert all(r.recalled and r.ttft_s == pytest.approx(2.0) and r.decode_tok_s == pytest.approx(TOKENS_PER_S) for r in result.records)
    assert result.stopped is None


def test_fact_lies_exactly_as_far_back_as_the_row_says() -> None:
    engine = Engine()
    result = search(engine, wanted=(1_024,), limit=1_400)
    fact = len(
        "The pass code of the harbour office is {0}. Remember it: the pass code is {0}.\n\n".format(result.records[0].text.strip(" ._"))
    )
    assert abs(engine.prompts[0] - (1 + fact + 1_024)) <= 1


def test_search_stops_at_the_first_depth_that_is_forgotten_and_says_which() -> None:
    engine = Engine(lambda code, prompt: f" {code}" if prompt < 4_000 else " the mill")
    result = search(engine)
    assert [(r.depth_tokens, r.recalled) for r in result.records] == [(1_024, True), (4_096, False)]
    assert result.verified_tokens == 1_024
    assert result.failure is None
    assert "needle failed at 4,096 tokens" in (result.stopped or "")
    assert "the mill" in (result.stopped or "")


@pytest.mark.parametrize(("engine", "hang"), [(Engine(hang_beyond=2_000), True), (Engine(dead_beyond=2_000), False)], ids=["hangs", "dies"])
def test_server_that_hangs_or_dies_at_a_depth_is_a_failure_with_that_depth(engine: Engine, hang: bool) -> None:
    result = search(engine)
    assert (result.records[-1].depth_tokens, result.records[-1].recalled) == (4_096, None)
    assert result.failure is not None
    assert result.is_hang is hang
    assert result.verified_tokens == 1_024


def test_server_without_a_tokenizer_has_no_depth_and_says_so() -> None:
    result = search(Engine(refuse_tokenize=True))
    assert (result.records, result.verified_tokens, result.failure) == ((), None, None)
    assert "does not tokenize" in (result.stopped or "")


def test_context_too_short_for_any_depth_asks_nothing() -> None:
    assert search(Engine(), limit=200).records == ()


def test_canary_recalls_its_long_prompts_up_to_the_length_it_was_trained_for() -> None:
    result = search(Engine(lambda text, prompt: text), canary=True, wanted=(2_048,), limit=2_048)
    assert [(r.probe, r.depth_tokens) for r in result.records] == [("recall", 1_175)] + [("recall", 1_594)] * 3
    assert result.verified_tokens == 1_594


def test_canary_prompt_that_does_not_fit_with_its_answer_is_not_asked() -> None:
    result = search(Engine(lambda text, prompt: text), canary=True, wanted=(2_048,), limit=1_600)
    assert [r.depth_tokens for r in result.records] == [1_175]


def test_canary_with_one_wrong_letter_at_depth_is_not_recalled() -> None:
    result = search(Engine(lambda text, prompt: text if prompt < 1_500 else text.replace("password", "passwort")), canary=True, limit=2_048)
    assert result.verified_tokens == 1_175
    assert result.records[-1].recalled is False
