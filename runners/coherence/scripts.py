"""Which writing system each character belongs to.

Trap: "mixed scripts" alone is no sign of salad: Chinese, Japanese, Korean, Hindi and Russian texts name GPUs in Latin letters, and a list
of translations holds ten scripts. Rule: this module only says what is there; `salad` looks at how the scripts meet.

Ranges: Unicode 15 blocks, merged; Han, kana and bopomofo are one system because every Japanese sentence mixes them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runners.coherence.loops import Symbols

NO_SCRIPT = 0
LATIN = 1
GREEK = 2
CYRILLIC = 3
CJ = 4
HANGUL = 5

_RANGES: tuple[tuple[int, int, int], ...] = (
    (0x41, 0x5A, LATIN),
    (0x61, 0x7A, LATIN),
    (0xC0, 0xD6, LATIN),
    (0xD8, 0xF6, LATIN),
    (0xF8, 0x2AF, LATIN),
    (0x370, 0x3FF, GREEK),
    (0x400, 0x52F, CYRILLIC),
    (0x531, 0x58F, 6),  # Armenian
    (0x591, 0x5F4, 7),  # Hebrew
    (0x610, 0x6FF, 8),  # Arabic
    (0x700, 0x74F, 9),  # Syriac
    (0x750, 0x77F, 8),
    (0x780, 0x7BF, 10),  # Thaana
    (0x7C0, 0x7FF, 11),  # NKo
    (0x8A0, 0x8FF, 8),
    (0x900, 0x963, 12),  # Devanagari
    (0x966, 0x97F, 12),
    (0x980, 0x9FF, 13),  # Bengali
    (0xA00, 0xA7F, 14),  # Gurmukhi
    (0xA80, 0xAFF, 15),  # Gujarati
    (0xB00, 0xB7F, 16),  # Oriya
    (0xB80, 0xBFF, 17),  # Tamil
    (0xC00, 0xC7F, 18),  # Telugu
    (0xC80, 0xCFF, 19),  # Kannada
    (0xD00, 0xD7F, 20),  # Malayalam
    (0xD80, 0xDFF, 21),  # Sinhala
    (0xE01, 0xE4E, 22),  # Thai
    (0xE80, 0xEFF, 23),  # Lao
    (0xF00, 0xFFF, 24),  # Tibetan
    (0x1000, 0x109F, 25),  # Myanmar
    (0x10A0, 0x10FF, 26),  # Georgian
    (0x1100, 0x11FF, HANGUL),
    (0x1200, 0x139F, 27),  # Ethiopic
    (0x13A0, 0x13FF, 28),  # Cherokee
    (0x1400, 0x167F, 29),  # Canadian syllabics
    (0x1780, 0x17FF, 30),  # Khmer
    (0x1800, 0x18AF, 31),  # Mongolian
    (0x1E00, 0x1EFF, LATIN),
    (0x1F00, 0x1FFF, GREEK),
    (0x2D30, 0x2D7F, 32),  # Tifinagh
    (0x3041, 0x30FF, CJ),
    (0x3105, 0x312F, CJ),
    (0x3130, 0x318F, HANGUL),
    (0x3400, 0x4DBF, CJ),
    (0x4E00, 0x9FFF, CJ),
    (0xA000, 0xA4CF, 33),  # Yi
    (0xAC00, 0xD7AF, HANGUL),
    (0xF900, 0xFAFF, CJ),
    (0xFB50, 0xFDFF, 8),
    (0xFE70, 0xFEFC, 8),
    (0x20000, 0x3134F, CJ),
)
_STARTS = np.array([r[0] for r in _RANGES], dtype=np.uint32)
_ENDS = np.array([r[1] for r in _RANGES], dtype=np.uint32)
_SCRIPTS = np.array([r[2] for r in _RANGES], dtype=np.int16)


def scripts_of(symbols: Symbols) -> npt.NDArray[np.int16]:
    """Script number of each code point, `NO_SCRIPT` for digits, marks of punctuation, spaces, symbols and scripts not listed."""
    at = np.searchsorted(_STARTS, symbols, side="right") - 1
    inside = (at >= 0) & (symbols <= _ENDS[np.maximum(at, 0)])
    return np.where(inside, _SCRIPTS[np.maximum(at, 0)], np.int16(NO_SCRIPT))
