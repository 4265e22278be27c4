"""The scripted server must itself be trustworthy: what it answers, counts and forgets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from runners.engines.registry import adapter_for
from tests.scripted_engine import Answer, Profile
from tests.scripted_script import SCRIPTS, Script
from tests.scripted_server import ScriptedServer, answers_from

PROGRAM = Path(__file__).parent / "scripted_server.py"


def test_vllm_pages_say_what_the_profile_says() -> None:
    with (
        ScriptedServer(profile=Profile(version="0.17.1", model="tiny", max_model_len=512)) as server,
        httpx.Client(base_url=server.base_url) as http,
    ):
        assert http.get("/health").status_code == 200
        assert http.get("/version").json() == {"version": "0.17.1"}
        assert http.get("/v1/models").json()["data"] == [{"id": "tiny", "object": "model", "max_model_len": 512}]
        assert http.get("/server_info").status_code == 404


def test_sglang_pages_say_what_the_profile_says() -> None:
    with ScriptedServer(profile=Profile("sglang", "0.5.14")) as server, httpx.Client(base_url=server.base_url) as http:
        assert http.get("/health_generate").status_code == 200
        assert http.get("/server_info").json()["version"] == "0.5.14"
        answer = http.post("/generate", json={"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 3}}).json()
        assert answer["output_ids"] == [10, 11, 12]
        assert answer["meta_info"]["output_top_logprobs"][0] == [[-0.001, 10, None], [-16.001, 11, None]]
        assert "sglang:generation_tokens_total" in http.get("/metrics").text


def test_greedy_answer_is_the_one_told_and_is_counted() -> None:
    def answer(prompt: tuple[int, ...], max_tokens: int) -> Answer:
        return Answer((7, 8), "seven eight", (3.0, 4.0))

    with ScriptedServer(answer=answer) as server, httpx.Client(base_url=server.base_url) as http:
        body = {"prompt": [5, 6], "max_tokens": 9, "return_token_ids": True, "logprobs": 2}
        (choice,) = http.post("/v1/completions", json=body).json()["choices"]
        assert (choice["token_ids"], choice["prompt_token_ids"], choice["text"], choice["finish_reason"]) == (
            [7, 8],
            [5, 6],
            "seven eight",
            "stop",
        )
        assert choice["logprobs"]["top_logprobs"][1] == {"token_id:8": -0.001, "token_id:9": -4.001}
        assert 'vllm:generation_tokens_total{model_name="canary"} 2.0' in http.get("/metrics").text


@pytest.mark.parametrize(("script", "ids"), [("flood", [0, 0, 0]), ("wrong", [10, 11, 13]), ("good", [10, 11, 12])])
def test_scripts_can_spoil_the_greedy_answer(script: str, ids: list[int]) -> None:
    with ScriptedServer(SCRIPTS[script]) as server:
        answer = httpx.post(f"{server.base_url}/v1/completions", json={"prompt": [1], "max_tokens": 3, "return_token_ids": True})
        assert answer.json()["choices"][0]["token_ids"] == ids


def test_answers_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps([{"prompt_ids": [1, 2], "token_ids": [3], "text": "three", "margins": [9.0]}]), encoding="utf-8")
    answer = answers_from(file)
    assert answer((1, 2), 5) == Answer((3,), "three", (9.0,))
    assert answer((9,), 2).token_ids == (10, 11)


def test_prefix_cache_remembers_earlier_prompts_in_whole_pages() -> None:
    with ScriptedServer(Script(page_size=4)) as server, httpx.Client(base_url=server.base_url) as http:

        def cached(prompt: list[int]) -> int:
            body = {"prompt": prompt, "max_tokens": 1, "stream": True, "stream_options": {"include_usage": True}}
            usage = json.loads(http.post("/v1/completions", json=body).text.split("\n\n")[-3].removeprefix("data: "))["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert [cached(list(range(16))), cached(list(range(16))), cached([*range(6), 99, 98])] == [0, 12, 4]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_real_adapters_can_read_the_answers(engine: str) -> None:
    adapter = adapter_for(engine)
    request = adapter.greedy_request("canary", (1, 2, 3), 4)
    with ScriptedServer(profile=Profile(engine)) as server, httpx.Client(base_url=server.base_url) as http:
        answer = adapter.read_greedy(http.post(request.path, json=request.body).json())
        counted = adapter.generated_tokens(http.get("/metrics").text)
    assert (answer.token_ids, answer.finish_reason, counted) == ((10, 11, 12, 13), "length", 4)
    assert answer.margins == pytest.approx((16.0,) * 4)


def test_program_serves_until_it_is_told_to_stop() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, str(PROGRAM), "--port", str(port), "--script", "good", "--version", "0.31.0"]) as program:
        try:
            assert _answer_of(f"http://127.0.0.1:{port}/version", program) == {"version": "0.31.0"}
        finally:
            program.terminate()
    assert program.returncode is not None


def _answer_of(url: str, program: subprocess.Popen[bytes]) -> object:
    """The program's first answer; fails as soon as the program is gone."""
    while program.poll() is None:
        try:
            return httpx.get(url).json()
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"the program ended with {program.returncode}")
