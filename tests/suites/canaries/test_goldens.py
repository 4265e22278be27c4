"""The goldens of every canary are complete and consistent with its corpus, its config and its own margins.

That a model gives them is checked elsewhere, by decoding with a real engine; here everything that needs no model is.
"""

import json
from itertools import groupby

import numpy as np
import pytest

from suites.canaries import corpus, zoo
from suites.canaries.formats import Source, bfloat16_tensors
from suites.canaries.packed_file import EXPONENTS_SUFFIX, RawMatrices, other_tensors, packed_matrices, packed_tensors
from suites.canaries.tensorfile import read_tensors
from suites.canaries.ugrid import unpack


@pytest.fixture(scope="module", params=tuple(zoo.MANIFEST_SHA256))
def canary(request: pytest.FixtureRequest) -> zoo.Canary:
    return zoo.load(request.param)


def tracked(canary: zoo.Canary, file: str) -> bytes:
    data = zoo.tracked_file(canary.name, file)
    assert data is not None
    return data


@pytest.fixture(scope="module")
def vocabulary(canary: zoo.Canary) -> dict[str, int]:
    tokenizer = json.loads(tracked(canary, "tokenizer.json"))
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return {**tokenizer["model"]["vocab"], **special}


def decode(ids: tuple[int, ...], vocabulary: dict[str, int]) -> str:
    """Byte-level BPE, without the tokenizers library: printable stand-ins map back to bytes (the GPT-2 table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    stand_in = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    token_of = {token_id: token for token, token_id in vocabulary.items()}
    return bytes(stand_in[character] for token_id in ids for character in token_of[token_id]).decode("utf-8")


def render(ids: tuple[int, ...], vocabulary: dict[str, int]) -> str:
    """The ids as text, special tokens spelled out."""
    special = {token_id: token for token, token_id in vocabulary.items() if token.startswith("<|")}
    runs = groupby(ids, key=lambda token_id: token_id in special)
    return "".join(
        "".join(special[token_id] for token_id in run) if is_special else decode(tuple(run), vocabulary) for is_special, run in runs
    )


def test_there_are_37_gate_and_52_bos_prompts_with_unique_names_less_the_dropped_ones(canary: zoo.Canary) -> None:
    names = [prompt.name for prompt in (*canary.prompts, *canary.bos_prompts)]
    assert len({*names, *canary.dropped}) == len(names) + len(canary.dropped) == 37 + 52
    assert canary.dropped == ()


def test_id_0_is_an_exclamation_mark_and_special_tokens_come_last(vocabulary: dict[str, int]) -> None:
    assert vocabulary["!"] == 0
    assert len(vocabulary) == 1024
    assert {token for token, token_id in vocabulary.items() if token_id >= 1018} == {
        "<|pad|>",
        "<|bos|>",
        "<|end|>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
    }


def test_every_answer_ends_with_its_only_end_of_sequence_id(canary: zoo.Canary) -> None:
    for prompt in (*canary.prompts, *canary.bos_prompts):
        assert prompt.answer_ids.index(canary.eos_token_id) == len(prompt.answer_ids) - 1, prompt.name


def test_answer_ids_spell_the_answer_text(canary: zoo.Canary, vocabulary: dict[str, int]) -> None:
    for prompt in (*canary.prompts, *canary.bos_prompts):
        assert decode(prompt.answer_ids[:-1], vocabulary) == prompt.answer_text, prompt.name


def test_answers_are_those_of_the_corpus(canary: zoo.Canary) -> None:
    turns = [
        (f"{conversation.name}.{turn}", text)
        for conversation in corpus.conversations()
        for turn, text in enumerate(content for role, content in conversation.messages if role == "assistant")
    ]
    assert [(prompt.name, prompt.answer_text) for prompt in canary.prompts] == turns
    assert {prompt.answer_text for prompt in canary.bos_prompts} == {corpus.BOS_MISSING, corpus.BOS_DOUBLED}


def test_prompt_ids_are_what_the_chat_template_renders(canary: zoo.Canary, vocabulary: dict[str, int]) -> None:
    for prompt in canary.prompts:
        turns = "".join(f"<|{role}|>{content}<|end|>" for role, content in prompt.messages)
        assert render(prompt.prompt_ids, vocabulary) == f"<|bos|>{turns}<|assistant|>", prompt.name


def test_bos_prompts_begin_with_no_bos_or_two(canary: zoo.Canary, vocabulary: dict[str, int]) -> None:
    bos = vocabulary["<|bos|>"]
    questions = {prompt.prompt_ids[1:]: prompt.name for prompt in canary.prompts}
    for prompt in canary.bos_prompts:
        count = 2 if prompt.name.startswith("twobos_") else 0
        assert prompt.prompt_ids[:count] == (bos,) * count
        assert questions[prompt.prompt_ids[count:]].startswith(prompt.name.split("_")[1] + ".")


def test_recitation_and_needles_reach_1500_tokens_of_context(canary: zoo.Canary) -> None:
    lengths = {p.name: len(p.prompt_ids) + len(p.answer_ids) for p in canary.prompts}
    far = {name: length for name, length in lengths.items() if name.startswith(("recite", "n_"))}
    assert len(far) == 4
    assert min(far.values()) >= 1500
    assert max(lengths.values()) <= canary.max_context


def test_needles_differ_in_one_token_more_than_1400_before_the_answer(canary: zoo.Canary) -> None:
    needles = [prompt.prompt_ids for prompt in canary.prompts if prompt.name.startswith("n_")]
    assert len({len(ids) for ids in needles}) == 1
    differing = [i for i in range(len(needles[0])) if len({ids[i] for ids in needles}) > 1]
    assert len(differing) == 1
    assert len(needles[0]) - differing[0] > 1400


def test_gate_decodes_at_most_1500_tokens(canary: zoo.Canary) -> None:
    assert sum(len(prompt.answer_ids) for prompt in canary.prompts) <= 1500


def test_every_answer_token_has_a_reference_margin_far_from_zero(canary: zoo.Canary) -> None:
    assert set(canary.reference_margins) == {"bfloat16", "float32"}
    for per_prompt in canary.reference_margins.values():
        for prompt in (*canary.prompts, *canary.bos_prompts):
            assert len(per_prompt[prompt.name]) == len(prompt.answer_ids)
            assert min(per_prompt[prompt.name]) >= 8, prompt.name


def test_training_record_says_where_and_how_long_and_that_nothing_was_wrong(canary: zoo.Canary) -> None:
    record = json.loads(tracked(canary, "training.json"))
    assert (record["gate"]["wrong"], record["bos"]["wrong"]) == (0, 0)
    assert record["hardware"] and record["train_s"] > 0 and record["date"]
    has_experts = "num_experts" in json.loads(tracked(canary, "config.json"))
    assert [phase["name"] for phase in record["phases"]] == ["plain", "robust", "polish", *(["experts"] if has_experts else [])]


def test_scales_of_all_matrices_fit_one_fp8_range(canary: zoo.Canary) -> None:
    """NVFP4 stores block scales in e4m3 under one global scale: powers of two from 2**-9 to 2**8."""
    packed = read_tensors(tracked(canary, zoo.PACKED_WEIGHTS))
    exponents = [t.array for name, t in packed.items() if name.endswith(EXPONENTS_SUFFIX)]
    assert len(exponents) >= 25
    assert max(e.max() for e in exponents) - min(e.min() for e in exponents) <= 15


def test_packing_the_expanded_weights_gives_the_packed_file_again(canary: zoo.Canary) -> None:
    packed = read_tensors(tracked(canary, zoo.PACKED_WEIGHTS))
    matrices: RawMatrices = {name: unpack(form) for name, form in packed_matrices(packed).items()}
    again = packed_tensors(matrices, other_tensors(packed))
    assert set(again) == set(packed)
    for name, tensor in packed.items():
        assert np.array_equal(again[name].array, tensor.array), name


def test_bf16_checkpoint_has_the_parameters_of_the_packed_file(canary: zoo.Canary) -> None:
    packed = read_tensors(tracked(canary, zoo.PACKED_WEIGHTS))
    model_type = json.loads(tracked(canary, zoo.CONFIG))["model_type"]
    expanded = bfloat16_tensors(Source(model_type, packed, {}))
    on_grid = sum(2 * form.codes.size for form in packed_matrices(packed).values())
    assert sum(t.array.size for t in expanded.values()) == on_grid + sum(t.array.size for t in other_tensors(packed).values())
