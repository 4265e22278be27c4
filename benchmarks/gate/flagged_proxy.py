"""A server in the place of vLLM's that answers with a real engine's words, and with a fault that depends on its own flags.

`FLAGGED_UPSTREAM` is the real engine, `FLAGGED_FAULT` one of `tests/runners/diagnose/flagged_engine.py`, of the proxy's BOS faults, or
`chat`. The engine behind it never changes: what a control boot switches off is the fault. Kernels are said in the log as vLLM 0.32.0 says
them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gate.proxy import FAULTS, Corruption, serve, wrong_token
from tests.runners.diagnose.flagged_engine import Flags, faults, say_kernels

CHAT = "chat"


class Flagged(Corruption):
    """One wrong token in every answer while the flags leave the fault on."""

    def __init__(self, fault: str, flags: Flags, version: str) -> None:
        super().__init__(fault if fault in FAULTS else "none")
        self._version, self._company = version, 0
        self._chat_only = fault == CHAT
        self._shows = faults(flags, lambda: self._company, version).get(fault, lambda: self._chat_only)

    def answer(self, path: str, body: Mapping[str, Any], said: Any, company: int) -> Any:
        """See Corruption."""
        self._company = company
        is_chat = path.endswith("/chat/completions")
        if not isinstance(said, dict) or body.get("prompt_logprobs") is not None or (self._chat_only and not is_chat) or not self._shows():
            return said
        return wrong_token(self, path, body, said, company)

    def information(self, path: str, said: Any) -> Any:
        """The version that this server is started as."""
        return {"version": self._version} if path == "/version" else said


def main() -> None:
    """Serve until ended."""
    flags, version = Flags(sys.argv[1:]), os.environ["FLAGGED_VERSION"]
    say_kernels(flags, version)
    corruption = Flagged(os.environ.get("FLAGGED_FAULT", "none"), flags, version)
    asyncio.run(serve(os.environ["FLAGGED_UPSTREAM"], int(flags.value("--port")), corruption))


if __name__ == "__main__":
    main()
