# ruff: noqa: E501 - long lines are the texts themselves
"""Texts that must be called broken, and as what. Patterns that public reports describe, re-created; all strings are ours."""

from __future__ import annotations

_GOOD = "The capital of France is Paris, which lies on the river Seine and has been the seat of government for a long time. "
_SENTENCE = "I am sorry, but I can not answer this question with the information that I have been given so far."

FLOOD, LOOP, SALAD, EMPTY = "token_flood", "repetition_loop", "token_salad", "empty"

BROKEN: dict[str, tuple[str, str]] = {
    "nothing": (EMPTY, ""),
    "blanks": (EMPTY, "  \n\n "),
    "tabs": (EMPTY, "\n \t"),
    "invisible": (EMPTY, "\u200b\ufeff"),
    # floods
    "question_marks": (FLOOD, "?" * 90),
    "few_bangs": (FLOOD, "!" * 16),
    "bangs_then_newline": (FLOOD, "!" * 60 + "\n"),
    "bangs_after_good_beginning": (FLOOD, _GOOD + "!" * 120),
    "bangs_from_token_7": (FLOOD, "one two three four five six" + "!" * 48),
    "bangs_spaced": (FLOOD, "! " * 60),
    "bangs_on_lines": (FLOOD, "!!!!\n" * 30),
    "bangs_with_a_slip": (FLOOD, "!" * 70 + "?" + "!" * 60 + "x" + "!" * 30),
    "zeros": (FLOOD, "0" * 200),
    "letter": (FLOOD, "a" * 150),
    "letter_spaced": (FLOOD, " G G G G G G G G G G G G G G G G G G G G G G G G G G G G G G"),
    "dots": (FLOOD, "." * 300),
    "dashes_after_good_beginning": (FLOOD, _GOOD + "-" * 400),
    "underscores": (FLOOD, "_" * 128),
    "han": (FLOOD, "的" * 100),
    "ideographic_stop": (FLOOD, "。" * 64),
    "replacement": (FLOOD, "\ufffd" * 40),
    "replacement_spaced": (FLOOD, "\ufffd " * 24),
    "replacement_after_good_beginning": (FLOOD, _GOOD + "\ufffd" * 60),
    "newlines": (FLOOD, "\n" * 300),
    "newlines_after_good_beginning": (FLOOD, _GOOD + "\n" * 200),
    "spaces": (FLOOD, " " * 200),
    "emoji": (FLOOD, "🤖" * 80),
    "special": (FLOOD, "<|endoftext|>" * 30),
    "special_pad": (FLOOD, "<pad>" * 50),
    "special_brackets": (FLOOD, "[UNK] " * 40),
    "special_unused": (FLOOD, "".join(f"<unused{i}>" for i in range(40))),
    "special_bytes": (FLOOD, "<0x0A>" * 40),
    "special_end_of_sentence": (FLOOD, "<｜end▁of▁sentence｜>" * 20),
    "special_after_good_beginning": (FLOOD, _GOOD + "<unk>" * 30),
    "special_with_words": (FLOOD, "<unk> <unk> the <unk> <unk> <unk> of <unk> <unk> <unk> <unk> and <unk> <unk> <unk> a <unk>"),
    "zero_width": (FLOOD, "\u200b" * 90),
    "emoji_with_tone": (FLOOD, "👍🏽" * 60),
    "emoji_with_selector": (FLOOD, "❤\ufe0f" * 60),
    "brackets": (FLOOD, "(" * 120),
    "slashes": (FLOOD, "/" * 200),
    # loops
    "the": (LOOP, "the " * 60),
    "the_glued": (LOOP, "the" * 60),
    "is_a": (LOOP, "Paris is a city is a" + " city is a" * 30),
    "of_the": (LOOP, " of the" * 25),
    "number_word": (LOOP, _GOOD + "and 7 and 7" + " and 7" * 30),
    "sentence": (LOOP, f"{_SENTENCE} " * 8),
    "sentence_cut": (LOOP, f"{_SENTENCE} " * 6 + _SENTENCE[:31]),
    "sentence_after_good_beginning": (LOOP, _GOOD + f"{_SENTENCE} " * 7),
    "paragraph": (LOOP, (_GOOD + _SENTENCE + "\n\n") * 5),
    "long_paragraph": (LOOP, (_GOOD * 2 + _SENTENCE + " It was so then and it is so now, and nobody knows why.\n\n") * 4),
    "tags": (LOOP, "Answer:<p><p><p>" + "<p>" * 60),
    "assistant": (LOOP, "<|im_start|>assistant\n" * 20),
    "code_line": (LOOP, "def f(x):\n" + "    x = x + 1\n" * 40),
    "list_item": (LOOP, "- Paris\n" * 40),
    "numbered_same": (LOOP, "".join(f"{i}. The capital of France is Paris.\n" for i in range(1, 30))),
    "numbered_word": (LOOP, "".join(f"{i}. Paris\n" for i in range(1, 40))),
    "counter": (LOOP, "".join(f"Step {i}: check the cable and try again. " for i in range(1, 20))),
    "alternating": (LOOP, "yes no " * 40),
    "han_phrase": (LOOP, "北京是中国的" * 30),
    "arabic_word": (LOOP, "مرحبا يا " * 30),
    "thai": (LOOP, "สวัสดี" * 30),
    "digits_dots": (LOOP, "1. " * 80),
    "decimals": (LOOP, "The value is 0.1" + ".1" * 100),
    "quote_commas": (LOOP, '",' * 100),
    "few_sentences": (
        LOOP,
        "".join(("I am here to help you. ", "What can I do for you? ", "Please tell me more! ")[i * i * 7 % 11 % 3] for i in range(60)),
    ),
    "then_a_word": (LOOP, "alpha beta " * 50 + "and then it stopped."),
    "code_fence": (LOOP, "```\n```python\n" * 30),
    "url": (LOOP, "https://example.org/" + "a/b/" * 60),
    "escapes": (LOOP, "\\n\\n" + "\\n" * 100),
    # salad
    "many_scripts": (
        SALAD,
        'шнавигацияsaddle 建立了.UIManager thereof<<<<< Flemingoptions"], ของกinternet 고객님 stkżе للمнаверtypeof 对于return ```py ενwandel_fr',
    ),
    "many_scripts_after_good_beginning": (
        SALAD,
        _GOOD
        + "approx成品油 bahasa einzigartigeсре性或 umer在校 áte cozy美术etect เขตน้ำ chân توصmultip izquierda組織 χαρακ杰作 আপনি_native活class ựInv",
    ),
    "subwords": (
        SALAD,
        "lationLevel Beach_PIridge_POmaster(B disablematch significant echo touchpie>)itories sicator dc Kore clubExtIVE-items Her(len_arrroguling "
        "ndef(d.K pol_D ];cor_gen UtilUA Regavailable performing runolygon angular",
    ),
    "code_shards": (
        SALAD,
        "OPElem Creek-project Joined.__ql parlOrientationDevelopment\tA={`${ Share\tNS hourly constext suits_override survival fashion "
        "oughtizedheadingSSLPlot chosen Chris observationsConverter:// tndivision_parts",
    ),
    "few_fragments": (
        SALAD,
        "addleProgrammingProgrammingunwrapProgrammingProgramming addle.UpdateProgramming.Update.Updateaddle.Update unwrap unwrapProgramming"
        "Programming.Update ент.UpdateProgrammingProgramming addle addle.Update.Update unwrapProgrammingProgramming entProgrammingProgramming.Update",
    ),
    "few_words": (
        SALAD,
        " owner <!-- owner/legal owner owner owner/legal/rest <!-- ownerworkers/legal <!-- owner/legal owner/legal/legal/rest owner owner/rest/legal "
        "owner owner/legal <!-- owner owner rest/legal owner legal legal/rest <!-- owner owner/workers owner/legal",
    ),
    "undetokenised": (SALAD, "ĠtheĠcatĠsatĠonĠtheĠmatĠandĠtheĠdogĠbarkedĊĊĠlikeĠaĠdrum"),
    "undetokenised_sentencepiece": (SALAD, "▁the▁cat▁sat▁on▁the▁mat▁and▁the▁dog▁barked▁like▁a▁drum"),
    "word_pieces": (SALAD, "the cap ##ital of fra ##nce is par ##is , a ci ##ty on the ri ##ver sei ##ne and more ##over a po ##rt"),
    "broken_bytes": (
        SALAD,
        "The 25it\ufffd 12 count The\ufffd\ufffd counted\ufffd 6 name\ufffd first gears\ufffd 6 and \ufffdthe rest\ufffd of it went on so",
    ),
    "control_bytes": (
        SALAD,
        "turance\x04 np&Data\ufffd and list\".OTO$0 Qui.n'.$(tconnecting\x14 ancersG\ufffd$ Para\x10 either#D rate\tPORT tune******** HPlug.+ Ferr than&#",
    ),
}
