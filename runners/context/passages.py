"""A fact, many tokens of text that do not matter, and the question for the fact. Pure.

Traps: a passage that repeats one sentence is compressed away by attention, so that recall over it proves little; a fixed pass code may be
in the training data or, the second time, in the prefix cache. Rule: sentences differ and are the same on every node; the pass code is new
for every boot and depth, and stands at the very beginning, so that nothing after it can be cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count

_FIRST = ("amber", "cedar", "copper", "crimson", "flint", "indigo", "ivory", "linen", "marble", "saffron", "silver", "velvet")
_SECOND = ("anchor", "badger", "beacon", "falcon", "hammer", "kettle", "ladder", "otter", "pelican", "saddle", "trumpet", "walrus")
"""None of these words occurs in the filler."""

_WHO = ("The baker", "A clerk", "Our neighbour", "The old pilot", "A student", "The night guard", "My aunt", "The printer", "A gardener")
_DID = ("counted", "carried", "painted", "repaired", "sorted", "wrapped", "washed", "measured", "borrowed", "polished", "forgot")
_WHAT = ("three chairs", "a stack of letters", "the blue boat", "nine apples", "an iron gate", "the wet maps", "some rope", "two clocks")
_WHERE = ("by the canal", "behind the mill", "in the long hall", "near the station", "under the bridge", "on the north road", "at the quay")
_WHEN = ("before noon", "in the rain", "on a Tuesday", "after supper", "in late autumn", "while it snowed", "at low tide")
_THEN = (
    "Nobody asked why.",
    "It took until evening.",
    "The weather changed soon after.",
    "A dog watched from the steps.",
    "Later it was done again, and better.",
    "The bill was paid in coins.",
)

LONGEST_FILLER = 40_000
"""Sentences; at about 14 tokens a sentence half a million tokens, more than any context here."""


def pass_code(run_id: str, depth_tokens: int) -> str:
    """`copper-otter-381`: new for every boot and depth."""
    digest = sha256(f"{run_id} {depth_tokens}".encode()).digest()
    return f"{_FIRST[digest[0] % len(_FIRST)]}-{_SECOND[digest[1] % len(_SECOND)]}-{100 + int.from_bytes(digest[2:6], 'big') % 900}"


def opening(code: str) -> str:
    """The beginning of a passage, with the fact in it."""
    return f"The pass code of the harbour office is {code}. Remember it: the pass code is {code}.\n\n"


QUESTION = "\n\nThat was the story. As said at the very beginning, the pass code of the harbour office is"
"""The end of a passage: the model only has to go on, so that base and chat models are asked alike."""


def sentences() -> Iterator[str]:
    """Sentences in an order that is the same everywhere and does not repeat within any context length of today."""
    for number in count():
        digest = sha256(f"sentence {number}".encode()).digest()
        who, did, what, where, when, then = (
            words[digest[i] % len(words)] for i, words in enumerate((_WHO, _DID, _WHAT, _WHERE, _WHEN, _THEN))
        )
        yield f"{who} {did} {what} {where} {when}. {then} "


def filler_texts(characters: int = 6_000) -> Iterator[str]:
    """The sentences in pieces of about `characters`, small enough for one request to a tokenizer."""
    piece: list[str] = []
    for number, sentence in zip(range(LONGEST_FILLER), sentences(), strict=False):
        piece.append(sentence)
        if sum(map(len, piece)) >= characters or number == LONGEST_FILLER - 1:
            yield "".join(piece)
            piece = []


def recalls(text: str, code: str) -> bool:
    """Whether an answer gives the pass code first: spaces and case do not matter, other words before it do."""
    return _bare(text).startswith(_bare(code))


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text[:400].lower())


DEPTHS = (1_024, 4_096, 16_384, 32_768, 65_536, 131_072)
"""Distances between fact and question that are tried, in tokens, as far as the server's context reaches."""
_WORTH_IT = 1.1


def depths_up_to(wanted: Sequence[int], most: int) -> tuple[int, ...]:
    """The wanted depths that fit, ascending, and `most` itself if it is more than a tenth deeper than the last of them."""
    fitting = sorted({depth for depth in wanted if 0 < depth <= most})
    deeper = most > 0 and wanted and max(wanted) > most and (not fitting or most > _WORTH_IT * fitting[-1])
    return (*fitting, most) if deeper else tuple(fitting)
