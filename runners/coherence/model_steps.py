"""The questions for a real model, which has no golden answers.

Trap: a raw prompt sent as text gets a BOS token on one engine and two on another, and a missing one turns a small model's answer into a
loop that looks like a broken kernel. Rule: raw prompts are tokenised by the server (`runners.coherence.tokenizing`) with the BOS token
stated, and sent as ids; a server that cannot tokenise, has no chat template or refuses a system message is asked what it can answer, and
what was left out is noted.

The steps change one thing at a time, as those of a canary do (`runners.coherence.plan`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from runners.coherence.asking import ask_chat, ask_chat_stream, ask_greedy
from runners.coherence.determinism import CONCURRENCY, REPEAT_ALONE, REPEAT_TOGETHER, REPEATS
from runners.coherence.judging import Judge, Judged
from runners.coherence.passages import Text
from runners.coherence.steps import Question, Silence, Step
from runners.coherence.tokenizing import Tokenizer
from runners.coherence.transport import NoAnswer, Refused, Send
from runners.engines.base import AnswerError, EngineAdapter
from suites.passages import PASSAGES
from suites.prompts import LONG_NAME, LONG_QUESTION, LONG_TOKENS, LONGEST_PROMPT, MODEL_PROMPTS, ModelPrompt, long_text

_ALONE = 3
_MIXED = 8
_STREAMED = 3
_CONTEXT_LEFT = 64
_TOKENS_PER_DAY = 10
"""Fewer than a line of the long text has in any tokenizer seen, so that there are always enough lines."""
PREPARE = "prepare"


@dataclass(frozen=True)
class Prepared:
    """Steps to run, texts to score, and notes on what this server could not be asked. `chat`: its chat endpoint answers; `system`: it takes
    system messages."""

    steps: tuple[Step, ...]
    texts: tuple[Text, ...]
    notes: tuple[str, ...]
    chat: bool
    system: bool


@dataclass
class _Known:
    """What the server's tokenizer made of the raw prompts and passages, and which chat prompts it takes."""

    tokenizer: Tokenizer
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    texts: list[Text] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chat: bool = True
    system: bool = True


@dataclass(frozen=True)
class ModelQuestions:
    """Questions to one server. `context`: tokens it can hold, None if that is not known."""

    send: Send
    adapter: EngineAdapter
    model: str
    judge: Judge
    bos: str
    context: int | None = None

    async def prepare(self, first: int | None = None) -> Prepared | Silence:
        """All steps, or one step with the `first` prompts (the recheck). Silence if the server answers nothing at all."""
        known = _Known(Tokenizer(self.send, self.adapter, self.model))
        try:
            await self._tokenised(known, short_only=first is not None)
            await self._chat_refusals(known)
        except (NoAnswer, AnswerError) as error:
            return Silence(PREPARE, f"coherence step {PREPARE!r}: {error}", isinstance(error, NoAnswer) and error.is_hang)
        asked = [p for p in MODEL_PROMPTS if (p.name in known.ids if p.text is not None else self._takes(p, known))]
        if not asked:
            return Silence(PREPARE, f"coherence step {PREPARE!r}: the server can be asked nothing: {'; '.join(known.notes)}", False)
        steps = self._arranged(asked, known) if first is None else (self._step("recheck", 4, asked[:first], known),)
        return Prepared(steps, tuple(known.texts), tuple(known.notes), known.chat, known.system)

    def _takes(self, prompt: ModelPrompt, known: _Known) -> bool:
        return known.chat and (known.system or not _has_system(prompt))

    def _arranged(self, asked: list[ModelPrompt], known: _Known) -> tuple[Step, ...]:
        def length(prompt: ModelPrompt) -> int:
            return prompt.max_tokens + len(known.ids.get(prompt.name, ()))

        by_length = sorted(asked, key=length, reverse=True)
        mixed = [p for pair in zip(by_length[: _MIXED // 2], reversed(by_length[_MIXED // 2 :]), strict=False) for p in pair]
        raw = sorted((p for p in asked if p.text is not None), key=length)
        system = [p for p in asked if _has_system(p)]
        plain = [p for p in asked if p not in system]
        repeated = raw[:1] or plain[:1]
        long = [ModelPrompt(LONG_NAME, LONG_TOKENS, text="")] if LONG_NAME in known.ids else []
        streamed = [p for p in plain if p.messages][:_STREAMED]
        parts: tuple[tuple[str, int, list[ModelPrompt]], ...] = (
            ("cold", 1, plain[:_ALONE]),
            ("warm", 1, plain[:1]),
            ("aba_replay", 1, [raw[0], raw[1], raw[0]] if len(raw) > 1 else []),
            ("batch_4", 4, plain[_ALONE:]),
            ("long_prompt", 1, long),
            ("batch_8", _MIXED, mixed),
            ("again", 1, plain[:1]),
            (REPEAT_ALONE, CONCURRENCY[REPEAT_ALONE], repeated * REPEATS[REPEAT_ALONE]),
            (REPEAT_TOGETHER, CONCURRENCY[REPEAT_TOGETHER], repeated * REPEATS[REPEAT_TOGETHER]),
            ("system_message", 1, system),
        )
        steps = [self._step(name, concurrency, prompts, known) for name, concurrency, prompts in parts if prompts]
        if streamed:
            steps.append(self._step("streaming", _STREAMED, streamed, known, streamed=True))
        return tuple(steps)

    def _step(self, name: str, at_once: int, prompts: Sequence[ModelPrompt], known: _Known, *, streamed: bool = False) -> Step:
        return Step(name, at_once, tuple(self._question(name, prompt, known.ids.get(prompt.name), streamed) for prompt in prompts))

    def _question(self, step: str, prompt: ModelPrompt, ids: tuple[int, ...] | None, streamed: bool) -> Question:
        async def by_ids() -> Judged:
            assert ids is not None
            return self.judge.structure(step, prompt.name, await ask_greedy(self.send, self.adapter, self.model, ids, prompt.max_tokens))

        async def by_chat() -> Judged:
            answer = await ask_chat(self.send, self.model, prompt.messages, prompt.max_tokens, logprobs=True)
            return self.judge.chat_structure(step, prompt.name, answer)

        async def by_stream() -> Judged:
            answer = await ask_chat_stream(self.send, self.model, prompt.messages, prompt.max_tokens)
            return self.judge.chat_structure(step, prompt.name, answer)

        ask: Callable[[], Awaitable[Judged]] = by_ids if ids is not None else by_stream if streamed else by_chat
        return Question(prompt.name, ask)

    async def _tokenised(self, known: _Known, *, short_only: bool) -> None:
        """Ids of every raw prompt and passage; none, with a note, if the server does not tokenise."""
        special = self.bos != "omit"
        try:
            for prompt in MODEL_PROMPTS:
                if prompt.text is not None:
                    known.ids[prompt.name] = await known.tokenizer.ids(prompt.text, add_special_tokens=special)
            if known.tokenizer.refusal is not None:
                known.notes.append(f"/tokenize answered {known.tokenizer.refusal}: token ids of texts were read from other answers")
            if short_only:
                return
            known.texts = [Text(p.name, await known.tokenizer.ids(p.text, add_special_tokens=special)) for p in PASSAGES]
            await self._long_prompt(known, special)
        except Refused as refused:
            known.ids.clear()
            known.texts.clear()
            known.notes.append(f"raw prompts were not asked and no text was scored: /tokenize answered {refused}")

    async def _long_prompt(self, known: _Known, special: bool) -> None:
        room = min((self.context or 0) - _CONTEXT_LEFT, LONGEST_PROMPT)
        question = await known.tokenizer.ids(LONG_QUESTION, add_special_tokens=False)
        if room < 2 * len(known.ids.get("raw_long", ())) or room <= len(question):
            known.notes.append(f"no prompt past the chunked-prefill size was asked: the context holds {self.context or 'unknown'} tokens")
            return
        longest = long_text(room // _TOKENS_PER_DAY)
        text = await known.tokenizer.ids(longest, add_special_tokens=special, most=room - len(question))
        known.ids[LONG_NAME] = (*text, *question)

    async def _chat_refusals(self, known: _Known) -> None:
        """Whether chat prompts, and such with a system message, can be asked. A recipe without BOS asks none: a template would add it."""
        if self.bos == "omit":
            known.chat = False
            known.notes.append("chat prompts were not asked: the chat template would add the BOS token that this recipe omits")
            return
        try:
            await ask_chat(self.send, self.model, (("user", "Hello"),), 1)
        except Refused as refused:
            known.chat = False
            known.notes.append(f"chat prompts were not asked: /v1/chat/completions answered {refused}")
            return
        try:
            await ask_chat(self.send, self.model, (("system", "Be brief."), ("user", "Hello")), 1)
        except Refused as refused:
            known.system = False
            known.notes.append(f"no system message was sent: /v1/chat/completions answered {refused}")


def _has_system(prompt: ModelPrompt) -> bool:
    return any(role == "system" for role, _ in prompt.messages)
