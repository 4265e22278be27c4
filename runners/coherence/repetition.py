"""Floods and loops in text.

Trap: a loop is often not the whole answer: it starts after a good beginning, changes a counter, or repeats whole sentences in any order.
Rule: the exact tail is tried first, then a loop in the middle, one dominating character, a loop whose only change is a counter, and at last
few sentences told over and over. Each finder returns the verdict or None.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from runners.coherence.loops import Run, Symbols, inner_runs, may_hold_inner_run, may_repeat_at_end, symbols_of, tail_runs
from runners.coherence.units import (
    DRAWN_WHOLE,
    FLOOD_NEEDS,
    INNER_NEEDS,
    INNER_SHARE,
    SELF_ENDED_NEEDS,
    SPECIAL_MARKS,
    SPECIAL_TOKEN,
    TAIL_NEEDS,
    LoopNeeds,
    UnitClass,
    class_of_character,
    class_of_unit,
    density,
    shown,
    single_visible,
)
from runners.coherence.verdict import StructuralKind, StructuralVerdict

_NEVER_DOMINANT = {UnitClass.BLANK, UnitClass.RULER, UnitClass.DIGIT}
_DOMINANT_SHARE = 0.9
_DOMINANT_CHARS = 64
_LEAST_INNER = 200
_LEAST_SENTENCES = 12
_SENTENCE_ENDS = "\n.!?。！？।"
_LONGEST_SENTENCE = 2000
_SPECIAL_SHARE = 0.6
_SAMPLE_CHARS = 512
_MASKED_CHARS = 65536
_SENTENCES = 400
_SENTENCE = re.compile(rf"[^{_SENTENCE_ENDS}]{{1,{_LONGEST_SENTENCE}}}")
_COUNTER = re.compile(r"\d{1,18}")
_LINE_MARKER = re.compile(r"^[ \t>#*-]{0,12}(?:[A-Z][a-z]{1,14} ){0,1}\(?\d{1,6}[.):]+[ \t]+", re.MULTILINE)
_NO_NEEDS = LoopNeeds(())
_NO_BLANK = np.array([chr(low) not in " \n\t\r" for low in range(256)], dtype=np.int64)
"""1 for every lowest byte of a code point but those of blanks."""
_LEAST_COUNTED = 8
_COUNTED_NEEDS = LoopNeeds(((60, _LEAST_COUNTED),))
_NO_SPACE = {ord(c): None for c in " \n\t\r\f\v\N{NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}"}
_STRUCTURE = frozenset('{}[]<>|;=\\"`_@/$&')


def find_repetition(text: str, symbols: Symbols, ended_itself: bool) -> StructuralVerdict | None:
    """The first flood or loop that `text` holds, or None. White space after a flood does not hide it."""
    body = text.rstrip()
    body_symbols = symbols[: len(body)]
    return (
        _blank_flood(text, body)
        or _special_token_flood(body)
        or _tail_repetition(body, body_symbols, ended_itself)
        or _inner_repetition(body, body_symbols)
        or _dominant_character(body, body_symbols)
        or _counting_loop(body, ended_itself)
        or _few_sentences(body, ended_itself)
    )


def _blank_flood(text: str, body: str) -> StructuralVerdict | None:
    blanks = len(text) - len(body)
    needs = FLOOD_NEEDS[UnitClass.BLANK]
    if blanks < (needs.tail if body else needs.whole):
        return None
    reason = f"{blanks} blank characters {'end' if body else 'are'} the {'answer' if body else 'whole answer'}."
    return StructuralVerdict(StructuralKind.TOKEN_FLOOD, reason, len(body), {"chars": blanks})


def _special_token_flood(text: str) -> StructuralVerdict | None:
    """Control tokens in a row, the same or different ones, at the end or as nearly the whole answer."""
    if not any(map(text.__contains__, SPECIAL_MARKS)):
        return None
    start = end = count = 0
    for match in SPECIAL_TOKEN.finditer(text):
        if count and not text[end : match.start()].strip():
            count += 1
        else:
            start, count = match.start(), 1
        end = match.end()
    if not count or text[end:].strip():
        return _mostly_special(text)
    needs = FLOOD_NEEDS[UnitClass.SPECIAL]
    whole = not text[:start].strip()
    if count < (needs.whole if whole else needs.tail):
        return _mostly_special(text)
    reason = f"{count} special tokens in a row, such as {shown(text[start:end])}, {'are the whole answer' if whole else 'end the answer'}."
    return StructuralVerdict(StructuralKind.TOKEN_FLOOD, reason, start, {"tokens": count, "chars": end - start})


def _mostly_special(text: str) -> StructuralVerdict | None:
    """Control tokens with a word here and there between them."""
    tokens = [(m.start(), m.end() - m.start()) for m in SPECIAL_TOKEN.finditer(text)]
    covered = sum(length for _, length in tokens)
    if len(tokens) < FLOOD_NEEDS[UnitClass.SPECIAL].tail or covered < _SPECIAL_SHARE * len(text):
        return None
    reason = f"{len(tokens)} special tokens cover {covered} of {len(text)} characters."
    return StructuralVerdict(StructuralKind.TOKEN_FLOOD, reason, tokens[0][0], {"tokens": len(tokens), "chars": covered})


def _tail_repetition(text: str, symbols: Symbols, ended_itself: bool) -> StructuralVerdict | None:
    if not may_repeat_at_end(text):
        return None
    needs = SELF_ENDED_NEEDS if ended_itself else TAIL_NEEDS
    for run in tail_runs(symbols):
        unit = text[run.start : run.start + run.period]
        char = single_visible(unit)
        if char is not None:
            verdict = _flood(text, run, char)
        elif needs.get(class_of_unit(unit), _NO_NEEDS).met(run.length * density(unit), run.repeats):
            verdict = _loop(run, unit, "up to the end")
        else:
            verdict = None
        if verdict is not None:
            return verdict
    return None


def _flood(text: str, run: Run, char: str) -> StructuralVerdict | None:
    unit_class = class_of_character(char)
    needs = FLOOD_NEEDS[unit_class]
    flood = text[run.start :]
    count = flood.count(char) if char else len(flood)
    whole = not text[: run.start].replace(char or " ", "").strip()
    needed = needs.whole if whole else needs.tail
    if whole and unit_class in (UnitClass.RULER, UnitClass.DIGIT) and "\n" in flood:
        needed = DRAWN_WHOLE
    if count < needed:
        return None
    place = "are the whole answer" if whole else "end the answer"
    reason = f"{count} times the same {unit_class} {shown(char or flood[:1])} {place}."
    return StructuralVerdict(StructuralKind.TOKEN_FLOOD, reason, run.start, {"count": count, "chars": run.length})


def _inner_repetition(text: str, symbols: Symbols) -> StructuralVerdict | None:
    """A flood or loop that the answer left again, if it covers much of it (one that reaches the end was judged before)."""
    if len(text) < _LEAST_INNER or not may_hold_inner_run(text):
        return None
    for run in inner_runs(symbols):
        if run.length < INNER_SHARE * len(text) or run.end == len(text):
            continue
        unit = text[run.start : run.start + run.period]
        char = single_visible(unit)
        if char is None:
            unit_class = class_of_unit(unit)
            if unit_class in INNER_NEEDS and INNER_NEEDS[unit_class].met(run.length, run.repeats):
                return _loop(run, unit, f"of {len(text)}")
        elif class_of_character(char) not in _NEVER_DOMINANT and run.length >= _LEAST_INNER:
            reason = f"{run.length} characters of nothing but {shown(char)} in the middle of the answer."
            return StructuralVerdict(StructuralKind.TOKEN_FLOOD, reason, run.start, {"chars": run.length})
    return None


def _loop(run: Run, unit: str, where: str) -> StructuralVerdict:
    reason = f"{shown(unit)} repeats {run.repeats:.1f} times over {run.length} characters {where}."
    numbers = {"period": run.period, "repeats": round(run.repeats, 2), "chars": run.length}
    return StructuralVerdict(StructuralKind.REPETITION_LOOP, reason, run.start, numbers)


def _may_dominate(symbols: Symbols) -> bool:
    """Whether one character can be nearly everything that is visible: counts of the lowest byte of every code point, blanks taken out.

    Different characters with the same lowest byte are counted together, so it never errs towards False.
    """
    counts = np.bincount(symbols & 0xFF, minlength=256) * _NO_BLANK
    return int(counts.max()) >= _DOMINANT_SHARE * int(counts.sum())


def _dominant_character(text: str, symbols: Symbols) -> StructuralVerdict | None:
    """One character is nearly everything that is visible, though the flood is not exact."""
    if len(text) < _DOMINANT_CHARS or not _may_dominate(symbols):
        return None
    sample = "".join(text[i : i + _SAMPLE_CHARS] for i in (0, len(text) // 2, max(len(text) - _SAMPLE_CHARS, 0)))
    common = Counter(sample.translate(_NO_SPACE)).most_common(1)
    if not common or class_of_character(common[0][0]) in _NEVER_DOMINANT:
        return None
    char = common[0][0]
    visible = len(text) - sum(text.count(c) for c in " \n\t\r")
    count = text.count(char)
    if visible < _DOMINANT_CHARS or count < _DOMINANT_SHARE * visible:
        return None
    reason = f"{count} of {visible} visible characters are the same {class_of_character(char)} {shown(char)}."
    return StructuralVerdict(StructuralKind.TOKEN_FLOOD, reason, text.index(char), {"count": count, "visible": visible})


def _counting_loop(text: str, ended_itself: bool) -> StructuralVerdict | None:
    """A loop whose only change is the number of the list item, or one number in a sentence: "Step 4: check it. Step 5: check it. ..."

    Only prose counts: rows of data, code and log lines repeat like this by their nature.
    """
    tail = text[-_MASKED_CHARS:]
    if len(_COUNTER.findall(tail)) < _LEAST_COUNTED:
        return None
    needs = (SELF_ENDED_NEEDS if ended_itself else TAIL_NEEDS)[UnitClass.WORD]
    unnumbered = _LINE_MARKER.sub("", tail)
    masked = _COUNTER.sub("0", unnumbered)
    runs = [(unnumbered, run, 1, needs) for run in _text_runs(unnumbered)] if unnumbered != tail else []
    runs += [(masked, run, 5, _COUNTED_NEEDS) for run in _text_runs(masked)]
    for reduced, run, least_words, run_needs in runs:
        unit = reduced[run.start : run.start + run.period]
        prose = sum(c.isalpha() or c.isspace() for c in unit) >= 0.8 * len(unit) and not _STRUCTURE.intersection(unit)
        counted = len(unit.split()) >= least_words and unit.count("0") <= 1
        if prose and counted and run_needs.met(run.length, run.repeats / (2.5 if ended_itself else 1)):
            position = max(len(text) - round(run.length * len(tail) / len(reduced)), 0)
            reason = f"{shown(unit)} repeats {run.repeats:.1f} times with only a number changing."
            numbers = {"repeats": round(run.repeats, 2), "chars": run.length}
            return StructuralVerdict(StructuralKind.REPETITION_LOOP, reason, position, numbers)
    return None


def _text_runs(text: str) -> list[Run]:
    return tail_runs(symbols_of(text)) if may_repeat_at_end(text) else []


def _few_sentences(text: str, ended_itself: bool) -> StructuralVerdict | None:
    """The last sentences are a few ones told over and over, in any order."""
    if ended_itself:
        return None
    tail = text[-_MASKED_CHARS:]
    if sum(map(tail.count, _SENTENCE_ENDS)) + len(tail) // _LONGEST_SENTENCE + 1 < _LEAST_SENTENCES:
        return None
    found = _SENTENCE.findall(tail)
    if len(found) - len(set(map(str.strip, found))) < 0.8 * _LEAST_SENTENCES:
        return None
    told = [(m.start(), m.group().strip()) for m in _SENTENCE.finditer(tail)]
    told = [(at, s) for at, s in told[-_SENTENCES:] if _is_prose(s)]
    if len(told) < _LEAST_SENTENCES:
        return None
    last = told[-max(_LEAST_SENTENCES, len(told) // 2) :]
    distinct = len({s for _, s in last})
    if distinct > len(last) / 5 or sum(len(s) for _, s in last) < 0.5 * len(tail[last[0][0] :]):
        return None
    reason = f"The last {len(last)} sentences are only {distinct} different ones, such as {shown(last[-1][1])}."
    position = len(text) - len(tail) + last[0][0]
    return StructuralVerdict(StructuralKind.REPETITION_LOOP, reason, position, {"sentences": len(last), "distinct": distinct})


def _is_prose(sentence: str) -> bool:
    return sum(map(str.isalpha, sentence)) >= 12 and not _STRUCTURE.intersection(sentence) and len(sentence.split()) >= 3
