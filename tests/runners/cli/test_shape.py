"""`sparkproof shape` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner, Result

from runners.cli.shape import shape
from suites.shapes import all_shapes


def run(*arguments: str, cache: Path = Path("/nonexistent")) -> Result:
    return CliRunner().invoke(shape, list(arguments), env={"COLUMNS": "200", "SPARKPROOF_CACHE": str(cache)})


def test_list_shows_bytes_and_ceiling_of_every_shape_on_a_given_bandwidth() -> None:
    listed = {entry["model"]: entry for entry in json.loads(run("list", "--bandwidth", "4800", "--json").stdout)}
    assert set(listed) == {f"shape-{name}" for name, one in all_shapes().items() if not one.is_tiny}
    fp8 = listed["shape-llama-3.1-8b-fp8"]
    assert (fp8["active_bytes_per_token"], fp8["kv_bytes_per_token"], fp8["canaries"]) == (8_033_280_000, 131_072, ["canary-dense-fp8"])
    assert round(fp8["roofline_tok_s"]) == round(4800e9 / (8_033_280_000 + 256 * 131_072))
    assert all(entry["source"] for entry in listed.values())


def test_list_as_a_table_shows_the_tiny_ones_only_when_asked() -> None:
    assert "tiny" not in run("list").stdout
    assert "shape-tiny-llama-3.1-8b-fp8" in run("list", "--tiny").stdout


def test_make_writes_the_folder_and_says_where(tmp_path: Path) -> None:
    done = run("make", "tiny-llama-3.1-8b", "--json", cache=tmp_path)
    assert done.exit_code == 0
    ((made),) = json.loads(done.stdout)
    assert made["model"] == "shape-tiny-llama-3.1-8b"
    assert Path(made["path"]).parent == tmp_path / "shapes" and (Path(made["path"]) / "config.json").is_file()


def test_make_refuses_an_unknown_shape_both_and_neither(tmp_path: Path) -> None:
    assert [run("make", *words, cache=tmp_path).exit_code for words in (["llama-9"], [], ["gpt-oss-20b", "--all"])] == [2, 2, 2]


def test_make_into_a_cache_that_cannot_be_written_is_our_fault(tmp_path: Path) -> None:
    (tmp_path / "shapes").write_text("in the way")
    assert run("make", "tiny-llama-3.1-8b", cache=tmp_path).exit_code == 3
