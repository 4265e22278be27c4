"""What two public checks say of the same answers: each runs its own code in its own environment on answers that were recorded here.

llama-benchy 0.4.0 looks for "paris" in the answer to a question for the capital of France (`client.run_coherence_test`); our corpus has
that question, so its rule is given the canary's answer. infer-check 0.2.6 compares texts with a baseline (`runner._compare`: a similarity
under 0.5 is a failure); its baseline here is a sound pass of the same canary. Neither needs a server for that part.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gate.judge import Pass

CAPITAL = "The capital of France is Paris"
_BENCHY = """
import asyncio, json, sys
from llama_benchy.client import LLMClient
client = LLMClient("http://127.0.0.1:1", "none", "canary")
class Response:
    def __init__(self, text): self.text = text
    async def __aenter__(self): return self
    async def __aexit__(self, *a): return None
    async def json(self): return {"choices": [{"message": {"content": self.text}}]}
class Session:
    def __init__(self, text): self.text = text
    def post(self, *a, **k): return Response(self.text)
out = {}
real, sys.stdout = sys.stdout, open("/dev/null", "w")
for name, texts in json.load(sys.stdin).items():
    out[name] = asyncio.run(client.run_coherence_test(Session(texts["capital"])))
json.dump(out, real)
"""
_INFER_CHECK = """
import json, sys
from infer_check.runner import TestRunner
from infer_check.types import InferenceResult
runner = TestRunner(sys.argv[1])
def result(name, text):
    fields = dict(prompt_id=name, backend_name="b", model_id="m", tokens=text.split(), text=text)
    return InferenceResult(**fields, latency_ms=1.0, tokens_per_second=1.0)
out = {}
data = json.load(sys.stdin)
for case, texts in data["cases"].items():
    base = data["baseline"]
    out[case] = sum(runner._compare(result(n, base[n]), result(n, t)).is_failure for n, t in texts.items() if n in base)
json.dump(out, sys.stdout)
"""


def ask_peers(
    faults: Sequence[Pass], clean: Mapping[str, Pass], benchy: Path, infer_check: Path, scratch: Path
) -> dict[str, dict[str, Any]]:
    """Per case: whether llama-benchy's rule passes, and how many of the answers infer-check calls failures. `clean` is by canary."""
    verdicts: dict[str, dict[str, Any]] = {}
    judged = [one for one in faults if one.texts and one.case.canary in clean]
    capital = {one.case.name: {"capital": _capital(one, clean[one.case.canary])} for one in judged}
    said = _run(benchy, _BENCHY, capital)
    for canary, sound in clean.items():
        cases = {one.case.name: _ordinary(one) for one in judged if one.case.canary == canary}
        failures = _run(infer_check, _INFER_CHECK, {"cases": cases, "baseline": _ordinary(sound)}, str(scratch))
        for name, count in failures.items():
            verdicts[name] = {
                "llama-benchy": "passes" if said[name] else "caught",
                "infer-check": f"caught ({count} of {len(cases[name])})" if count else "passes",
            }
    return verdicts


def _capital(one: Pass, sound: Pass) -> str:
    name = next(n for n, text in sound.texts.items() if text.startswith(CAPITAL))
    return one.texts.get(name, "")


def _ordinary(one: Pass) -> dict[str, str]:
    return {n: t for n, t in one.texts.items() if not n.startswith(("nobos", "twobos"))}


def _run(python: Path, script: str, data: Any, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-c", script, *arguments], input=json.dumps(data), capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the peer ended with code {done.returncode}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
