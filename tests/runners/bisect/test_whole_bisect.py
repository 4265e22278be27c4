"""Whole bisects through the command line, over planted releases with a behaviour of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from results.store import Store
from tests.planted import Planted
from tests.planted_releases import plant_releases

_LONGEST_S = 240.0
_CELL = ("--model", "canary-dense", "--backend", "eager", "--repeats", "1", "--json")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """0.30.0 broke the cell."""
    behaviours = {version: {"SCRIPTED_AS": "flood"} if version >= "0.30.0" else {} for version in ("0.29.0", "0.30.0", "0.31.0", "0.32.0")}
    return plant_releases(tmp_path_factory.mktemp("bisect"), behaviours)


@pytest.fixture
def planted(world: Planted, tmp_path: Path) -> Planted:
    """The planted releases with a fresh store."""
    (tmp_path / "cache").symlink_to(world.root / "cache")
    return Planted(tmp_path, world.version)


def _bisect(planted: Planted, good: str, bad: str, *more: str) -> tuple[int, dict[str, Any]]:
    done = planted.sparkproof("bisect", "--good", good, "--bad", bad, *_CELL, *more, timeout_s=_LONGEST_S)
    assert done.stdout.strip(), done.stderr
    return done.returncode, json.loads(done.stdout)


def _boots(planted: Planted) -> Counter[tuple[str, str]]:
    rows = Store(planted.home).query("SELECT engine_version, outcome, purpose FROM runs")
    assert {row["purpose"] for row in rows} == {"bisect"}
    return Counter((row["engine_version"], row["outcome"]) for row in rows)


def test_the_release_that_broke_is_found_interrupted_and_resumed_without_a_second_boot_of_any(planted: Planted) -> None:
    runner = subprocess.Popen(
        planted.command("bisect", "--good", "0.29.0", "--bad", "0.32.0", *_CELL),
        env=planted.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_until_a_second_boot_is_judged(planted, runner)
        os.kill(runner.pid, signal.SIGINT)
        runner.communicate(timeout=_LONGEST_S)
    finally:
        if runner.poll() is None:
            runner.terminate()
            runner.wait(60)
    assert runner.returncode == 130
    code, found = _bisect(planted, "0.29.0", "0.32.0")
    assert (code, found["last_good"], found["first_bad"], found["between"]) == (0, "0.29.0", "0.30.0", [])
    assert "broke in 0.30.0" in found["sentence"]
    answered = {release: number for (release, outcome), number in _boots(planted).items() if outcome in ("pass", "incoherent")}
    assert answered == {"0.29.0": 1, "0.32.0": 1, "0.30.0": 1}
    again, same = _bisect(planted, "0.29.0", "0.32.0")
    assert (again, same["boots_made"], same["sentence"]) == (0, 0, found["sentence"])


def _wait_until_a_second_boot_is_judged(planted: Planted, runner: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        phases = [json.loads(path.read_text())["run"]["phase"] for path in sorted((planted.home / "boots").glob("*/run.json"))]
        if len(phases) == 2 and phases[1] in ("ready", "identify", "coherence"):
            return
        assert runner.poll() is None, runner.stderr.read() if runner.stderr else ""
        time.sleep(0.02)
    pytest.fail("the second boot never came")


def test_ends_that_are_not_what_they_were_said_to_be_are_refused_after_one_look(planted: Planted) -> None:
    code, told = _bisect(planted, "0.31.0", "0.32.0")
    assert code == 2
    assert "0.31.0 was said to be good, but it is not (1 boot: incoherent)" in told["problem"]
    assert told["boots_made"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--good", "0.32.0", "--bad", "0.32.0"), "nothing between them"),
        (("--good", "0.31.0", "--bad", "9.9.9"), "does not exist"),
        (("--good", "0.31.0", "--bad", "0.33.dev1"), "is no release"),
        (("--good", "0.31.0", "--bad", "0.32.0", "--engine", "vllm==0.31.0"), "no engine without a version"),
        (("--good", "0.31.0", "--bad", "0.32.0", "--engine", "vllm@endpoint:http://127.0.0.1:1"), "no engine without a version"),
        (("--good", "0.31.0", "--bad", "0.32.0", "--metric", "speed"), "no number 'speed'"),
        (("--good", "0.31.0", "--bad", "0.32.0", "--metric", "decode_c8/decode_tok_s"), "is not measured in decode_c8"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(planted: Planted, arguments: tuple[str, ...], words: str) -> None:
    done = planted.sparkproof("bisect", "--model", "canary-dense", "--backend", "eager", *arguments)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert not (planted.home / "boots").exists()
