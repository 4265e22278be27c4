"""The questions for a real model, which has no golden answers.

Trap: a raw prompt sent as text gets a BOS token on one engine and two on another, and a missing one turns a small model's answer into a
loop that looks like a broken kernel. Rule: raw prompts are tokenised by the server with the BOS token stated, and sent as ids; a server
that cannot tokenise or has no chat template is asked what it can answer, and what was left out is noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runners.coherence.asking import ask_chat, ask_greedy, tokenize
from runners.coherence.judging import Judge, Judged
from runners.coherence.steps import Question, Silence, Step
from runners.coherence.transport import NoAnswer, Refused, Send
from runners.engines.base import AnswerError, EngineAdapter
from suites.prompts import MODEL_PROMPTS, ModelPrompt

_ALONE = 3
_MIXED = 8
_STEP = "prepare"


@dataclass(frozen=True)
class PreparedSteps:
    """Steps to run, and notes on what this server could not be asked."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ModelQuestions:
    """Questions to one server."""

    send: Send
    adapter: EngineAdapter
    model: str
    judge: Judge
    bos: str
    known_answers: Mapping[str, tuple[str, ...]]

    async def steps(self, first: int | None = None) -> PreparedSteps | Silence:
        """All steps, or one step with the `first` prompts (the recheck). Silence if the server answers nothing at all."""
        try:
            ids, notes = await self._prompt_ids()
            chat_note = await self._chat_refusal()
        except (NoAnswer, AnswerError) as error:
            return Silence(_STEP, f"coherence step {_STEP!r}: {error}", isinstance(error, NoAnswer) and error.is_hang)
        if chat_note is not None:
            notes.append(chat_note)
        asked = [p for p in MODEL_PROMPTS if (p.name in ids if p.text is not None else chat_note is None)]
        if not asked:
            return Silence(_STEP, f"coherence step {_STEP!r}: the server can be asked nothing: {'; '.join(notes)}", False)
        return PreparedSteps(self._arranged(asked, ids, first), tuple(notes))

    def _arranged(self, asked: list[ModelPrompt], ids: Mapping[str, tuple[int, ...]], first: int | None) -> tuple[Step, ...]:
        if first is not None:
            return (self._step("recheck", 4, asked[:first], ids),)
        by_length = sorted(asked, key=lambda p: p.max_tokens + len(ids.get(p.name, ())), reverse=True)
        mixed = [p for pair in zip(by_length[: _MIXED // 2], reversed(by_length[_MIXED // 2 :]), strict=False) for p in pair]
        parts = (("cold", 1, asked[:_ALONE]), ("batch", 4, asked[_ALONE:]), ("mixed", _MIXED, mixed), ("alone_again", 1, asked[:1]))
        return tuple(self._step(name, concurrency, prompts, ids) for name, concurrency, prompts in parts if prompts)

    def _step(self, name: str, concurrency: int, prompts: list[ModelPrompt], ids: Mapping[str, tuple[int, ...]]) -> Step:
        return Step(name, concurrency, tuple(self._question(name, prompt, ids.get(prompt.name)) for prompt in prompts))

    def _question(self, step: str, prompt: ModelPrompt, ids: tuple[int, ...] | None) -> Question:
        async def by_ids() -> Judged:
            assert ids is not None
            return self.judge.structure(step, prompt.name, await ask_greedy(self.send, self.adapter, self.model, ids, prompt.max_tokens))

        async def by_chat() -> Judged:
            answer = await ask_chat(self.send, self.model, prompt.messages, prompt.max_tokens)
            return self.judge.chat_structure(step, prompt.name, answer, self.known_answers.get(prompt.name, ()))

        return Question(prompt.name, by_chat if prompt.text is None else by_ids)

    async def _prompt_ids(self) -> tuple[dict[str, tuple[int, ...]], list[str]]:
        """Ids of every raw prompt; empty with a note if the server does not tokenise."""
        ids: dict[str, tuple[int, ...]] = {}
        try:
            for prompt in MODEL_PROMPTS:
                if prompt.text is not None:
                    ids[prompt.name] = await tokenize(self.send, self.model, prompt.text, add_special_tokens=self.bos != "omit")
        except Refused as refused:
            return {}, [f"raw prompts were not asked: /tokenize answered {refused}"]
        return ids, []

    async def _chat_refusal(self) -> str | None:
        """Why chat prompts cannot be asked; None if they can. A recipe without BOS asks none: a chat template would add it."""
        if self.bos == "omit":
            return "chat prompts were not asked: the chat template would add the BOS token that this recipe omits"
        try:
            await ask_chat(self.send, self.model, (("user", "Hello"),), 1)
        except Refused as refused:
            return f"chat prompts were not asked: /v1/chat/completions answered {refused}"
        return None
