from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from runners.envs.maker import STAMP
from runners.nightly.collect import Kept, collect, find_environments, to_remove

T0 = datetime(2026, 11, 1, tzinfo=UTC)


def kept(spec: str, gb: float, day: int) -> Kept:
    return Kept(Path(spec), spec, int(gb * 1e9), T0 + timedelta(days=day))


THREE = [kept("vllm==0.30.0", 5, 1), kept("vllm==0.31.0", 5, 9), kept("sglang==0.5.14", 5, 3)]


def test_least_recently_used_go_first_until_the_rest_fits() -> None:
    assert [e.spec for e in to_remove(THREE, int(11e9), ())] == ["vllm==0.30.0"]
    assert [e.spec for e in to_remove(THREE, int(6e9), ())] == ["vllm==0.30.0", "sglang==0.5.14"]
    assert to_remove(THREE, int(15e9), ()) == []


def test_the_anchor_and_what_tonight_needs_never_go() -> None:
    assert [e.spec for e in to_remove(THREE, 0, {"vllm==0.30.0"})] == ["sglang==0.5.14", "vllm==0.31.0"]


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 10), st.integers(0, 99)), max_size=8),
    st.integers(0, 40),
    st.sets(st.sampled_from("abcdef")),
)
def test_what_is_removed_is_enough_or_everything_that_may_go(found: list[tuple[str, int, int]], quota: int, spared: set[str]) -> None:
    environments = [kept(spec, gb, day) for spec, gb, day in found]
    removed = to_remove(environments, int(quota * 1e9), spared)
    left = sum(e.bytes for e in environments) - sum(e.bytes for e in removed)
    assert not {e.spec for e in removed} & spared
    assert left <= quota * 1e9 or len(removed) == sum(e.spec not in spared for e in environments)


def environment(folder: Path, version: str, megabytes: int, *, day: int, digest: str = "d") -> Path:
    root = folder / f"vllm-{version}-cp311-abc"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "big").write_bytes(b"x" * megabytes * 1_000_000)
    stamp = root / STAMP
    stamp.write_text(json.dumps({"build": {"engine": "vllm", "version": version, "digest": digest, "wheels": []}, "plan": {}}))
    moment = (T0 + timedelta(days=day)).timestamp()
    os.utime(stamp, (moment, moment))
    return root


def test_complete_environments_are_found_with_size_and_last_use(tmp_path: Path) -> None:
    environment(tmp_path, "0.30.0", 2, day=1, digest="d30")
    environment(tmp_path, "0.31.0", 1, day=2)
    (tmp_path / "vllm-0.32.0-cp311-half").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / STAMP).write_text("{")
    found = {e.spec: e for e in find_environments(tmp_path, {"d30": T0 + timedelta(days=20)})}
    assert set(found) == {"vllm==0.30.0", "vllm==0.31.0"}
    assert found["vllm==0.30.0"].used_at == T0 + timedelta(days=20)
    assert 2_000_000 <= found["vllm==0.30.0"].bytes < 2_200_000


def test_collecting_removes_the_oldest_and_tells_what_it_freed(tmp_path: Path) -> None:
    old = environment(tmp_path, "0.30.0", 2, day=1)
    new = environment(tmp_path, "0.31.0", 2, day=5)
    done = collect(tmp_path, 3_000_000, (), {})
    assert (old.exists(), new.exists(), done.removed) == (False, True, ("vllm==0.30.0",))
    assert done.freed_bytes > 1_900_000


def test_an_environment_that_somebody_is_making_is_left_alone(tmp_path: Path) -> None:
    root = environment(tmp_path, "0.30.0", 2, day=1)
    with FileLock(f"{root}.lock"):
        assert collect(tmp_path, 0, (), {}).removed == ()
    assert root.exists()


def test_hard_links_are_counted_once_within_an_environment(tmp_path: Path) -> None:
    root = environment(tmp_path, "0.30.0", 2, day=1)
    os.link(root / "lib" / "big", root / "lib" / "twin")
    assert find_environments(tmp_path, {})[0].bytes < 2_200_000


def test_a_folder_that_is_not_there_is_nothing_to_collect(tmp_path: Path) -> None:
    assert collect(tmp_path / "none", 0, (), {}).removed == ()
