"""`python -m suites.references.measure [CANARY ...]`: write the scores of the fixed texts for every numeric path.

Trap: a reference taken from an engine repeats its faults. Rule: log-probabilities in float32 arithmetic with exactly the roundings of the
path; honest computations of the same path in bfloat16, each rounded a little otherwise, give the floor of each text.

Second trap: where two experts are nearly as likely, one rounding decides which of them a token gets, and its score jumps by nats though
nothing is wrong (seen: SGLang 0.5.23, canary-moe, one token by 3.6 nats, its router's gap 0.005 logits where rounding moves it by 0.01).
Rule: such tokens are named `on_edge` and not compared; a text that has next to none beside them has no reference on that path. The same
for a later token that moves with them (seen: SGLang 0.5.12.post1 and 0.5.14 on an H200, one token by 0.8 nats): each such choice is turned
once, and what it moves further than rounding does is on the edge as well.

Needs the `canary` dependency group (torch, transformers).
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from suites.canaries import zoo
from suites.canaries.emulation import KV_DTYPES, install
from suites.canaries.measure_paths import GPT_OSS_WEIGHT_FORMATS_OF, WEIGHT_FORMATS_OF, round_otherwise
from suites.canaries.reproduce import load_model
from suites.passages import canary_passages

DIGITS = 4
ROUNDINGS = 8
"""How many computations in bfloat16 give the floor."""
EDGE = 6.0
"""A token is on the edge if some router's gap between the last expert chosen and the first refused is below this many times what rounding
moves it by (standard deviation)."""
FEWEST = 8
"""A text with fewer tokens to compare has no reference."""
LONG = 256
"""Tokens from which a text's choices are not turned one by one: it takes minutes, and its floor is over a thousand tokens already."""
HERE = Path(__file__).parent


def measure(name: str, scratch: Path) -> dict[str, Any]:
    """The content of the reference file of a canary."""
    canary = zoo.load(name)
    checkpoint = zoo.materialise(name, "bf16", scratch)
    calibration = zoo.tracked_file(name, "calibration.json")
    scales = json.loads(calibration)["input_scales"] if calibration is not None else {}
    model_type = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))["model_type"]
    texts = dict(canary_passages(canary))
    formats = GPT_OSS_WEIGHT_FORMATS_OF if model_type == "gpt_oss" else WEIGHT_FORMATS_OF
    passages = {
        f"any / {activation} / {kv}": _measured(checkpoint, texts, (activation, kv), scales) for activation in formats for kv in KV_DTYPES
    }
    made = {
        "run_id": "none",
        "made_at": datetime.now(UTC).date().isoformat(),
        "engine": "transformers",
        "engine_version": version("transformers"),
        "backend": "float32 arithmetic with the roundings of the path",
        "node": "CPU",
        "kernels": {},
    }
    key = {"model": f"canary/{name}", "revision": canary.sha256[zoo.PACKED_WEIGHTS][:16], "template": None, "prompts": "canary"}
    return {"format": 1, "key": key, "made": [made], "answers": {}, "texts": texts, "passages": passages}


class _Computed:
    """One computation of a model on a path: log-probabilities of a text, and the routers' gaps beside them."""

    def __init__(self, checkpoint: Path, dtype: str, path: tuple[str, str], scales: dict[str, float]) -> None:
        self.model = load_model(checkpoint, dtype)
        install(self.model, *path, scales)
        self._routed: list[tuple[Tensor, int]] = []
        self._turned: tuple[int, int] | None = None
        for name, module in self.model.named_modules():
            if name.endswith((".mlp.gate", ".mlp.router")):
                module.register_forward_hook(self._after_router)

    def score(self, ids: tuple[int, ...], turned: tuple[int, int] | None = None) -> tuple[list[float], list[tuple[Tensor, int]]]:
        """Log-probability of every token but the first, nats; per router its logits ``[tokens, experts]`` and how many it chooses.

        `turned` (router, token): there the first expert refused takes the place of the last one chosen.
        """
        self._routed.clear()
        self._turned = turned
        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].float()
        chosen = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))
        return [float(value) for value in chosen[:, 0]], list(self._routed)

    def _after_router(self, _module: Any, _args: Any, output: tuple[Tensor, Tensor, Tensor]) -> Any:
        logits, weights, indices = output
        flat = logits.float().flatten(0, -2)
        self._routed.append((flat, indices.shape[-1]))
        if self._turned is None or self._turned[0] != len(self._routed) - 1:
            return None
        at = self._turned[1]
        order = flat[at].topk(indices.shape[-1] + 1).indices
        other = indices.clone()
        row = other.view(-1, indices.shape[-1])[at]
        row[row == order[-2]] = order[-1]
        return logits, weights, other


def _measured(checkpoint: Path, texts: dict[str, tuple[int, ...]], path: tuple[str, str], scales: dict[str, float]) -> dict[str, Any]:
    exact = _Computed(checkpoint, "float32", path, scales)
    wanted = {name: exact.score(ids) for name, ids in texts.items()}
    computed: dict[str, list[tuple[list[float], list[tuple[Tensor, int]]]]] = {name: [] for name in texts}
    for seed in range(ROUNDINGS):
        rounded = _Computed(checkpoint, "bfloat16", path, scales)
        round_otherwise(rounded.model, seed)
        for name, ids in texts.items():
            computed[name].append(rounded.score(ids))
    passages = {name: _passage(wanted[name], computed[name], partial(exact.score, ids)) for name, ids in texts.items()}
    return {name: passage for name, passage in passages.items() if passage is not None}


def _on_edge(exact: list[tuple[Tensor, int]], computed: list[list[tuple[Tensor, int]]]) -> set[tuple[int, int]]:
    """(router, token) of every choice that rounding may turn."""
    found: set[tuple[int, int]] = set()
    for router, (logits, chosen) in enumerate(exact):
        values, experts = logits.topk(chosen + 1, dim=-1)
        gap = values[:, -2] - values[:, -1]
        others = [other[router][0].gather(-1, experts) for other in computed]
        moved = torch.stack([other[:, -2] - other[:, -1] - gap for other in others]).abs()
        noise = moved.median() / 0.6745  # of a normal distribution; a token routed otherwise before this one is no rounding
        found |= {(router, int(at)) for at in torch.nonzero(gap < EDGE * noise)[:, 0]}
    return found


def _passage(
    exact: tuple[list[float], list[tuple[Tensor, int]]],
    computed: list[tuple[list[float], list[tuple[Tensor, int]]]],
    turn: Callable[[tuple[int, int]], tuple[list[float], list[tuple[Tensor, int]]]],
) -> dict[str, Any] | None:
    """`turn` gives the scores with one (router, token) turned. A score is that of the token after the routed one."""
    wanted, routed = exact
    choices = _on_edge(routed, [routers for _, routers in computed])
    edge = {at + 1 for _, at in choices}
    compared = [at for at in range(len(wanted)) if at + 1 not in edge]
    floor = max((abs(scores[at] - wanted[at]) for scores, _ in computed for at in compared), default=0.0)
    for choice in sorted(choices) if len(wanted) < LONG else ():
        turned, _ = turn(choice)
        edge |= {at + 1 for at in compared if abs(turned[at] - wanted[at]) > floor}
    compared = [at for at in compared if at + 1 not in edge]
    if len(compared) < FEWEST:
        return None
    drifts = [[abs(scores[at] - wanted[at]) for at in compared] for scores, _ in computed]
    return {
        "logprobs": [None, *(round(value, DIGITS) for value in wanted)],
        "floor_rms": round(max((sum(d * d for d in drift) / len(drift)) ** 0.5 for drift in drifts), DIGITS),
        "floor_max": round(max(max(drift) for drift in drifts), DIGITS),
        **({"on_edge": sorted(at for at in edge if at <= len(wanted))} if edge else {}),
    }


def main(names: list[str]) -> None:
    """Write one file per canary beside this module."""
    with tempfile.TemporaryDirectory(prefix="sparkproof-references-") as scratch:
        for name in names or list(zoo.MANIFEST_SHA256):
            text = json.dumps(measure(name, Path(scratch)), separators=(",", ":"))
            (HERE / f"canary-{name}.json").write_text(text.replace('"any / ', '\n"any / ') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
