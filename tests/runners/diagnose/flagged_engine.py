"""The scripted engine in vLLM's clothes with a fault that depends on its flags, so that a control boot can switch it off.

`FLAGGED_FAULT` names the fault (see `FAULTS`). The engine says in its log which kernels it runs, as vLLM 0.32.0 does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from suites.canaries import zoo
from tests.planted_engine import known_scores
from tests.scripted_engine import Answer, Profile, counting_answer
from tests.scripted_server import ScriptedServer

KERNELS = {"--moe-backend": "flashinfer_cutlass", "--attention-backend": "FLASHINFER", "--kv-cache-dtype": "auto"}
"""What runs when nothing is asked for."""
_BATCH = 4
"""More connections than this are a batch."""


class Flags:
    """The command line, last value first."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)

    def value(self, flag: str) -> str:
        found = [self.argv[i + 1] for i, part in enumerate(self.argv[:-1]) if part == flag]
        return found[-1] if found else KERNELS.get(flag, "")

    def has(self, flag: str) -> bool:
        return flag in self.argv


def _boots_before(folder: Path) -> int:
    """How many boots found this folder before; counts this one."""
    folder.mkdir(exist_ok=True)
    before = len(list(folder.iterdir()))
    (folder / str(before)).touch()
    return before


def faults(flags: Flags, connections: Callable[[], int], version: str) -> dict[str, Callable[[], bool]]:
    """Name of a fault to whether it shows now."""
    first = _boots_before(Path(os.environ["FLAGGED_STATE"])) == 0 if "FLAGGED_STATE" in os.environ else False
    return {
        "none": lambda: False,
        "always": lambda: True,
        "moe": lambda: flags.value("--moe-backend") == "flashinfer_cutlass",
        "attention": lambda: flags.value("--attention-backend") == "FLASHINFER",
        "graphs": lambda: not flags.has("--enforce-eager"),
        "kv_fp8": lambda: flags.value("--kv-cache-dtype") == "fp8",
        "prefix_cache": lambda: not flags.has("--no-enable-prefix-caching"),
        "batch": lambda: connections() > _BATCH and flags.value("--max-num-seqs") != "1",
        "newer": lambda: version == "0.32.0",
        "first_boot_in_batches": lambda: first and connections() > _BATCH,
    }


def _known(bos_missing: bool) -> dict[tuple[int, ...], Answer]:
    canary = zoo.load("dense")
    margins = canary.reference_margins["bfloat16"]
    blamed = next(p for p in canary.bos_prompts if p.name.startswith("nobos"))
    known: dict[tuple[int, ...], Answer] = {}
    for prompt in (*canary.prompts, *canary.bos_prompts):
        said = blamed if bos_missing and prompt in canary.prompts else prompt
        answer = Answer(said.answer_ids, said.answer_text, margins.get(said.name, (16.0,) * len(said.answer_ids)))
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        known[prompt.prompt_ids] = known[tuple(str(messages).encode())] = answer
    return known


def say_kernels(flags: Flags, version: str) -> None:
    """What vLLM logs of the kernels that it chose."""
    attention, moe = flags.value("--attention-backend"), flags.value("--moe-backend").upper()
    print(f"INFO 11-30 13:00:00 [api_server.py:1] vLLM API server version {version}")
    print(f"INFO 11-30 13:00:00 [cuda.py:1] Using AttentionBackendEnum.{attention} backend.")
    print(f"INFO 11-30 13:00:00 [nvfp4.py:1] Using '{moe}' NvFp4 MoE backend out of potential backends: ['{moe}'].", flush=True)


def main() -> None:
    """Serve until ended."""
    flags = Flags(sys.argv[1:])
    version, fault = os.environ["FLAGGED_VERSION"], os.environ.get("FLAGGED_FAULT", "none")
    say_kernels(flags, version)
    known = _known(fault == "bos_missing")
    server: ScriptedServer

    def answer(prompt: tuple[int, ...], max_tokens: int) -> Answer:
        right = known.get(prompt) or counting_answer(prompt, max_tokens)
        if fault == "bos_missing" or len(right.token_ids) < 3 or not shows():
            return right
        ids = (*right.token_ids[:2], right.token_ids[2] + 1, *right.token_ids[3:])
        return Answer(ids, right.text.replace("e", "x"), right.margins, right.finish_reason)

    profile = Profile("vllm", version, flags.value("--served-model-name"), 2048)
    server = ScriptedServer(profile=profile, answer=answer, port=int(flags.value("--port")))
    shows = faults(flags, lambda: len(server._open), version).get(fault, lambda: False)
    server.engine.scored = known_scores()
    server.serve_forever()


if __name__ == "__main__":
    main()
