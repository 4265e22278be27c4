from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.envs.command import Finished
from runners.node.gpu import NO_GPU_SAMPLE, GpuSample
from runners.node.probe import bandwidth_gb_s, numpy_probe, read_torch, torch_probe

BUSY = GpuSample(power_w=300.0, sm_clock_mhz=1980, utilization_percent=99.0)


def test_bandwidth_is_bytes_over_the_lower_quartile_of_the_times() -> None:
    assert bandwidth_gb_s(10**9, [0.1, 0.1, 0.1, 5.0]) == pytest.approx(10.0)
    assert bandwidth_gb_s(10**9, [0.2, 0.1, 0.2, 0.2, 0.2]) == pytest.approx(5.0)


@pytest.mark.parametrize("seconds", [[], [0.1], [0.0, 0.0], [-1.0, 0.1]])
def test_too_few_times_give_no_bandwidth(seconds: list[float]) -> None:
    assert bandwidth_gb_s(10**9, seconds) is None


def test_torchs_answer_is_read_from_its_last_line() -> None:
    output = "a warning of torch\n" + json.dumps({"seconds": [0.002] * 4, "bytes": 2 * 10**9}) + "\n"
    result = read_torch(Finished(0, output, ()), BUSY)
    assert (result.probe, result.under_load, result.problem) == ("torch-cuda", BUSY, None)
    assert result.bandwidth_gb_s == pytest.approx(1000.0)


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (Finished(1, "", ("ModuleNotFoundError: No module named 'torch'",)), "No module named 'torch'"),
        (Finished(0, '{"problem": "torch sees no CUDA device"}\n', ()), "no CUDA device"),
        (Finished(0, '{"seconds": [0.1], "bytes": 5}\n', ()), "too few products"),
        (Finished(0, '{"seconds": "x", "bytes": 5}\n', ()), "torch failed"),
        (Finished(0, "[]\n", ()), "torch failed"),
        (Finished(-9, "", ()), "exit code -9"),
    ],
)
def test_whatever_else_torch_says_is_a_problem_with_words(done: Finished, words: str) -> None:
    result = read_torch(done, BUSY)
    assert result.bandwidth_gb_s is None
    assert words in (result.problem or "")


@given(st.text(max_size=300))
def test_any_output_is_read_without_an_error(output: str) -> None:
    result = read_torch(Finished(0, output, ()), NO_GPU_SAMPLE)
    assert (result.bandwidth_gb_s is None) != (result.problem is None)


def test_probe_that_hangs_and_python_that_is_not_there_are_problems() -> None:
    assert "no answer within" in (torch_probe(Path("python"), run=lambda python: Finished(None, "", ())).problem or "")
    assert "cannot be started" in (torch_probe(Path("/nonexistent/python")).problem or "")


def test_gpu_is_sampled_while_torch_works_and_the_busiest_sample_is_kept() -> None:
    samples = [GpuSample(utilization_percent=3.0, power_w=900.0), BUSY, GpuSample(utilization_percent=70.0, power_w=500.0)]
    all_taken = threading.Event()

    def sample() -> GpuSample:
        if len(samples) == 1:
            all_taken.set()
        return samples.pop(0) if samples else NO_GPU_SAMPLE

    def run(python: Path) -> Finished:
        assert all_taken.wait(60)
        return Finished(0, json.dumps({"seconds": [0.1, 0.1], "bytes": 1}), ())

    assert torch_probe(Path("python"), sample, run).under_load == BUSY


def test_the_script_itself_says_in_words_that_torch_is_missing() -> None:
    """Our own Python has no torch: the real child process, started for real."""
    result = torch_probe(Path(sys.executable))
    assert "torch" in (result.problem or "")


def test_numpy_probe_gives_this_machines_bandwidth() -> None:
    result = numpy_probe()
    assert result.probe == "numpy"
    assert result.bandwidth_gb_s is not None and 0.1 < result.bandwidth_gb_s < 5000
