"""The scripted engine as an executable that misbehaves as `CHAOS` (a `Misbehaviour` as JSON) says, in the clothes of vLLM's API server.

It works in the boot's own folder, as every server does, and so knows from `run.json` which phase the runner is in.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.chaos.schedules import Misbehaviour
from tests.planted_engine import known_answers, known_scores
from tests.scripted_engine import Profile, counting_answer
from tests.scripted_script import SCRIPTS
from tests.scripted_server import ScriptedServer, _send

_ORPHAN = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "time.sleep(900)\n"  # bounded, should nobody end it
)
_WAIT_S = 900.0
_GIB = 1 << 30


class MisbehavingServer(ScriptedServer):
    """Answers like the scripted server until its act is due."""

    def __init__(self, told: Misbehaviour, **more: Any) -> None:
        super().__init__(SCRIPTS["good"], **more)
        self._told, self._seen, self._acts = told, 0, False

    async def _respond(self, method: str, path: str, body: Any, writer: asyncio.StreamWriter) -> bool:
        if self._due():
            act = getattr(self, f"_{self._told.act}")
            answered: bool | None = await act(path, body, writer)
            if answered is not None:
                return answered
        return await super()._respond(method, path, body, writer)

    def _due(self) -> bool:
        if not self._acts and self._told.act and _phase() == self._told.phase:
            self._acts = self._seen >= self._told.after
            self._seen += 1
        return self._acts

    async def _exit(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        os._exit(self._told.code)

    async def _signal(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        os.kill(os.getpid(), self._told.code)
        return None

    async def _http_500(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        await _send(writer, 500, {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}})
        return True

    async def _http_500_tokens(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        return await self._http_500(path, body, writer) if body is not None else None

    async def _half_open(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        await self._stop.wait()
        return False

    async def _garbage(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        writer.write(b"\x00\xff\xfeHTTP/9.9 maybe\r\n\r\n" + bytes(range(256)))
        return False

    async def _drops(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        writer.transport.abort()
        return False

    async def _stops_mid_stream(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        self.engine.script = dataclasses.replace(self.engine.script, hang_after=3)
        return None

    async def _gigabyte(self, path: str, body: Any, writer: asyncio.StreamWriter) -> bool | None:
        """Writes beside its answers, which become slow enough for somebody to look at the log meanwhile."""
        if not self.engine.script.step_s > 1:
            self.engine.script = dataclasses.replace(self.engine.script, step_s=1.5, first_delay_s=1.5)
            threading.Thread(target=_write_noise, args=(self._told.act,), daemon=True).start()
        await asyncio.sleep(1.0)
        return None

    _gigabyte_no_newline = _gigabyte


def _phase() -> str:
    try:
        return str(json.loads(Path("run.json").read_text(encoding="utf-8"))["run"]["phase"])
    except (OSError, ValueError):
        return ""


def _write_noise(kind: str) -> None:
    rng = random.Random(kind)
    pieces = {
        "gigabyte": (
            b"WARNING 11-30 13:00:00 [core.py:1] the same line, as an error loop writes it\n" * 50_000,
            1.2 * _GIB,
        ),
        "gigabyte_no_newline": (b"x" * (4 << 20), 1.2 * _GIB),
        "no_newline": (b"y" * (1 << 20), 24 << 20),
        "invalid_utf8": (rng.randbytes(1 << 16) + b"\xed\xa0\x80\xc0\xaf\n", 1 << 20),
        "escapes": (b"\x1b]0;owned\x07\x1b[2J\x1b[31m<script>alert(1)</script> [bold]markup[/bold]\r\n", 4096),
        "zeros": (bytes(1 << 16), 1 << 20),
    }
    piece, size = pieces[kind]
    for _ in range(max(1, int(size) // len(piece))):
        os.write(1, piece)


def _leave_orphans(count: int) -> None:
    for _ in range(count):
        subprocess.run([sys.executable, "-S", "-E", "-c", _ORPHAN], stdin=subprocess.DEVNULL, check=True)


def _leak(size: int) -> None:
    name = Path("/dev/shm") / f"chaos-{os.environ['CHAOS_WORLD']}"
    with name.open("wb") as file:
        for _ in range(size >> 24):
            file.write(b"\xaa" * (1 << 24))


def _before_serving(told: Misbehaviour, port: int) -> None:
    if told.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if told.noise:
        _write_noise(told.noise)
    _leave_orphans(told.orphans)
    if told.leak_bytes:
        _leak(told.leak_bytes)
    time.sleep(told.delay_s)
    if told.boot == "silent":
        time.sleep(_WAIT_S)
    if told.boot == "exit":
        print("(EngineCore pid=1) ERROR 11-30 13:00:00 [core.py:1] ValueError: the scripted engine does not like this model", flush=True)
        os._exit(told.code)
    if told.boot == "signal":
        os.kill(os.getpid(), told.code)
    if told.boot == "out_of_memory":
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", flush=True)
        os._exit(1)
    if told.boot.startswith("loses_port"):
        _lose(port, stays=told.boot.endswith("stays"))


def _lose(port: int, *, stays: bool) -> None:
    """Listen only after somebody else does, which fails as it does for every engine."""
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until and not Path("port_is_taken").exists():
        time.sleep(0.02)
    print(f"ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', {port}): address already in use", flush=True)
    if stays:
        time.sleep(_WAIT_S)
    os._exit(1)


def main() -> None:
    """Serve until ended."""
    told = Misbehaviour(**json.loads(os.environ["CHAOS"]))
    parser = argparse.ArgumentParser()
    for option in ("--model", "--served-model-name", "--host"):
        parser.add_argument(option)
    parser.add_argument("--port", type=int)
    parser.add_argument("--max-model-len", type=int, default=2048)
    options, _ = parser.parse_known_args()
    version = os.environ["SCRIPTED_OWN_VERSION"]
    print(f"INFO 11-30 13:00:00 [api_server.py:1] vLLM API server version {version}", flush=True)
    config = "model='m', kv_cache_dtype=auto, seed=0"
    print(
        f"(EngineCore pid=1) INFO 11-30 13:00:00 [core.py:133] Initializing a V1 LLM engine (v{version}) with config: {config}", flush=True
    )
    _before_serving(told, options.port)
    known = known_answers()
    server = MisbehavingServer(
        told,
        profile=Profile("vllm", version, options.served_model_name, options.max_model_len),
        answer=lambda prompt, max_tokens: known.get(prompt) or counting_answer(prompt, max_tokens),
        port=options.port,
    )
    server.engine.scored = known_scores()
    server.serve_forever()


if __name__ == "__main__":
    main()
