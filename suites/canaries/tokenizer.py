"""Build the canary tokenizer: byte-level BPE over the corpus, 1024 ids, special tokens last.

The trap: an engine that emits id 0 for every token (NaN logits: argmax of NaN is 0) must be visible in plain text, and
an engine that drops or doubles BOS must give a different answer, not a slightly worse one. The rule: id 0 is ``!``, the
six special tokens take the last ids, and BOS is added both by the tokenizer's post-processor and by the chat template.

The files are written in the form that transformers 4 and 5 both read, because engines of either age load them.
Needs the ``canary`` dependency group (the ``tokenizers`` package); nothing else in the project imports this module
at run time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from suites.canaries import corpus

VOCAB_SIZE = 1024
PAD, BOS, END = "<|pad|>", "<|bos|>", "<|end|>"
SPECIAL_TOKENS = (PAD, BOS, END, "<|system|>", "<|user|>", "<|assistant|>")
MODEL_MAX_LENGTH = 2048

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

TOKENIZER_CONFIG = {
    "bos_token": BOS,
    "clean_up_tokenization_spaces": False,
    "eos_token": END,
    "model_max_length": MODEL_MAX_LENGTH,
    "pad_token": PAD,
    "tokenizer_class": "PreTrainedTokenizerFast",
}


@dataclass(frozen=True)
class TrainingPrompt:
    """A prompt and the ids that must follow it; ``answer_ids`` ends with the end-of-sequence id.

    ``messages`` are the (role, content) pairs before the answer; empty for prompts with a wrong BOS, which no chat
    template can produce.
    """

    name: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    answer_text: str
    messages: tuple[corpus.Message, ...]


def corpus_texts() -> list[str]:
    """Every distinct text once (the story is not counted again for each needle, or it would take all the merges)."""
    texts = [
        content for conversation in corpus.conversations() if not conversation.name.startswith("n_") for _, content in conversation.messages
    ]
    for word, answer in corpus.NEEDLES:
        texts += [content for _, content in corpus.needle_messages(word, answer, filler="")]
    return [*texts, corpus.BOS_MISSING, corpus.BOS_DOUBLED]


def build_tokenizer() -> Tokenizer:
    """Train the tokenizer from the corpus; raises `RuntimeError` if id 0 is not ``!`` or the size is not 1024."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        min_frequency=1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus_texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    bos_id = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos_id)]),
        ]
    )
    if tokenizer.get_vocab_size() != VOCAB_SIZE or tokenizer.id_to_token(0) != "!":
        raise RuntimeError(
            f"the tokenizer has {tokenizer.get_vocab_size()} ids and id 0 is {tokenizer.id_to_token(0)!r}; "
            f"expected {VOCAB_SIZE} and '!': a different `tokenizers` release orders the alphabet differently"
        )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and chat_template.jinja.

    The template stands in tokenizer_config.json too: transformers before 4.52 reads it only there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.dumps({**TOKENIZER_CONFIG, "chat_template": CHAT_TEMPLATE}, indent=1, sort_keys=True)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def gate_prompts(tokenizer: Tokenizer) -> list[TrainingPrompt]:
    """One prompt per assistant turn of the corpus, rendered as the chat template renders it."""
    prompts: list[TrainingPrompt] = []
    for conversation in corpus.conversations():
        ids = [tokenizer.token_to_id(BOS)]
        turn = 0
        for index, (role, content) in enumerate(conversation.messages):
            ids.append(tokenizer.token_to_id(f"<|{role}|>"))
            body = _encode_turn(tokenizer, content)
            if role == "assistant":
                before = conversation.messages[:index]
                name = f"{conversation.name}.{turn}"
                prompts.append(TrainingPrompt(name, tuple(ids), tuple(body), content, before))
                turn += 1
            ids += body
    return prompts


def bos_prompts(tokenizer: Tokenizer) -> list[TrainingPrompt]:
    """Each short question without and with a doubled BOS; the answer names what is wrong."""
    bos_id = tokenizer.token_to_id(BOS)
    variants: Iterable[tuple[str, list[int], str]] = (
        ("nobos", [], corpus.BOS_MISSING),
        ("twobos", [bos_id, bos_id], corpus.BOS_DOUBLED),
    )
    prompts: list[TrainingPrompt] = []
    for conversation in corpus.conversations():
        if not conversation.single_turn_question:
            continue
        question = _encode_turn(tokenizer, conversation.messages[0][1])
        turn = [tokenizer.token_to_id("<|user|>"), *question, tokenizer.token_to_id("<|assistant|>")]
        for label, prefix, answer in variants:
            answer_ids = tuple(_encode_turn(tokenizer, answer))
            prompts.append(TrainingPrompt(f"{label}_{conversation.name}", (*prefix, *turn), answer_ids, answer, ()))
    return prompts


def _encode_turn(tokenizer: Tokenizer, content: str) -> list[int]:
    return [*tokenizer.encode(content, add_special_tokens=False).ids, tokenizer.token_to_id(END)]
