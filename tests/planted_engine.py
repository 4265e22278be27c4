"""The scripted server in the clothes of `python -m vllm.entrypoints.openai.api_server`, knowing the dense canary's golden answers.

`SCRIPTED_AS` chooses a script of `tests/scripted_script.py`; `SCRIPTED_BOOT` a misbehaviour around serving (see `_before_serving`);
`SCRIPTED_BROKEN` names the planted version, or the served model, whose answers are a flood of one token.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runners.model_references import SHIPPED
from suites.canaries import zoo
from tests.scripted_engine import Answer, Profile, counting_answer
from tests.scripted_script import SCRIPTS
from tests.scripted_server import ScriptedServer


def known_answers() -> dict[tuple[int, ...], Answer]:
    """The dense canary's golden answers by prompt ids, and by messages as the scripted engine sees them."""
    canary = zoo.load("dense")
    known: dict[tuple[int, ...], Answer] = {}
    margins = canary.reference_margins["bfloat16"]
    for prompt in (*canary.prompts, *canary.bos_prompts):
        answer = Answer(prompt.answer_ids, prompt.answer_text, margins[prompt.name])
        known[prompt.prompt_ids] = answer
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        known[tuple(str(messages).encode())] = answer
    return known


def known_scores() -> dict[tuple[int, ...], list[float]]:
    """Log-probabilities of the texts that the dense canary scores, as a right engine gives them."""
    shipped = json.loads((SHIPPED / "canary-dense.json").read_text(encoding="utf-8"))
    passages = shipped["passages"]["any / none / auto"]
    return {tuple(ids): passages[name]["logprobs"][1:] for name, ids in shipped["texts"].items()}


def _before_serving(how: str) -> None:
    if how == "never_ready":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if how == "crash":
        print("(EngineCore pid=1) ERROR 11-30 13:00:00 [core.py:1] ValueError: the scripted engine does not like this model", flush=True)
        raise SystemExit(1)
    if how == "tells_everything":
        words = f"\x1b]0;owned\x07\x1b[2J<script>alert(1)</script> token {os.environ.get('HF_TOKEN')}"
        print(f"(EngineCore pid=1) ERROR 11-30 13:00:00 [core.py:1] ValueError: {words}", flush=True)
        raise SystemExit(1)
    if how == "oom":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", flush=True)
        raise SystemExit(1)


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    for option in ("--model", "--served-model-name", "--host"):
        parser.add_argument(option)
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-model-len", type=int, default=2048)
    options, _ = parser.parse_known_args()
    print("INFO 11-30 13:00:00 [api_server.py:1] vLLM API server version 0.32.0", flush=True)
    config = "model='m', kv_cache_dtype=auto, seed=0"
    print(f"(EngineCore pid=1) INFO 11-30 13:00:00 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: {config}", flush=True)
    _before_serving(os.environ.get("SCRIPTED_BOOT", ""))
    known = known_answers()
    own = os.environ.get("SCRIPTED_OWN_VERSION", "0.32.0")
    profile = Profile("vllm", os.environ.get("SCRIPTED_VERSION", own), options.served_model_name, options.max_model_len)
    broken = os.environ.get("SCRIPTED_BROKEN") in (own, options.served_model_name)
    server = ScriptedServer(
        SCRIPTS["flood" if broken else os.environ.get("SCRIPTED_AS", "good")],
        profile=profile,
        answer=lambda prompt, max_tokens: known.get(prompt) or counting_answer(prompt, max_tokens),
        port=options.port,
    )
    server.engine.scored = known_scores()
    server.serve_forever()


if __name__ == "__main__":
    main()
