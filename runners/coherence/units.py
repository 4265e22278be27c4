"""What kind of thing repeats, and how often it must repeat before that is broken.

Trap: one threshold for everything either misses `!!!!` in a short answer or calls a ruler line, a row of zeros, `</div></div>` or ten times
"echo" broken. Rule: the class of the repeated unit chooses the threshold; all thresholds stand in this file.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum

SPECIAL_TOKEN = re.compile(
    r"<\|[^|<>\s]{1,60}\|>|<｜[^｜<>\s]{1,60}｜>|"
    r"<(?:unk|pad|s|eos|bos|mask|sep|cls|eot|eod|end|sos|UNK|PAD|EOS|BOS|MASK|SEP|CLS|end_of_turn|start_of_turn|endoftext)>|</s>|"
    r"<(?:unused|extra_id_|reserved_|special_|SPECIAL_|control_|ctrl|dummy|0x)[0-9A-Fa-f_]{1,12}>|\[(?:UNK|PAD|MASK|SEP|CLS|BOS|EOS|control_\d{1,6}|unused\d{1,6})\]"
)
"""Control tokens of the vocabularies in use, as a detokeniser prints them."""
SPECIAL_MARKS = ("<", "[UNK", "[PAD", "[MASK", "[SEP", "[CLS", "[BOS", "[control_", "[unused")
"""A text with none of these holds no control token."""

_RULERS = frozenset("-=_*#~.+·•─━═│┃║█▓▒░■□●○▪▫◦—–‐…⋅∙▬")
_IDEOGRAPH_DENSITY = 2.5
_UNSEEN = frozenset(("Mn", "Me", "Cf"))
_LAST_TONE = "\N{EMOJI MODIFIER FITZPATRICK TYPE-6}"
_CLOSERS = re.compile(r"(?:\s{0,200}(?:</[\w:.-]{1,40}>|end\b;?|[)\]}>;,]))+\s{0,200}")


class UnitClass(StrEnum):
    """Classes of a repeated unit. The first seven have one distinct visible character at most."""

    BLANK = "blank"
    REPLACEMENT = "replacement character"
    RULER = "ruler character"
    PUNCTUATION = "punctuation mark"
    DIGIT = "digit"
    LETTER = "letter"
    SYMBOL = "symbol"
    SPECIAL = "special token"
    CLOSERS = "closing brackets or tags"
    MARKS = "punctuation"
    NUMBERS = "numbers"
    WORD = "one word"
    WORDS = "words"


@dataclass(frozen=True)
class Needs:
    """Repeats of one character or special token that make a flood: `whole` if nothing else is visible, `tail` after other text."""

    whole: int
    tail: int


@dataclass(frozen=True)
class LoopNeeds:
    """A loop needs `chars` and `repeats`; any one pair is enough."""

    pairs: tuple[tuple[int, float], ...]

    def met(self, chars: float, repeats: float) -> bool:
        return any(chars >= c and repeats >= r for c, r in self.pairs)


FLOOD_NEEDS = {
    UnitClass.BLANK: Needs(32, 100),
    UnitClass.REPLACEMENT: Needs(3, 6),
    UnitClass.RULER: Needs(24, 160),
    UnitClass.PUNCTUATION: Needs(8, 24),
    UnitClass.DIGIT: Needs(24, 128),
    UnitClass.LETTER: Needs(16, 32),
    UnitClass.SYMBOL: Needs(24, 48),
    UnitClass.SPECIAL: Needs(3, 8),
}
DRAWN_WHOLE = 300
"""A ruler character or digit over several lines may be a drawing or a matrix of zeros, so more of it is needed."""

TAIL_NEEDS = {
    UnitClass.WORDS: LoopNeeds(((60, 8), (200, 4), (600, 3))),
    UnitClass.WORD: LoopNeeds(((60, 12),)),
    UnitClass.NUMBERS: LoopNeeds(((96, 24),)),
    UnitClass.MARKS: LoopNeeds(((96, 24),)),
    UnitClass.CLOSERS: LoopNeeds(((600, 60),)),
}
"""A loop that reaches the end of the answer: the model never left it."""

SELF_ENDED_NEEDS = {
    UnitClass.WORDS: LoopNeeds(((60, 24), (400, 12), (1200, 6))),
    UnitClass.WORD: LoopNeeds(((120, 32),)),
    UnitClass.NUMBERS: LoopNeeds(((192, 48),)),
    UnitClass.MARKS: LoopNeeds(((192, 48),)),
    UnitClass.CLOSERS: LoopNeeds(((600, 60),)),
}
"""The same when the engine says that the answer ended by itself: a loop runs into the token limit, "write it ten times" stops."""

INNER_NEEDS = {UnitClass.WORDS: LoopNeeds(((200, 8), (600, 4))), UnitClass.WORD: LoopNeeds(((200, 16),))}
"""A loop that the answer left again. Numbers and marks are absent: arrays and drawings look so."""
INNER_SHARE = 0.4
"""... and it must cover this share of the answer."""


def is_visible(char: str) -> bool:
    """False for spaces and for what only changes its neighbour or prints nothing (accents, joiners, skin tones)."""
    return (
        not char.isspace()
        and unicodedata.category(char) not in _UNSEEN
        and not "\N{EMOJI MODIFIER FITZPATRICK TYPE-1-2}" <= char <= _LAST_TONE
    )


def single_visible(unit: str) -> str | None:
    """The one distinct visible character of `unit`; "" if it has none; None if it has several. Marks on a character do not count."""
    visible = {c for c in unit if is_visible(c)}
    return None if len(visible) > 1 else next(iter(visible), "")


def class_of_character(char: str) -> UnitClass:
    """Class of a flood of `char` ("" or a space: blank)."""
    if char == "" or char.isspace():
        return UnitClass.BLANK
    if char == "\N{REPLACEMENT CHARACTER}":
        return UnitClass.REPLACEMENT
    if char in _RULERS:
        return UnitClass.RULER
    if char.isdigit():
        return UnitClass.DIGIT
    if char.isalpha():
        return UnitClass.LETTER
    return UnitClass.PUNCTUATION if unicodedata.category(char).startswith("P") else UnitClass.SYMBOL


def class_of_unit(unit: str) -> UnitClass:
    """Class of a repeated unit with two or more distinct visible characters. `unit` may begin anywhere inside the repetition."""
    turned = _turned_to_opening(unit)
    if not SPECIAL_TOKEN.sub("", turned).strip():
        return UnitClass.SPECIAL
    if _CLOSERS.fullmatch(turned):
        return UnitClass.CLOSERS
    if any(c.isalpha() for c in unit):
        return UnitClass.WORD if _words_in_cycle(unit) == 1 else UnitClass.WORDS
    return UnitClass.NUMBERS if any(c.isdigit() for c in unit) else UnitClass.MARKS


def density(unit: str) -> float:
    """How many characters of alphabetic writing one character of `unit` is worth: Chinese and Japanese say a word in one or two."""
    ideographs = sum("\u3040" <= c <= "\u9fff" for c in unit)
    return _IDEOGRAPH_DENSITY if 2 * ideographs > len(unit) else 1.0


def _turned_to_opening(unit: str) -> str:
    """The same cycle, begun at its first opening bracket of a tag or token."""
    starts = [i for i in (unit.find("<"), unit.find("[")) if i >= 0]
    return unit[min(starts) :] + unit[: min(starts)] if starts else unit


def _words_in_cycle(unit: str) -> int:
    """Words separated by white space in the endless repetition of `unit`; 0 if it holds no white space."""
    return sum(1 for a, b in zip(unit, unit[1:] + unit[:1], strict=True) if not a.isspace() and b.isspace())


def shown(text: str, limit: int = 40) -> str:
    """`text` quoted for a reason sentence: escaped, at most `limit` characters of it."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:limit])
    return f"'{safe}'" + ("..." if len(text) > limit else "")
