"""Prompts for a real model that has no golden answers: short ones of many kinds, raw and chat, and one long.

The trap: a broken kernel often shows only beyond some prompt length, in one language, or in code, and a base model repeats itself by
nature when it may write on for long. The rule: varied kinds and lengths, and an answer so short that a healthy small model does not fall
into a loop of whole sentences, yet long enough for floods, loops of a few tokens and salad to show.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

RAW_TOKENS = 32
CHAT_TOKENS = 48
LONG_TOKENS = 16
LONGEST_PROMPT = 9_000
"""Tokens of the long prompt where the context allows it: past the chunked-prefill sizes of both engines (2,048 or 8,192 by default)."""


@dataclass(frozen=True)
class ModelPrompt:
    """One prompt: `text` to be continued, or `messages` (role, content) for the chat template; exactly one of them is given."""

    name: str
    max_tokens: int
    text: str | None = None
    messages: tuple[tuple[str, str], ...] = ()


_LONG = """\
The ferry between Aldergate and the island of Senn has run for a hundred and twelve years, and in that time it has had four ships. The \
first, the Maren, was built of oak and burned coal. She carried sheep in spring, tourists in summer, apples in autumn and, in winter, \
the post, the doctor and whoever could not wait. Her captain was a quiet man named Oskar Lind who kept a notebook in which he wrote \
down every passenger, not by name but by what they carried. A woman with a clock. Two boys with a ladder. A priest with a fishing rod. \
When he retired he gave the notebooks, thirty-one of them, to the school, where children learned to read from them, because the \
sentences were short and nothing in them was invented.

The second ship, the Hilda, was made of steel and had a diesel engine that could be heard on both shores. People set their watches by \
it. She was larger and faster than the Maren and much less loved, until the winter of the great ice, when the strait froze for the \
first time in sixty years. For nineteen days the Hilda broke the same path every morning and every evening. On the twentieth day the \
ice was too thick, and the islanders walked out to the ship with sledges, unloaded flour, medicine and a piano that had been ordered \
the year before, and pulled all of it home across the frozen sea. The piano is still in the village hall. It has never been quite in \
tune.

The third ship had no name that anybody used. Officially she was the Aldergate II, but everyone called her the replacement, and after \
eight years she was replaced. What people remember of her is the coffee, which was terrible, and the view from the upper deck, which \
was not.

The fourth ship, the one that sails today, is electric. She charges for eleven minutes at each end and makes almost no sound, so that \
on a calm day the passengers hear the water along the hull and the gulls behind it. Her captain is a granddaughter of Oskar Lind. She, \
too, keeps a notebook. Last week she wrote: a man with a beehive, asleep; a girl teaching her father to whistle; forty identical \
umbrellas, no rain.

In one sentence, the story above tells us that"""

MODEL_PROMPTS: tuple[ModelPrompt, ...] = (
    ModelPrompt("raw_capital", RAW_TOKENS, "The capital of France is"),
    ModelPrompt("chat_sky", CHAT_TOKENS, messages=(("user", "Why does the sky look blue on a clear day? Two sentences."),)),
    ModelPrompt("raw_story", RAW_TOKENS, "The old lighthouse keeper climbed the stairs, opened the small window and saw"),
    ModelPrompt("chat_code", CHAT_TOKENS, messages=(("user", "Write a Python function that reverses the words of a sentence."),)),
    ModelPrompt("raw_code", RAW_TOKENS, 'def mean(values):\n    """Arithmetic mean of a non-empty list of numbers."""\n'),
    ModelPrompt(
        "chat_sum",
        CHAT_TOKENS,
        messages=(("user", "A shelf holds 14 books and 9 more are added. How many are there now? Explain briefly."),),
    ),
    ModelPrompt("raw_german", RAW_TOKENS, "Im Herbst ziehen die Kraniche nach Süden, weil"),
    ModelPrompt(
        "chat_translate", CHAT_TOKENS, messages=(("user", "Translate into French: 'The bridge opens at noon and closes at dusk.'"),)
    ),
    ModelPrompt("raw_long", RAW_TOKENS, _LONG),
    ModelPrompt(
        "chat_turns",
        CHAT_TOKENS,
        messages=(
            ("user", "My dog is called Biscuit and she is afraid of umbrellas."),
            ("assistant", "Poor Biscuit! Try opening one slowly, far away from her, with a treat beside it."),
            ("user", "What was my dog's name, and what frightens her?"),
        ),
    ),
    ModelPrompt("raw_chinese", RAW_TOKENS, "春天来了,公园里的樱花都开了,孩子们"),
    ModelPrompt(
        "chat_json", CHAT_TOKENS, messages=(("user", "Answer with a JSON object that has the keys city, river and bridges for Budapest."),)
    ),
    ModelPrompt(
        "chat_system",
        CHAT_TOKENS,
        messages=(
            ("system", "You are the keeper of a small lighthouse. You answer in one short sentence."),
            ("user", "What did you see from the window this morning?"),
        ),
    ),
)

LONG_NAME = "raw_long_context"
LONG_QUESTION = "\n\nThe log above was kept by the ferry of"
_CARRIED = ["sheep", "apples", "letters", "bicycles", "flour", "lamps", "kettles", "umbrellas", "ladders", "clocks"]
_WEATHER = ["fog", "rain", "sun", "wind", "frost", "hail", "mist", "thunder"]


def long_text(days: int) -> str:
    """A ferry's log of `days` days, every line different: about 22 tokens a line, nothing that a model would repeat by nature."""
    return "Log of the ferry between Aldergate and Senn.\n" + "\n".join(_log_line(day) for day in range(1, days + 1))


def _log_line(day: int) -> str:
    first, second = _CARRIED[day % 10], _CARRIED[(3 * day + day // 10) % 10]
    weather = _WEATHER[(day * day + day // 7) % 8]
    return f"Day {day}: {weather} until {day % 11 + 1} o'clock; {day * 37 % 90 + 3} {first} and {day * 53 % 40 + 2} {second} crossed."


def prompts_digest() -> str:
    """What a real model is asked, as part of a reference's key."""
    asked = [asdict(prompt) for prompt in MODEL_PROMPTS]
    return hashlib.sha256(json.dumps([asked, LONG_QUESTION, long_text(3)]).encode()).hexdigest()
