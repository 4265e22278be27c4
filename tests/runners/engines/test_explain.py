"""Explaining a log alone: golden over every recorded log, hostile files, fallbacks, public issues."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.engines.explain import Health, explain_log
from runners.engines.known_issues import all_issues, cited, touching
from runners.engines.log_lines import MAX_LINE, bounded_lines, read_line, scan
from runners.errors import UsageError
from tests.runners.engines.boot_logs import EXPECTED, NAMES, engine_of, lines_of, path_of, version_of


@pytest.mark.parametrize("name", NAMES)
def test_recorded_log_is_explained_without_being_told_anything(name: str) -> None:
    found = explain_log(path_of(name))
    wanted = EXPECTED[name]
    assert found.engine == engine_of(name)
    assert found.health is Health(wanted["health"])
    assert (found.failure.signature if found.failure else "") == wanted.get("signature", "")
    assert found.kernels["attention"] == wanted["attention"]
    assert found.kernels["moe"] == wanted["moe"]
    assert found.capacity.kv_cache_tokens == wanted.get("kv_cache_tokens")
    assert found.fallbacks == ()
    assert found.lines_read == len(path_of(name).read_bytes().split(b"\n")) - path_of(name).read_bytes().endswith(b"\n")


WITHOUT_A_VERSION = {
    "sglang-0.5.23-cpu-hybrid-no-snapshots",
    "sglang-0.5.14-cpu-port-too-high",
    "vllm-0.31.0-cpu-hybrid-no-torchvision",
    "vllm-0.26.0-h200-canary-hybrid-image-model-only",
}
"""They ended before their arguments were printed, or the banner of their process belongs to an earlier checkpoint."""


@pytest.mark.parametrize("name", NAMES)
def test_version_is_stated_or_its_bounds_hold_the_true_one(name: str) -> None:
    found = explain_log(path_of(name))
    if name in WITHOUT_A_VERSION:
        assert (found.version, found.version_note) == (None, "not stated")
        return
    if engine_of(name) == "vllm" or "canary" in name:  # an uncut argument dump of SGLang names the version exactly
        assert found.version == version_of(name)
        return
    assert found.version is None
    assert found.version_note is not None
    assert "allow" in found.version_note
    low, high = found.version_note.split("allow ")[1].split(" to ")
    order = ["0.5.12", "0.5.12.post1", "0.5.14", "0.5.15.post1", "0.5.18", "0.5.22", "0.5.23"]
    assert order.index(low) <= order.index(version_of(name)) <= order.index(high)


def test_version_given_by_the_user_is_kept() -> None:
    found = explain_log(path_of("sglang-0.5.14-h200-moe-fp8"), "sglang", "0.5.14")
    assert (found.engine, found.version, found.version_note) == ("sglang", "0.5.14", None)


@pytest.mark.parametrize("name", ["sglang-0.5.14-h200-dense-int4-long", "vllm-0.26.0-h200-moe-bf16-ficutlass"])
def test_compilation_that_never_ends_is_unknown_and_says_what_it_may_be(name: str) -> None:
    found = explain_log(path_of(name))
    assert found.health is Health.UNKNOWN
    assert found.failure is None
    assert "JIT" in found.state


def test_fallback_is_found_from_the_log_alone() -> None:
    lines = [
        line.replace("'kv_cache_memory_bytes': 1000000000}", "'kv_cache_memory_bytes': 1000000000, 'moe_backend': 'flashinfer_cutlass'}")
        for line in lines_of("vllm-0.26.0-h200-moe-nvfp4")
    ]
    found = explain_log(lines)
    assert found.configured["moe"] == "flashinfer_cutlass"
    assert [(item.slot, item.configured, item.actual) for item in found.fallbacks] == [("moe", "flashinfer_cutlass", "MARLIN")]


def test_asked_for_kernel_that_ran_is_no_fallback() -> None:
    found = explain_log(path_of("vllm-0.26.0-h200-moe-nvfp4-marlin"))
    assert found.configured["moe"] == "marlin"
    assert found.fallbacks == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n\n",
        bytes(range(256)) * 2_000,
        b"\x7fELF\x02\x01\x01\x00\nFatal Python error: \x00\n" * 500,
        b"hello\nworld\n",
        "Привет\n".encode("utf-16"),
    ],
)
def test_junk_and_other_programs_output_are_unknown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "junk.log"
    path.write_bytes(content)
    found = explain_log(path)
    assert (found.engine, found.version, found.health, found.failure) == (None, None, Health.UNKNOWN, None)
    assert found.kernels == {}


def test_pasted_error_without_a_log_around_it_is_still_explained() -> None:
    found = explain_log(["RuntimeError: CUDA error: no kernel image is available for execution on the device"])
    assert found.engine is None
    assert found.failure is not None
    assert found.failure.signature == "ARCH01"


def test_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        explain_log(tmp_path / "none.log")
    with pytest.raises(UsageError, match="is a folder"):
        explain_log(tmp_path)


def _long_log(path: Path, megabytes: int) -> None:
    start = [line for line in lines_of("vllm-0.26.0-h200-moe-nvfp4") if "[shutdown]" not in line][:66]
    block = "".join(
        f"(APIServer pid=1) INFO 11-30 12:{n % 60:02d}:00 [loggers.py:310] Engine 000: Avg throughput: {n * 7.3:.1f} tokens/s, text {n}\n"
        for n in range(4_000)
    ).encode()
    with path.open("wb") as stream:
        stream.write("\n".join(start).encode() + b"\n")
        for _ in range(megabytes * 1_000_000 // len(block)):
            stream.write(block)
        stream.write(b"x" * 40_000_000 + b"\n")
        stream.write(b"(EngineCore pid=1) ERROR 11-30 12:00:00 [a.py:1] EngineCore encountered a fatal error.\n")
        stream.write(b"(EngineCore pid=1) ERROR 11-30 12:00:00 [a.py:1] torch.OutOfMemoryError: CUDA out of memory.\n")


def test_large_log_is_streamed_with_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    _long_log(path, 60)
    explain_log(path_of("vllm-0.26.0-h200-moe-nvfp4"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = explain_log(path)
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert found.failure is not None
    assert found.failure.signature == "MEM06"
    assert found.failure.line_no == found.lines_read
    assert grown_mib < 60


class _Chunks:
    """A binary stream that gives back pieces of a chosen size."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces: Iterator[bytes] = iter([data[i : i + size] for i in range(0, len(data), size)])

    def read(self, _size: int) -> bytes:
        return next(self._pieces, b"")


@given(st.binary(max_size=600), st.integers(1, 50))
def test_lines_do_not_depend_on_how_the_file_is_cut(data: bytes, size: int) -> None:
    expected = [line.decode("utf-8", "replace") for line in data.split(b"\n")]
    assert list(bounded_lines(_Chunks(data, size))) == (expected[:-1] if expected[-1] == "" else expected)  # type: ignore[arg-type]


def test_endless_line_is_cut_and_the_next_one_kept() -> None:
    lines = list(bounded_lines(_Chunks(b"a" * 500_000 + b"\nnext\n", 1_000)))  # type: ignore[arg-type]
    assert [len(line) for line in lines] == [MAX_LINE, 4]


_WORDS = st.sampled_from(["alpha 1", "beta 22", "gamma", "stop 9", "x" * 50, "delta 7 alpha"])


@given(st.lists(_WORDS, max_size=60), st.integers(1, 200))
def test_scan_finds_exactly_the_lines_with_an_anchor(lines: list[str], batch: int) -> None:
    anchors = {"alpha", "stop 9"}
    found = list(scan(lines, anchors, lambda: False, batch_chars=batch))
    wanted = [(number, line) for number, line in enumerate(lines, 1) if any(anchor in line for anchor in anchors)]
    assert set(found) >= set(wanted)
    folded = {"alpha", "stop "}
    assert all(any(anchor in line for anchor in folded) for _, line in found)
    assert [number for number, _ in found] == sorted({number for number, _ in found})


def test_open_traceback_is_followed_over_batches_without_any_anchor() -> None:
    lines = ["begin", *[f"frame {number}" for number in range(50)], "end", "after"]
    state = {"open": False}
    found = []
    for _, line in scan(lines, {"begin"}, lambda: state["open"], batch_chars=40):
        found.append(line)
        state["open"] = line != "end"
    assert found == lines[:-1]


@pytest.mark.parametrize(
    ("line", "message", "process", "level"),
    [
        ("(EngineCore_DP0 pid=9) INFO 03-02 10:11:12 [cuda.py:408] text", "text", "EngineCore_DP0", "INFO"),
        ("INFO 03-02 10:11:12 [v1/engine/core.py:57] text", "text", None, "INFO"),
        ("(EngineCore pid=9) (Worker_TP0 pid=10) ERROR 03-02 10:11:12 [a.py:1]   indented", "  indented", "Worker_TP0", "ERROR"),
        ("[2026-11-30 12:00:00 DP0 TP1 EP2] text", "text", None, None),
        ("vllm-1  | (APIServer pid=1) WARNING 03-02 10:11:12 [a.py:1] text", "text", "APIServer", "WARNING"),
        ("2026-11-30T12:00:00.123456789Z INFO 03-02 10:11:12 [a.py:1] text", "text", None, "INFO"),
        ("Nov 30 12:00:00 spark-1 vllm[123]: INFO 03-02 10:11:12 [a.py:1] text", "text", None, "INFO"),
        ("\x1b[1;33m(EngineCore pid=9)\x1b[0m text", "text", "EngineCore", None),
        ("Loading: 10%\rLoading: 100%\r(EngineCore pid=9) INFO 03-02 10:11:12 [a.py:1] text", "text", "EngineCore", "INFO"),
        ("(VllmWorker TP0 pid=9) INFO 03-02 10:11:12 [a.py:1] text", "text", "VllmWorker TP0", "INFO"),
        ("(RayWorkerWrapper pid=9, ip=192.0.2.7) INFO 03-02 10:11:12 [a.py:1] text", "text", "RayWorkerWrapper", "INFO"),
        ("(not a tag) text", "(not a tag) text", None, None),
    ],
)
def test_message_is_read_behind_every_known_prefix(line: str, message: str, process: str | None, level: str | None) -> None:
    found = read_line(line)
    assert (found.message, found.process, found.level) == (message, process, level)


def test_cited_issues_are_those_of_the_catalogue_row() -> None:
    assert [issue.number for issue in cited(["vllm#40758 #43367 #48587"])] == ["40758", "43367", "48587"]
    assert [issue.repo for issue in cited(["sglang#29317"])] == ["sgl-project/sglang"]
    assert cited(["engine source"]) == []


def test_issue_is_shown_only_for_its_kernel_and_versions() -> None:
    race = "40923"
    ran = {"moe": "MARLIN"}
    assert race in [issue.number for issue in touching("vllm", ["0.19.1"], ran)]
    assert race not in [issue.number for issue in touching("vllm", ["0.26.0"], ran)]
    assert race not in [issue.number for issue in touching("vllm", ["0.19.1"], {"moe": "TRITON"})]
    assert race not in [issue.number for issue in touching("vllm", ["0.19.1", "0.26.0"], ran)]
    assert touching("vllm", [], ran) == []


def test_history_has_all_its_rows() -> None:
    assert len(all_issues()) == 143
    assert all(issue.title and issue.symptom for issue in all_issues())


@given(st.lists(st.text(max_size=120), max_size=20))
def test_any_lines_are_explained_without_error(lines: list[str]) -> None:
    assert explain_log(lines).state
