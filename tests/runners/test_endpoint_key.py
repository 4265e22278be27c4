"""An endpoint's API key: it reaches the endpoint, and nothing that is stored or shown, even if the server repeats it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from results.boot_folder import BootSummary, new_run_id
from results.records import CoherenceRecord, NodeRecord, RunRecord
from results.store import Store
from results.vocabulary import Phase
from runners.recorder import Recorder
from runners.server_client import API_KEY_VARIABLE
from tests.planted import REPOSITORY, Planted

KEY = "k3y-that-must-stay-here"
ENVIRONMENT: dict[str, Any] = {API_KEY_VARIABLE: KEY}


@dataclass
class Echo:
    """A server that says the key it was sent in every answer. `models` is its list of models."""

    models: tuple[str, ...] = ("m",)
    url: str = ""
    authorizations: list[str | None] = field(default_factory=list)


@contextmanager
def echoing(echo: Echo) -> Iterator[Echo]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, data: Any) -> None:
            raw = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_GET(self) -> None:
            key = self.headers.get("Authorization")
            echo.authorizations.append(key)
            models = [{"id": name.replace("KEY", str(key))} for name in echo.models]
            self._answer(200, {"data": models} if self.path == "/v1/models" else {"version": key})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._answer(401, {"error": f"no such key: {self.headers.get('Authorization', '').removeprefix('Bearer ')}"})

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    echo.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield echo
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("models", [("m",), ("another-KEY",)])
def test_a_key_that_the_server_repeats_is_neither_stored_nor_shown(tmp_path: Path, models: tuple[str, ...]) -> None:
    planted = Planted(tmp_path, "0.32.0")
    with echoing(Echo(models)) as echo:
        spec = f"vllm==0.32.0@endpoint:{echo.url}"
        done = planted.sparkproof("run", "--engine", spec, "--model", "served:m", "--json", **ENVIRONMENT)
    assert f"Bearer {KEY}" in echo.authorizations, done.stderr
    reason = json.loads(done.stdout)["cells"][0]["reason"]
    assert "[redacted]" in reason
    assert KEY not in done.stdout + done.stderr
    kept = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {"run.json", "sparkproof.duckdb"} <= {p.name for p in kept}, kept
    assert [p for p in kept if KEY.encode() in p.read_bytes()] == []


def test_a_key_that_would_travel_unencrypted_is_refused_before_anything_starts(tmp_path: Path) -> None:
    planted = Planted(tmp_path, "0.32.0")
    spec = "vllm==0.32.0@endpoint:http://spark.invalid:8000"
    done = planted.sparkproof("run", "--engine", spec, "--model", "served:m", **ENVIRONMENT)
    assert (done.returncode, KEY in done.stderr) == (2, False)
    assert "unencrypted" in done.stderr
    assert not planted.home.exists()


def test_a_recorder_keeps_a_secret_out_of_every_text_of_its_rows(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = RunRecord(new_run_id(), "s", "c", "e", "vllm", "1", "endpoint", "r", "b", "n", 1, "2026-11-30T13:05:01+00:00")
    recorder = Recorder(store, BootSummary(run, NodeRecord("n", "node")), conceal=lambda text: text.replace(KEY, "[hidden]"))
    recorder.begin()
    with recorder.phase(Phase.COHERENCE):
        recorder.append([CoherenceRecord(run.run_id, "s", "p", "j", "v", f"said {KEY}", f"{KEY}!")])
        recorder.update(actual={"moe": KEY}, dropped_request_fields=(KEY,), served_model=KEY)
        recorder.warn(f"it said {KEY}")
    content = recorder.folder.read()
    assert (content.of(CoherenceRecord)[0].reason, content.of(CoherenceRecord)[0].text) == ("said [hidden]", "[hidden]!")
    assert content.summary.run.warnings == ("it said [hidden]",)
    assert content.summary.run.actual == {"moe": "[hidden]"}
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]


def test_no_second_place_reads_the_key() -> None:
    users = [p.relative_to(REPOSITORY).as_posix() for p in (REPOSITORY / "runners").rglob("*.py") if "API_KEY_VARIABLE" in p.read_text()]
    assert sorted(users) == ["runners/launchers/endpoint.py", "runners/server_client.py"]
