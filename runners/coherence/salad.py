"""Token salad: tokens without sentence, code or data around them.

Trap: every single sign of salad is normal somewhere. Code glues words, Chinese text holds Latin names, translation lists mix ten scripts,
minified files have no spaces. Rule: a stretch is salad only by signs that these do not show together: scripts that meet inside words or
across a bare space, three or more of them, without function words; or plain words strewn between glued fragments and brackets that never
match; or a few fragments glued in random order; or characters that no detokeniser should print.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from runners.coherence.loops import Symbols
from runners.coherence.scripts import NO_SCRIPT, scripts_of
from runners.coherence.units import shown
from runners.coherence.verdict import StructuralKind, StructuralVerdict

SAMPLE_CHARS = 4096
"""How much is inspected closely at the beginning, in the middle and at the end of a long text."""
WINDOW_CHARS = 360
_MIN_CHARS = 60
_STUTTERS = 6
_DOUBLES = 4
_ROWS = 32
_STREWN_NEWLINES = 0.1

_FLOW_WORDS = """
the of and to in is a that it for on with as was are be this by at or an not but from have you which can we i he she they his her its
de la le et les des en un une est que pour dans du par sur el los las y con para se lo una del al o os as um uma do da em não
der die das und ist nicht ein eine zu den von mit sich auf il di che e non per sono het een dat niet op te van i w na nie do się
och att det som en är på av og er til ja on ei ei se na u je da su s и в не на что с по как это к из за от у a la si nu ca în de pe
ve bir bu için ile da de ki yang dan di itu dengan untuk
"""
_FLOW = frozenset(_FLOW_WORDS.split())
"""Frequent function words of languages written in Latin or Cyrillic letters: where they stand, there are sentences."""

_CHUNK = re.compile(r"\S{1,4000}")
_PLAIN = re.compile(r"""[("'\[“‘«*_#>-]{0,4}([^\W\d_]+(?:['’-][^\W\d_]+){0,8})[.,;:!?)"'\]”’»*_…]{0,5}""")
_CASE_GLUE = re.compile(r"[a-zà-ÿ][A-Z]|[A-Z]{3}[a-z]{2}")
_GLUED_CAPITAL = re.compile(r"[A-Z](?:(?<=[a-zà-ÿ].)|[A-Z]{2}[a-z]{2})")
"""As many matches as `_CASE_GLUE` or more, found faster: it begins with a rare character."""
_ONLY_LATIN = 0x370
"""Letters below are Latin: no writing system can change."""
_WORD = re.compile(r"[^\W\d_]{2,40}")
_BRACKETS = re.compile(r"[()\[\]{}]")
_LINE_END = re.compile(r"(?:\n\s{0,200})|(?:\\n){1,20}")
_UNDECODED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\ufffd](?!$)")
_FRAGMENT = re.compile(r"\s?(?:[A-Z]?[^\W\d_A-Z]+|[A-Z]+|[^\w\s]+|[\d_]+)|\s+")
_TWICE = re.compile(r"(?=(\s[^\W\d_]{2,}|[A-Z][^\W\d_A-Z]+)\1)")
"""Matches wherever a `_FRAGMENT` of two or more letters stands doubled, and at few other places; much faster to look for."""
_DOUBLED = re.compile(r"([^\W\d_]{3,24})\1")
_PAIR_OF = {")": "(", "]": "[", "}": "{"}
_PIECE_MARKS = re.compile(r"(?<!\S)##[a-z]|[a-z]@@ |[a-z]</w>")
_BPE_MARKERS = "ĠĊ▁"


_MAYBE_LETTER = np.array([chr(low).isalpha() for low in range(256)])
"""Which symbols of an ASCII text are letters."""


@dataclass(frozen=True)
class _Signs:
    """Positions (character indexes into the sample, ascending) of everything that a window counts."""

    chunks: npt.NDArray[np.int64]
    plain: npt.NDArray[np.int64]
    flow: npt.NDArray[np.int64]
    glued_chunks: npt.NDArray[np.int64]
    case_glue: npt.NDArray[np.int64]
    matched: npt.NDArray[np.int64]
    unmatched: npt.NDArray[np.int64]
    newlines: npt.NDArray[np.int64]
    commas: npt.NDArray[np.int64]
    hashtags: npt.NDArray[np.int64]
    undecoded: npt.NDArray[np.int64]
    switches: npt.NDArray[np.int64]
    glued_switches: npt.NDArray[np.int64]
    switch_pairs: npt.NDArray[np.int64]
    """Pair code of each of `switches`, not a position."""


@dataclass(frozen=True)
class _Window:
    """Counts inside one window of text, in the order of `_Signs`."""

    start: int
    chunks: int
    plain: int
    flow: int
    glued_chunks: int
    case_glue: int
    matched: int
    unmatched: int
    newlines: int
    commas: int
    hashtags: int
    undecoded: int
    switches: int
    glued_switches: int
    pairs: int
    scripts: int


def find_salad(text: str, symbols: Symbols) -> StructuralVerdict | None:
    """The first stretch of salad in `text` (which holds no loop), or None. `symbols` are its code points."""
    verdict = _undecoded(text)
    if verdict is not None or len(text) < _MIN_CHARS:
        return verdict
    for offset in _sample_offsets(len(text)):
        sample = text[offset : offset + SAMPLE_CHARS]
        sampled = symbols[offset : offset + SAMPLE_CHARS]
        doubled = _doubled_stretches(sampled, ascii_only=sample.isascii())
        verdict = _stuttered(sample, offset) if doubled >= _STUTTERS else None
        verdict = verdict or _salad_window(sample, sampled, offset, may_shuffle=doubled >= _DOUBLES)
        if verdict is not None:
            return verdict
    return None


def _sample_offsets(length: int) -> list[int]:
    if length <= 3 * SAMPLE_CHARS:
        return list(range(0, length, SAMPLE_CHARS))
    return [0, (length - SAMPLE_CHARS) // 2, length - SAMPLE_CHARS]


def _salad(reason: str, position: int, **numbers: float) -> StructuralVerdict:
    return StructuralVerdict(StructuralKind.TOKEN_SALAD, reason, position, numbers)


def _undecoded(text: str) -> StructuralVerdict | None:
    """Replacement characters inside the text (a cut-off last character is normal), or byte-pair marks in place of spaces."""
    inside = text.rstrip("\N{REPLACEMENT CHARACTER}")
    bad = inside.count("\N{REPLACEMENT CHARACTER}")
    if bad >= 4 and bad >= 0.015 * len(text):
        reason = f"{bad} of {len(text)} characters are the replacement character: token bytes that are no text."
        return _salad(reason, text.index("\N{REPLACEMENT CHARACTER}"), replaced=bad, chars=len(text))
    pieces = [m.start() for m in _PIECE_MARKS.finditer(text)] if any(mark in text for mark in ("##", "@@ ", "</w>")) else []
    if len(pieces) >= 5 and len(pieces) >= 0.15 * text.count(" "):
        return _salad(f"{len(pieces)} word-piece marks are left in the text: it was not detokenised.", pieces[0], marks=len(pieces))
    marks = sum(map(text.count, _BPE_MARKERS))
    if marks >= 6 and marks > text.count(" ") and marks >= 0.03 * len(text):
        first = min(i for i in (text.find(m) for m in _BPE_MARKERS) if i >= 0)
        reason = f"{marks} byte-pair marks stand where spaces should be: the text was not detokenised."
        return _salad(reason, first, marks=marks, chars=len(text))
    return None


def _doubled_stretches(symbols: Symbols, *, ascii_only: bool) -> int:
    """How many stretches of 2 to 31 symbols with a letter in second place stand doubled: all that the exact looks below find, and few more.

    Row L says where a symbol equals the one L further on; a doubled stretch of L symbols is a run of L there. Runs are only followed up to
    the power of two below L, 8 at most.
    """
    length = len(symbols)
    padded = np.zeros(length + _ROWS, dtype=np.uint8)
    padded[:length] = symbols  # the lowest byte of each: different symbols may look equal, equal ones never differ
    shifted = np.ndarray((_ROWS - 2, length), np.uint8, padded, 2, (1, 1))
    runs = shifted == padded[:length]
    second_is_letter = _MAYBE_LETTER[padded[1:]] if ascii_only else np.ones(length + _ROWS - 1, dtype=bool)
    hits = 0
    for step, rows in ((1, 2), (2, 4), (4, _ROWS - 8)):  # runs of 2, 4, 8 and more; the rows of the shorter ones drop out
        runs = runs[:, :-step] & runs[:, step:]
        hits += int(np.count_nonzero(runs[:rows] & second_is_letter[: runs.shape[1]]))
        runs = runs[rows:]
    return hits


def _stuttered(sample: str, offset: int) -> StructuralVerdict | None:
    """A few fragments doubled over and over in no order: "multmult||multmult |multmultmult Example"."""
    doubled = [(m.start(), m.end() - m.start(), m.group(1)) for m in _DOUBLED.finditer(sample) if len(set(m.group(1))) > 1]
    if len(doubled) < _STUTTERS:
        return None
    first, last = doubled[0][0], doubled[-1][0] + doubled[-1][1]
    letters = sum(map(str.isalpha, sample[first:last]))
    covered = sum(length for _, length, _ in doubled)
    words = set(_WORD.findall(sample[first:]))
    if last - first < _MIN_CHARS or covered < 0.3 * letters or len(words) < 4:
        return None
    share = f"{covered} of {letters} letters"
    reason = f"{len(doubled)} fragments stand doubled, such as {shown(doubled[0][2])}; they cover {share} in no regular order."
    return _salad(reason, offset + first, doubled=len(doubled), covered=covered, letters=letters)


@dataclass(frozen=True)
class _Fragments:
    """Word-like fragments of a sample with their positions, and where one stands doubled."""

    texts: list[str]
    starts: npt.NDArray[np.int64]
    doubled: npt.NDArray[np.int64]


def _fragments(sample: str) -> _Fragments:
    texts = _FRAGMENT.findall(sample)
    starts = np.concatenate(([0], np.cumsum([len(t) for t in texts])[:-1])).astype(np.int64)
    doubled = [i for i, (a, b) in enumerate(itertools.pairwise(texts)) if a == b and sum(map(str.isalpha, a)) >= 2]
    return _Fragments(texts, starts, starts[doubled])


def _shuffled(found: _Fragments, start: int, offset: int) -> StructuralVerdict | None:
    """Few fragments in random order: data and code repeat in order, so what follows a fragment is nearly fixed there."""
    low, high = np.searchsorted(found.starts, (start, start + WINDOW_CHARS)).tolist()
    first, last = np.searchsorted(found.doubled, (start, start + WINDOW_CHARS)).tolist()
    doubled = last - first
    if high - low < 30 or doubled < max(_DOUBLES, 0.06 * (high - low)):
        return None
    fragments = found.texts[low:high]
    distinct = len(set(fragments))
    lines = sum(f.count("\n") for f in fragments)
    if distinct < 3 or distinct > len(fragments) / 2.5 or lines > 0.05 * len(fragments):
        return None
    orders = len(set(itertools.pairwise(fragments)))
    if orders < 1.8 * distinct:
        return None
    reason = f"{len(fragments)} fragments are only {distinct} different ones in {orders} different orders, {doubled} of them doubled."
    return _salad(reason, offset + start, fragments=len(fragments), distinct=distinct, orders=orders, doubled=doubled)


def _salad_window(sample: str, symbols: Symbols, offset: int, *, may_shuffle: bool) -> StructuralVerdict | None:
    found = _fragments(sample) if may_shuffle and len(_TWICE.findall(sample)) >= _DOUBLES else None
    if found is not None and len(found.doubled) >= _DOUBLES:
        for start in _window_starts(len(sample)):
            verdict = _shuffled(found, start, offset)
            if verdict is not None:
                return verdict
    if not _has_signs(sample, symbols):
        return None
    for window in _windows(_signs_of(sample, symbols), len(sample)):
        verdict = _mixed_scripts(window, offset) or _strewn_fragments(window, offset)
        if verdict is not None:
            return verdict
    return None


def _has_signs(sample: str, symbols: Symbols) -> bool:
    """Whether the sample can hold a salad window at all: most prose, code and data cannot, and the close look is slow.

    The least that `_mixed_scripts` and `_strewn_fragments` ask for, counted over the whole sample.
    """
    may_mix = not sample.isascii() and int(symbols.max()) >= _ONLY_LATIN
    may_strew = any(map(_may_be_strewn, _window_texts(sample)))
    if not (may_mix or may_strew):
        return False
    odd = len(_UNDECODED.findall(sample))
    if may_mix:
        odd += len(_script_switches(symbols)[2])
    if odd >= 3 or not may_strew:
        return odd >= 3
    glued = len(_GLUED_CAPITAL.findall(sample))
    if glued < 4:
        odd += len(_brackets(sample)[1])
    return glued >= 4 or odd >= 3 or (odd >= 1 and glued >= 2)


def _window_texts(sample: str) -> Iterator[str]:
    return (sample[start : start + WINDOW_CHARS] for start in _window_starts(len(sample)))


def _window_starts(length: int) -> range:
    return range(0, max(length - WINDOW_CHARS // 2, 1), WINDOW_CHARS // 4)


def _may_be_strewn(window: str) -> bool:
    """Whether the lines of a window are long enough for `_strewn_fragments`: those of code and data are not."""
    most = _STREWN_NEWLINES * len(window.split())
    return window.count("\n") <= most or sum(map(bool, map(str.strip, window.split("\n")))) - 1 <= most


def _mixed_scripts(w: _Window, offset: int) -> StructuralVerdict | None:
    unmistakable = w.scripts >= 5 and w.glued_switches >= 6
    among_words = w.switches >= 0.15 * w.chunks and w.flow <= 0.3 * max(w.plain, 1)
    enough = w.scripts >= 3 and w.pairs >= 3 and w.glued_switches >= (6 if w.scripts == 3 else 3)
    if not (unmistakable or (enough and among_words)):
        return None
    reason = f"{w.scripts} writing systems change {w.switches} times across a bare space or inside words ({w.glued_switches} times)."
    return _salad(reason, offset + w.start, scripts=w.scripts, switches=w.switches, glued=w.glued_switches)


def _strewn_fragments(w: _Window, offset: int) -> StructuralVerdict | None:
    """Plain words without function words, strewn between glued fragments, brackets that match nothing and bytes that are no text."""
    if w.flow > max(1, 0.1 * w.plain) or w.newlines > _STREWN_NEWLINES * w.chunks or w.hashtags > 0.3 * w.chunks:
        return None
    glue = w.case_glue + w.glued_chunks
    never_printed = w.undecoded + w.glued_switches
    odd = never_printed + w.unmatched
    listed = w.commas > 0.2 * w.chunks
    among_words = w.chunks >= 14 and w.plain >= 8 and glue >= 0.3 * w.chunks and not listed
    among_words = among_words and odd >= max(1 if w.case_glue >= 2 else 3, w.matched)
    among_glue = w.chunks >= 6 and glue >= 0.5 * w.chunks and never_printed >= 2 and odd >= 3 and odd > 2 * w.matched
    no_syntax = w.matched == 0 and w.commas <= 0.15 * w.chunks and 0.2 * w.chunks <= w.case_glue <= 0.7 * w.chunks
    among_names = w.chunks >= 18 and w.plain >= 0.6 * w.chunks and glue >= 0.35 * w.chunks and no_syntax
    if not (among_words or among_glue or among_names):
        return None
    reason = (
        f"Of {w.chunks} words {w.glued_chunks} are glued to punctuation and {w.case_glue} change case inside, {w.flow} are function words; "
        f"{w.unmatched} brackets match nothing, {never_printed} characters fit no text."
    )
    numbers = {"words": w.chunks, "glued": w.glued_chunks, "case_glue": w.case_glue, "flow": w.flow, "unmatched": w.unmatched}
    return _salad(reason, offset + w.start, never_printed=never_printed, **numbers)


def _windows(signs: _Signs, length: int) -> Iterator[_Window]:
    """Overlapping windows of `WINDOW_CHARS`; every count is a difference of two ranks in the ascending positions."""
    starts = np.array(_window_starts(length))
    edges = np.concatenate((starts, np.minimum(starts + WINDOW_CHARS, length)))
    counted = [np.searchsorted(getattr(signs, f.name), edges).reshape(2, -1) for f in fields(_Signs) if f.name != "switch_pairs"]
    counts = np.stack([high - low for low, high in counted], axis=1).tolist()
    switch_low, switch_high = np.searchsorted(signs.switches, edges).reshape(2, -1).tolist()
    for i, start in enumerate(starts.tolist()):
        pairs = set(signs.switch_pairs[switch_low[i] : switch_high[i]].tolist())
        scripts = {p // 64 for p in pairs} | {p % 64 for p in pairs}
        yield _Window(*(start, *counts[i], len(pairs), len(scripts)))


def _signs_of(sample: str, symbols: Symbols) -> _Signs:
    chunks, plain, flow, glued, commas, hashtags = [], [], [], [], [], []
    for match in _CHUNK.finditer(sample):
        at, chunk = match.start(), match.group()
        chunks.append(at)
        if chunk[-1] in ",;、，":
            commas.append(at)
        if chunk[0] in "#@":
            hashtags.append(at)
        word = _PLAIN.fullmatch(chunk)
        if word:
            plain.append(at)
            if word.group(1).lower() in _FLOW:
                flow.append(at)
        elif any(map(str.isalpha, chunk)):
            glued.append(at)
    matched, unmatched = _brackets(sample)
    switches, pairs, glued_switches = _script_switches(symbols)
    return _Signs(
        chunks=_positions(chunks),
        plain=_positions(plain),
        flow=_positions(flow),
        glued_chunks=_positions(glued),
        case_glue=_positions([m.start() for m in _CASE_GLUE.finditer(sample)]),
        matched=_positions(matched),
        unmatched=_positions(unmatched),
        newlines=_positions([m.start() for m in _LINE_END.finditer(sample)]),
        commas=_positions(commas),
        hashtags=_positions(hashtags),
        undecoded=_positions([m.start() for m in _UNDECODED.finditer(sample)]),
        switches=switches,
        switch_pairs=pairs,
        glued_switches=glued_switches,
    )


def _positions(values: list[int]) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _brackets(sample: str) -> tuple[list[int], list[int]]:
    """Positions of closing brackets that match, and of brackets that match nothing (list marks "a)" and smileys ":)" count as neither)."""
    open_at: list[tuple[str, int]] = []
    matched, unmatched = [], []
    for match in _BRACKETS.finditer(sample):
        at, bracket = match.start(), match.group()
        if bracket in "([{":
            open_at.append((bracket, at))
        elif open_at and open_at[-1][0] == _PAIR_OF[bracket]:
            open_at.pop()
            matched.append(at)
        elif not _is_mark(sample, at):
            unmatched.append(at)
    return matched, sorted(unmatched + [at for _, at in open_at])


def _is_mark(sample: str, at: int) -> bool:
    before = sample[max(at - 3, 0) : at]
    return before[-1:] in (":", ";", "-", "=") or bool(re.fullmatch(r"(?:.*\s)?\w{1,2}", before, re.DOTALL))


def _script_switches(symbols: Symbols) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where two neighbouring letters of different scripts touch or stand one space apart: positions, pair codes, and the touching ones."""
    scripts = scripts_of(symbols)
    at = np.flatnonzero(scripts != NO_SCRIPT)
    if len(at) < 2:
        empty = _positions([])
        return empty, empty, empty
    left, right, gap = scripts[at[:-1]].astype(np.int64), scripts[at[1:]].astype(np.int64), np.diff(at)
    differ = left != right
    touching = differ & (gap == 1)
    bare = differ & (gap == 2) & (symbols[at[:-1] + 1] == 32)
    switch = touching | bare
    pairs = np.minimum(left, right) * 64 + np.maximum(left, right)
    return at[1:][switch], pairs[switch], at[1:][touching]
