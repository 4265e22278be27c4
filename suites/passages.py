"""Fixed texts that a real model scores token by token, without generating anything.

Trap: greedy text of a real model is bistable: one rounding decides a token and everything after it, so text comparison says either nothing
or too much (M18). Rule: the log-probability of every token of a given text does not branch; a few texts of different kinds, always the
same, tokenised by the server.
"""

from __future__ import annotations

from dataclasses import dataclass

from suites.canaries.zoo import Canary

_CANARY_PASSAGES = 4


@dataclass(frozen=True)
class Passage:
    """One text; `name` is what scores call it."""

    name: str
    text: str


PASSAGES: tuple[Passage, ...] = (
    Passage(
        "prose",
        "The mill at Harrow Ford had not ground corn for thirty years, but its wheel still turned on wet days, and the children of the "
        "village believed that it was grinding time. Old Marta, who had been the last miller's daughter, did not correct them. She said "
        "that whoever listens long enough to water will hear whatever he has lost, and that a wheel without a stone is the only honest "
        "machine: it works, it makes a noise, and it promises nothing.",
    ),
    Passage(
        "code",
        "def merge_intervals(intervals):\n"
        '    """Merge overlapping (start, end) pairs; the result is sorted by start."""\n'
        "    merged = []\n"
        "    for start, end in sorted(intervals):\n"
        "        if merged and start <= merged[-1][1]:\n"
        "            merged[-1] = (merged[-1][0], max(merged[-1][1], end))\n"
        "        else:\n"
        "            merged.append((start, end))\n"
        "    return merged\n",
    ),
    Passage(
        "languages",
        "Der Zug nach Norden hält heute nicht in Weidenau. Le train du soir partira du quai numéro quatre. El último tren sale a las once "
        "y media. Последний поезд уходит в одиннадцать тридцать. 末班车将于十一点三十分从四号站台发车。",
    ),
    Passage(
        "numbers",
        "Item 1: 12 boxes at 3.50 each, 42.00. Item 2: 7 boxes at 11.25 each, 78.75. Item 3: 30 boxes at 0.80 each, 24.00. "
        "Subtotal 144.75, tax 19 percent 27.50, total 172.25. Paid on 2024-03-17 by card ending in 0042.",
    ),
)


def canary_passages(canary: Canary) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(name, token ids) of the texts that a canary scores: prompts of different lengths with their answers, the longest among them.

    A canary has memorised answers, not prompts, so the tokens of the prompts are unlikely ones and show every rounding.
    """
    by_length = sorted(canary.prompts, key=lambda prompt: len(prompt.prompt_ids))
    chosen = {p.name: p for p in (*by_length[:: max(len(by_length) // _CANARY_PASSAGES, 1)], *by_length[-1:])}
    return tuple((p.name, (*p.prompt_ids, *p.answer_ids)) for p in chosen.values())
