"""Reproduce a canary's goldens with transformers: ``python reproduce.py CHECKPOINT_DIR GOLDEN_JSON [--dtype bfloat16]``.

The trap: goldens that only the machine which trained the canary can reproduce. The rule: any environment with torch and
transformers (an engine's environment has both) must be able to check them, so this file stands alone: it imports nothing
of this project and reads nothing but the two paths it is given.

Every gate prompt and every BOS prompt is decoded greedily, token by token with a KV cache, in batches of prompts of one
length (no padding: padding is one more thing that could be wrong). Prints one JSON object; exit status 1 if a single
token differs from the golden, 0 if none does.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

BATCH_LIMIT = 16
SHOWN_TOKENS = 24


def load_model(checkpoint: Path, dtype: str) -> Any:
    """The model in ``float32`` or ``bfloat16``, on the CPU. transformers 5 renamed the argument ``torch_dtype``."""
    keyword = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, local_files_only=True, **{keyword: getattr(torch, dtype)})
    return model.eval()


def batches(prompts: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Prompts of equal length together, at most `BATCH_LIMIT` of them."""
    by_length: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for prompt in prompts:
        by_length[len(prompt["prompt_ids"])].append(prompt)
    for group in by_length.values():
        for start in range(0, len(group), BATCH_LIMIT):
            yield group[start : start + BATCH_LIMIT]


def decode_greedily(model: Any, batch: list[dict[str, Any]]) -> list[tuple[list[int], list[float]]]:
    """(ids, margins) per prompt, as many tokens as its golden answer has, or fewer if end-of-sequence comes early.

    A margin is the highest logit minus the second highest, in logits (equal to the difference of log-probabilities).
    """
    end_id = model.config.eos_token_id
    steps = max(len(prompt["answer_ids"]) for prompt in batch)
    ids: list[list[int]] = [[] for _ in batch]
    margins: list[list[float]] = [[] for _ in batch]
    tokens = torch.tensor([prompt["prompt_ids"] for prompt in batch])
    cache = None
    for _ in range(steps):
        with torch.inference_mode():
            output = model(input_ids=tokens, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits = output.logits[:, -1].float()
        top = logits.topk(2, dim=-1).values
        chosen = logits.argmax(-1)
        for row, token in enumerate(chosen.tolist()):
            if not ids[row] or ids[row][-1] != end_id:
                ids[row].append(token)
                margins[row].append((top[row, 0] - top[row, 1]).item())
        if all(row[-1] == end_id for row in ids):
            break
        tokens = chosen[:, None]
    lengths = [len(prompt["answer_ids"]) for prompt in batch]
    return [(i[:n], m[:n]) for i, m, n in zip(ids, margins, lengths, strict=True)]


def decode_all(model: Any, golden: dict[str, Any]) -> dict[str, tuple[list[int], list[float]]]:
    """Prompt name to (ids, margins), for every gate and BOS prompt of golden.json."""
    results: dict[str, tuple[list[int], list[float]]] = {}
    for batch in batches([*golden["prompts"], *golden["bos_prompts"]]):
        for prompt, decoded in zip(batch, decode_greedily(model, batch), strict=True):
            results[prompt["name"]] = decoded
    return results


def compare(golden: dict[str, Any], decoded: dict[str, tuple[list[int], list[float]]]) -> dict[str, Any]:
    """Mismatches, and the smallest margin over all tokens (None if one of them is not a number)."""
    mismatches = []
    smallest: tuple[float, str] = (math.inf, "")
    not_a_number = 0
    for prompt in [*golden["prompts"], *golden["bos_prompts"]]:
        expected = prompt["answer_ids"]
        ids, margins = decoded[prompt["name"]]
        if ids != expected:
            same = next((i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), len(ids))
            mismatches.append(
                {
                    "name": prompt["name"],
                    "first_wrong_token": same,
                    "answer_tokens": len(expected),
                    "expected_ids": expected[same : same + SHOWN_TOKENS],
                    "ids": ids[same : same + SHOWN_TOKENS],
                }
            )
        not_a_number += sum(math.isnan(m) for m in margins)
        smallest = min([smallest, *((m, prompt["name"]) for m in margins if not math.isnan(m))])
    return {
        "gate_prompts": len(golden["prompts"]),
        "bos_prompts": len(golden["bos_prompts"]),
        "mismatches": mismatches,
        "nan_margins": not_a_number,
        "min_margin": None if not_a_number else smallest[0],
        "min_margin_prompt": None if not_a_number else smallest[1],
    }


def main() -> int:
    """0 if every token is the golden one, 1 if not."""
    parser = argparse.ArgumentParser(description="Check a canary checkpoint against its goldens with transformers.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("golden", type=Path)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    arguments = parser.parse_args()
    golden = json.loads(arguments.golden.read_text(encoding="utf-8"))
    started = time.monotonic()
    report = compare(golden, decode_all(load_model(arguments.checkpoint, arguments.dtype), golden))
    report["dtype"] = arguments.dtype
    report["versions"] = {"torch": torch.__version__, "transformers": transformers.__version__}
    report["wall_s"] = round(time.monotonic() - started, 1)
    sys.stdout.write(json.dumps(report, indent=1, allow_nan=False) + "\n")
    return 1 if report["mismatches"] or report["nan_margins"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
