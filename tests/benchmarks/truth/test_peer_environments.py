"""Peers live in environments of their own; what cannot be installed is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.truth.peer_environments import make_environment, newest_vllm


def test_a_peer_that_is_there_is_left_alone(tmp_path: Path) -> None:
    program = tmp_path / "aiperf" / "bin" / "aiperf"
    program.parent.mkdir(parents=True)
    program.touch()
    said: list[str] = []
    assert make_environment(tmp_path, "aiperf", said.append) is None
    assert said == []


def test_a_peer_that_cannot_be_installed_is_said_in_the_installers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    why = make_environment(tmp_path / "peers", "llama-benchy", lambda line: None)
    assert why is not None
    assert why.startswith("llama-benchy: cannot be installed: ")
    assert not (tmp_path / "peers" / "llama-benchy" / "bin" / "llama-benchy").exists()


def test_the_newest_release_of_vllm_is_taken_by_its_number_and_not_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKPROOF_CACHE", str(tmp_path))
    assert newest_vllm() is None
    for name in ("vllm-0.9.1-cp311-a", "vllm-0.32.0-cp311-b", "vllm-0.4.0-cp311-c"):
        (tmp_path / "environments" / name / "bin").mkdir(parents=True)
        (tmp_path / "environments" / name / "bin" / "python").touch()
    found = newest_vllm()
    assert found is not None
    assert "0.32.0" in str(found)
