"""Token ids of a text, from the server that will be asked with them.

Trap: a raw prompt sent as text gets a BOS token on one engine and two on another, so it is sent as ids; and a server may serve a model
well whose `/tokenize` fails (seen: SGLang 0.5.14, HTTP 500 for a tokenizer whose `model_max_length` is transformers' "no limit" of
1e30: "Integer exceeds 64-bit range"). Rule: an engine that tells the ids of a text elsewhere is asked
there, and what its endpoint said is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile

from runners.coherence.transport import Refused, Send
from runners.engines.answers import token_ids_at
from runners.engines.base import AnswerError, EngineAdapter, HttpRequest

_MOST_CHARACTERS = 1_500
"""Of one text that an engine reads for its ids elsewhere than in its endpoint: as a prompt it has to fit into the context."""


@dataclass
class Tokenizer:
    """The tokenizer of the model that a server calls `model`. `refusal`: why its endpoint is not used (None: it is)."""

    send: Send
    adapter: EngineAdapter
    model: str
    refusal: Refused | None = None
    _added: tuple[int, ...] = field(default=(), init=False)
    """What the engine puts before a text: BOS, or nothing."""

    async def ids(self, text: str, *, add_special_tokens: bool, most: int | None = None) -> tuple[int, ...]:
        """Ids of `text` (the first `most`), with the tokens that the model's tokenizer puts before it or without.

        Raises Refused, NoAnswer or AnswerError.
        """
        if self.refusal is None:
            body = {"model": self.model, "prompt": text, "add_special_tokens": add_special_tokens}
            try:
                return token_ids_at(await self.send(HttpRequest("/tokenize", body)), "tokens")[:most]
            except Refused as refused:
                one, other = await self._read("a", refused), await self._read("b", refused)
                self._added = tuple(a for a, b in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
                self.refusal = refused
        ids = list(self._added) if add_special_tokens else []
        for piece in _pieces(text):
            if most is not None and len(ids) >= most:
                break
            ids += (await self._read(piece, self.refusal))[len(self._added) :]
        return tuple(ids[:most])

    async def _read(self, text: str, refused: Refused) -> tuple[int, ...]:
        """Ids of a short text and of what is put before it; `refused` again if this engine, or this release of it, does not tell them."""
        request = self.adapter.text_request(self.model, text)
        if request is None:
            raise refused
        try:
            return self.adapter.read_text_ids(await self.send(request))
        except AnswerError as error:
            raise refused from error


def _pieces(text: str) -> list[str]:
    """`text` cut before spaces, where tokenizers cut as well, into pieces that are short enough."""
    pieces = []
    while len(text) > _MOST_CHARACTERS:
        end = text.rfind(" ", 1, _MOST_CHARACTERS)
        end = end if end > 0 else _MOST_CHARACTERS
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text] if text else pieces
