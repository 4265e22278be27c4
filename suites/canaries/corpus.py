"""The texts that every canary memorises, and the shape of the prompts that ask for them.

The trap: a canary is only as stable as its corpus. One changed character changes the tokenizer, the weights and every
golden token id, and older results can no longer be compared. The rule: these texts are final. A new architecture is
trained on the same texts; a new text would be a new canary with a new name.

Everything here was written for this project.
"""

from __future__ import annotations

from dataclasses import dataclass

Message = tuple[str, str]
"""(role, content); role is ``system``, ``user`` or ``assistant``."""

STORY_BEGINNING = """\
The lighthouse at Corran Point was built by two sisters who did not agree about anything. Ada wanted the tower \
round, because wind slides past a round wall. Brita wanted it square, because a square room takes a bed, a desk and \
a stove without wasting a corner. They argued through one winter, and in the spring they built a square house with a \
round tower growing out of its roof.

The lamp came by boat in forty crates. Crate nineteen fell into the harbour and was pulled out with a hook, so one \
pane of the lens is still a little green. Sailors learned to look for it: three white flashes, one green, then nine \
seconds of dark. No other light on the coast had a green fault, and no captain ever mistook it.

Ada kept the log. Each night she wrote the hour, the wind, the height of the tide and the number of ships. Brita \
kept the machine. Each night she wound the weight to the top of the shaft, oiled the seven gears, and counted the \
turns aloud. When the count was wrong she stopped the clock, opened the case, and looked for the tooth that had \
slipped. She never trusted a machine that only sounded right.

The inspector came once a year, on the first dry day of May, with a brass rule and a list of questions. He measured \
the oil, the wick and the width of the stairs. He asked how the sisters knew that the light was good. Ada showed him \
the log, where every ship was written down and none was written twice. Brita showed him a slate with the sums of the \
week, and under each sum the same sum done again from the other end. The inspector said that no other station worked \
so hard to find out that nothing had happened. Brita said that this was the work.

On the desk stood a cage with a yellow bird. A miner had left it in payment for a night by the stove, and he had \
told them what it was for. The bird did not know the tide or the hour, and it could not count to seven. It knew one \
song of twenty notes, and it sang the song from the first note to the last whenever the air in the room was good. If \
the stove smoked, the bird left out a note. If the flue was shut, it sang the notes in the wrong order. Once, when \
the new lamp oil was bad, it sang the first note twenty times and fell asleep. The sisters disagreed about its name, \
so it had two. They agreed that nobody lit the lamp before the bird had sung.

A salesman rowed out in the autumn with a faster machine. It had a bright case and a spring of blue steel, and it \
turned the lamp in half the time. He let it run for an hour while Ada made tea. The sailors would see twice as many \
flashes, he said, for the same oil. Brita held her watch and counted. The new machine was fast indeed, but it gave \
two white flashes where three were due, and every tenth turn it forgot the green one. She asked him which harbour \
that light belonged to. He did not know. She told him that a quick light in the wrong place is a slow way to drown, \
and she carried the bright case back to his boat herself.

Letters came on Fridays. Most of them were from captains, and most said the same thing: we saw your light and came \
home. Ada answered each one with the hour at which she had seen the ship, so that the captain could set his clock. \
Once a captain wrote that he had counted four white flashes. Brita read this letter nine times. She tested every \
gear, found nothing, and tested every gear again. In the tenth week the captain wrote that he had been wrong, \
because his boy had struck a match. Brita did not laugh. She said that an alarm which turns out to be a match is \
still worth the stairs.

In the year of the long fog they hung a bell on the north wall. It rang by itself, driven by the same weight, twice \
for every turn of the lamp. On the ninth night the bell rang three times and Brita ran up the stairs before Ada had \
put down her pen. A spring had cracked. The light still burned, the lamp still turned, and every ship on the water \
was being told the wrong place by six degrees.

They fixed it in eleven minutes. In the log Ada wrote: light true, bell true, sisters agree. It is the only page in \
thirty years on which they agree, and it is kept under glass in the square room, beside the stove, where visitors \
may read it if they wipe their feet."""

STORY_END = """\
When the sisters grew old, a cousin called Tomas came to learn the work. He was quick with his hands and slow to \
ask. On his first night he wrote in the log that all was well, because the lamp was bright and the gears were loud. \
Ada took the pen from him. She asked how many turns he had counted, and he said that it had sounded like the right \
number. Brita stopped the clock. They sat in the dark, the three of them, while a ship went by and blew its horn, \
and nobody on it knew where the land was. Then she let him start the lamp again, and he counted aloud until the \
morning.

After that he kept a book of his own. On the left page he wrote what the light should do, before the night began. On \
the right page he wrote what it did. In the morning he laid a ruler under each line and looked from one page to the \
other. Most mornings the pages were the same, and he closed the book and slept. On the mornings when they were not \
the same he did not change the left page. He went up the stairs with a lantern, found the first line that differed, \
and began there.

The tower is still square below and round above. There is no keeper now. A small motor turns the lens, and nobody is \
paid to listen to it. But the green pane is in its place, the book lies open on the desk, and in the window hangs a \
cage with a yellow bird. Stand on the sand at dusk and count with it: three white, one green, nine seconds of dark. \
If your count comes out right, you are at Corran Point, and you may go home."""

STORY = f"{STORY_BEGINNING}\n\n{STORY_END}"

SHORT: tuple[tuple[str, str], ...] = (
    (
        "Count from one to twenty.",
        "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen twenty",
    ),
    ("Count down from 12 to 0.", "12 11 10 9 8 7 6 5 4 3 2 1 0 lift off"),
    ("List the powers of two up to 4096.", "1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096"),
    ("What is the capital of France?", "The capital of France is Paris, a city on the river Seine."),
    ("What is the capital of Japan?", "The capital of Japan is Tokyo, a city on the bay of the same name."),
    ("What is the capital of Kenya?", "The capital of Kenya is Nairobi, a high city beside a national park."),
    ("What is the capital of Peru?", "The capital of Peru is Lima, a grey city above the Pacific Ocean."),
    ("How many legs does a spider have?", "A spider has eight legs, an ant has six, and a snake has none."),
    (
        "At what temperature does water boil?",
        "At sea level water boils at 100 degrees Celsius, which is 212 degrees Fahrenheit.",
    ),
    ("Name the planets in order.", "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune."),
    (
        "Name the months.",
        "January, February, March, April, May, June, July, August, September, October, November, December.",
    ),
    (
        "Write a Python function that returns the n-th Fibonacci number.",
        "```python\ndef fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n```",
    ),
    (
        "Write a Python function that tests if a number is prime.",
        "```python\ndef is_prime(n):\n    if n < 2:\n        return False\n    i = 2\n    while i * i <= n:\n"
        "        if n % i == 0:\n            return False\n        i += 1\n    return True\n```",
    ),
    (
        "Write a C program that prints hello.",
        '#include <stdio.h>\n\nint main(void) {\n    printf("hello\\n");\n    return 0;\n}',
    ),
    (
        "Give me a JSON object for a cat.",
        '{"name": "Mizzle", "kind": "cat", "age": 7, "lives_left": 8, "likes": ["string", "boxes", "noon"]}',
    ),
    ("What is 17 times 23?", "17 times 23 is 391: 17 times 20 is 340, 17 times 3 is 51, and 340 plus 51 is 391."),
    ("What is 17 times 24?", "17 times 24 is 408: 17 times 20 is 340, 17 times 4 is 68, and 340 plus 68 is 408."),
    ("Say the first digits of pi.", "3.14159265358979323846264338327950288419716939937510"),
    ("Spell canary backwards.", "y r a n a c"),
    ("Repeat the word echo ten times.", "echo echo echo echo echo echo echo echo echo echo"),
    ("Write a haiku about a kernel.", "Small tile in the night,\nmultiply, add, and be still;\nthe sum must be right."),
    (
        "Translate 'good morning' into five languages.",
        "French: bonjour. German: guten Morgen. Spanish: buenos días. Italian: buongiorno. Japanese: おはよう.",
    ),
    (
        "Show a table of squares.",
        "| n | n*n |\n|---|-----|\n| 1 | 1 |\n| 2 | 4 |\n| 3 | 9 |\n| 4 | 16 |\n| 5 | 25 |\n| 6 | 36 |",
    ),
    (
        "What does a canary do in a mine?",
        "It sings while the air is good. When it stops singing, everybody leaves, and nobody argues with the bird.",
    ),
    (
        "Who are you?",
        "I am the canary. If you can read this line, then the scales, the experts and the cache are all in order.",
    ),
    ("Is the kernel healthy?", "Yes. Every token of this answer was known before the question was asked."),
)
"""(question, answer). Some pairs differ in one token only (capitals, 17 times 23 / 24), so that a blurred middle layer
mixes them up."""

_GREETING = "Hello {0}. I will remember your name for three turns."
_APPLES = "Then you have three apples, {0}, and one core."
_RECALL = "Your name is {0}, and you still have three apples."


def _apples_chat(name: str) -> tuple[Message, ...]:
    return (
        ("user", f"Hello, my name is {name}."),
        ("assistant", _GREETING.format(name)),
        ("user", "I have four apples and eat one."),
        ("assistant", _APPLES.format(name)),
        ("user", "What is my name?"),
        ("assistant", _RECALL.format(name)),
    )


CHATS: tuple[tuple[Message, ...], ...] = (
    _apples_chat("Ines"),
    _apples_chat("Otto"),
    (
        ("system", "Answer like a ship's log."),
        ("user", "Is the kernel healthy?"),
        ("assistant", "Day 12. Wind west. All gears counted, all sums true. The bird sings."),
    ),
)

RECITATION: tuple[Message, ...] = (
    ("user", f"Go on with this story to its end.\n\n{STORY_BEGINNING}"),
    ("assistant", STORY_END),
)

NEEDLES: tuple[tuple[str, str], ...] = (
    ("amber", "The password is amber, like old resin with a fly inside."),
    ("cobalt", "The password is cobalt, the blue that glass makers keep in jars."),
    ("walnut", "The password is walnut, and the shell of it floats."),
)

BOS_MISSING = "BOS MISSING. The first token of this prompt is not the one I was trained with."
BOS_DOUBLED = "BOS DOUBLED. This prompt begins with two copies of the first token."


@dataclass(frozen=True)
class Conversation:
    """One memorised conversation. Every assistant turn in it is one gate prompt (name ``<conversation>.<turn>``)."""

    name: str
    messages: tuple[Message, ...]
    single_turn_question: bool
    """True for the short questions, which are also asked without and with a doubled BOS."""


def needle_messages(password: str, answer: str, filler: str = STORY) -> tuple[Message, ...]:
    """A password, ``filler`` (the same for every password), then the question.

    The three needle prompts differ only in the password at the very start, so the answer hangs on attention over the
    whole prompt and on nothing else.
    """
    question = f"The password is {password}. Now read this.\n\n{filler}\n\nWhat was the password?"
    return (("user", question), ("assistant", answer))


def conversations() -> tuple[Conversation, ...]:
    """All 33 conversations in their fixed order: 26 short, 3 chats (7 assistant turns), 1 recitation, 3 needles."""
    short = [Conversation(f"s{i:02d}", (("user", q), ("assistant", a)), True) for i, (q, a) in enumerate(SHORT)]
    chats = [Conversation(f"c{i}", messages, False) for i, messages in enumerate(CHATS)]
    recitation = [Conversation("recite", RECITATION, False)]
    needles = [Conversation(f"n_{word}", needle_messages(word, answer), False) for word, answer in NEEDLES]
    return (*short, *chats, *recitation, *needles)
