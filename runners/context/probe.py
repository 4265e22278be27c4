"""Ask at growing depth until something is not recalled, and time each answer.

Trap: `max_model_len` is accepted, the KV cache is large enough on paper, and at half of it the model has forgotten the beginning or the
server dies. Rule: the verified context is the deepest recalled one; the first failure ends the search and is recorded with what the
server said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import httpx

from results.records import ContextRecord
from results.redact import plain
from runners.coherence.tokenizing import Tokenizer
from runners.coherence.transport import NoAnswer, Refused, http_send
from runners.context.passages import QUESTION, depths_up_to, filler_texts, opening, pass_code, recalls
from runners.engines.base import AnswerError, EngineAdapter
from runners.rates import rates_of
from runners.request_fields import timed_body
from runners.sse import RawStream, iter_events, json_or_none, read_trace
from runners.stream import COMPLETIONS, Clock, StreamPolicy, Target, open_client, record_stream
from runners.stream_trace import CONNECTION_LOST, TIMEOUTS, StreamFailure
from suites.canaries.zoo import Canary, GoldenPrompt

RECALL, NEEDLE = "recall", "needle"
ANSWER_TOKENS = 48
"""Enough for the pass code and for a decode rate at that depth."""
LEAST_RECALL_TOKENS = 512
"""A canary's prompts shorter than this say nothing about context."""
POLICY = StreamPolicy(first_byte_s=1_800.0, idle_s=120.0, total_s=3_600.0)
"""Prefill of 128k tokens at 200 tok/s takes eleven minutes."""
_TOKENIZE_TIMEOUT_S = 60.0
_TEXT_CHARACTERS = 2_000


@dataclass(frozen=True)
class ContextPlan:
    """What to ask. `limit_tokens`: longest prompt + answer that the server takes; `accepted`: optional request fields it takes."""

    run_id: str
    wanted: tuple[int, ...]
    limit_tokens: int
    accepted: frozenset[str]
    canary: Canary | None = None
    policy: StreamPolicy = POLICY


@dataclass(frozen=True)
class ContextResult:
    """Rows in the order asked. `failure`: the server stopped answering (then the last row says where); `stopped`: why it ended early."""

    records: tuple[ContextRecord, ...]
    stopped: str | None = None
    failure: StreamFailure | None = None

    @property
    def verified_tokens(self) -> int | None:
        """The deepest recalled depth; None if nothing was."""
        return max((r.depth_tokens for r in self.records if r.recalled), default=None)

    @property
    def is_hang(self) -> bool:
        """The server was there but did not answer in time."""
        return self.failure is not None and self.failure.kind in TIMEOUTS


@dataclass(frozen=True)
class _Question:
    probe: str
    depth_tokens: int
    prompt: tuple[int, ...]
    answer_tokens: int
    judge: Callable[[str], bool] = field(compare=False)
    expected: str = ""


def verify_context(
    target: Target,
    adapter: EngineAdapter,
    plan: ContextPlan,
    on_record: Callable[[ContextRecord], None] = lambda record: None,
    say: Callable[[str], None] = lambda text: None,
    clock: Clock = time.perf_counter,
) -> ContextResult:
    """Find the deepest recalled context. Never raises for anything the server does."""
    return asyncio.run(_Search(target, adapter, plan, on_record, say, clock).run())


class _Search:
    def __init__(
        self,
        target: Target,
        adapter: EngineAdapter,
        plan: ContextPlan,
        on_record: Callable[[ContextRecord], None],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.target, self.adapter, self.plan, self.on_record, self.say, self.clock = target, adapter, plan, on_record, say, clock
        self.records: list[ContextRecord] = []

    async def run(self) -> ContextResult:
        async with open_client(self.target) as client:
            if self.plan.canary is not None:
                questions = recall_questions(self.plan.canary, self.plan.wanted, self.plan.limit_tokens)
                return await self._ask_all(client, [_ready(question) for question in questions])
            tokenizer = Tokenizer(http_send(client, _TOKENIZE_TIMEOUT_S), self.adapter, self.target.model)
            try:
                passage = await Passage.read(tokenizer)
            except (Refused, AnswerError) as error:
                return ContextResult((), f"the server does not tokenize, so that no depth is known: {plain(str(error), 300)}")
            except NoAnswer as error:
                return ContextResult((), f"the tokenizer gave no answer: {plain(str(error), 300)}")
            most = self.plan.limit_tokens - passage.around - ANSWER_TOKENS
            depths = depths_up_to(self.plan.wanted, most)
            return await self._ask_all(client, [partial(passage.at, self.plan.run_id, d) for d in depths])

    async def _ask_all(self, client: httpx.AsyncClient, questions: Sequence[Callable[[], Awaitable[_Question]]]) -> ContextResult:
        for make in questions:
            try:
                question = await make()
            except (Refused, NoAnswer, AnswerError) as error:
                return ContextResult(tuple(self.records), f"the passage could not be tokenized: {plain(str(error), 300)}")
            self.say(f"{question.probe} at {question.depth_tokens:,} tokens")
            record, failure = await self._ask(client, question)
            self.records.append(record)
            self.on_record(record)
            if not record.recalled:
                fatal = failure if failure is not None and failure.kind in TIMEOUTS | CONNECTION_LOST else None
                stopped = f"{question.probe} failed at {question.depth_tokens:,} tokens: {record.reason}"
                return ContextResult(tuple(self.records), stopped, fatal)
        return ContextResult(tuple(self.records))

    async def _ask(self, client: httpx.AsyncClient, question: _Question) -> tuple[ContextRecord, StreamFailure | None]:
        body = timed_body(self.target.model, question.prompt, question.answer_tokens, self.plan.accepted)
        raw = await record_stream(client, COMPLETIONS, body, self.plan.policy, self.clock)
        trace = read_trace(raw, question.answer_tokens, len(question.prompt))
        text = streamed_text(raw)
        if trace.failure is not None:
            recalled, reason = None, f"{trace.failure.kind}: {trace.failure.detail}"
        elif question.judge(text):
            recalled, reason = True, "recalled"
        else:
            recalled, reason = False, f"expected {plain(question.expected, 80)!r}, got {plain(text, 80)!r}"
        rates = rates_of(trace)
        record = ContextRecord(
            run_id=self.plan.run_id,
            probe=question.probe,
            depth_tokens=question.depth_tokens,
            recalled=recalled,
            reason=reason,
            text=plain(text, _TEXT_CHARACTERS),
            ttft_s=rates.ttft_s,
            decode_tok_s=rates.decode_tok_s,
        )
        return record, trace.failure


@dataclass
class Passage:
    """Token ids of what surrounds a passage and, as far as asked for, of its filler."""

    tokenizer: Tokenizer
    around: int
    question: tuple[int, ...]
    _filler: list[int] = field(default_factory=list)
    _texts: Iterator[str] = field(default_factory=filler_texts)

    @classmethod
    async def read(cls, tokenizer: Tokenizer) -> Passage:
        """Tokenize what is the same for every depth. Raises Refused, NoAnswer or AnswerError."""
        question = await tokenizer.ids(QUESTION, add_special_tokens=False)
        longest = await tokenizer.ids(opening("crimson-trumpet-888"), add_special_tokens=True)
        return cls(tokenizer, len(question) + len(longest) + _SPARE_TOKENS, question)

    async def at(self, run_id: str, depth: int) -> _Question:
        """The question whose fact lies `depth` tokens before its end. Raises Refused, NoAnswer or AnswerError."""
        code = pass_code(run_id, depth)
        fact = await self.tokenizer.ids(opening(code), add_special_tokens=True)
        between = depth - len(self.question)
        while len(self._filler) < between:
            text = next(self._texts, None)
            if text is None:
                raise AnswerError(f"the filler has only {len(self._filler)} tokens")
            self._filler += await self.tokenizer.ids(text, add_special_tokens=False)
        prompt = (*fact, *self._filler[: max(0, between)], *self.question)
        return _Question(NEEDLE, depth, prompt, ANSWER_TOKENS, lambda text: recalls(text, code), code)


_SPARE_TOKENS = 8
"""Pass codes differ in their number of tokens."""


def _ready(question: _Question) -> Callable[[], Awaitable[_Question]]:
    async def given() -> _Question:
        return question

    return given


def recall_questions(canary: Canary, wanted: Sequence[int], limit_tokens: int) -> list[_Question]:
    """The canary's long prompts that fit, shortest first, up to the deepest wanted depth: the longest is what it was trained for."""
    deepest = min(max(wanted, default=0), limit_tokens)
    fitting = [p for p in canary.prompts if LEAST_RECALL_TOKENS <= len(p.prompt_ids) <= deepest]
    whole = [p for p in fitting if len(p.prompt_ids) + len(p.answer_ids) <= limit_tokens]
    return [_golden(prompt) for prompt in sorted(whole, key=lambda p: len(p.prompt_ids))]


def _golden(prompt: GoldenPrompt) -> _Question:
    """Every token of the answer but its end; what is streamed must be exactly how the golden answer begins."""
    asked = len(prompt.answer_ids) - 1
    return _Question(RECALL, len(prompt.prompt_ids), prompt.prompt_ids, asked, lambda text: text == prompt.answer_text, prompt.answer_text)


def streamed_text(raw: RawStream) -> str:
    """The text of a completion stream, whatever its borders; empty if there is none."""
    parts: list[str] = []
    for event in iter_events(raw.blocks):
        payload = json_or_none(event.data)
        choices = payload.get("choices") if isinstance(payload, dict) else None
        text = choices[0].get("text") if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if isinstance(text, str):
            parts.append(text)
    return "".join(parts)
