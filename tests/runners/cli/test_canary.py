"""`sparkproof canary` as a user types it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from runners.cli.canary import canary
from suites.canaries import zoo


def run(*arguments: str) -> Result:
    return CliRunner().invoke(canary, list(arguments), env={"COLUMNS": "200"})


def test_list_names_every_canary_with_its_formats() -> None:
    result = run("list", "--json")
    assert result.exit_code == 0
    assert {entry["name"]: tuple(entry["formats"]) for entry in json.loads(result.stdout)} == {
        name: zoo.weight_formats(name) for name in zoo.MANIFEST_SHA256
    }


def test_list_as_a_table_says_how_many_prompts_there_are() -> None:
    assert "37 + 52 BOS" in run("list").stdout


def test_build_writes_the_asked_formats_with_the_recorded_digests(tmp_path: Path) -> None:
    result = run("build", "dense", "--format", "int4", "--format", "nvfp4", "--to", str(tmp_path), "--json")
    assert result.exit_code == 0
    written = {entry["weight_format"]: Path(entry["path"]) for entry in json.loads(result.stdout)}
    assert set(written) == {"int4", "nvfp4"}
    recorded = json.loads(zoo.tracked_file("dense", zoo.MANIFEST) or b"")["checkpoints"]
    for weight_format, folder in written.items():
        assert {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in folder.iterdir()} == recorded[weight_format]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "nothing"), "no canary 'nothing'"),
        (("build", "dense", "--format", "fp3"), "fp3"),
        (("build", "gpt-oss", "--format", "int4"), "mxfp4"),
        (("build",), "one canary or --all"),
        (("build", "dense", "--all"), "one canary or --all"),
        (("verify", "nothing"), "no canary 'nothing'"),
    ],
)
def test_what_does_not_exist_is_a_usage_error_and_writes_nothing(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    extra = ("--to", str(tmp_path / "new")) if arguments[0] == "build" else ()
    result = run(*arguments, *extra)
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "new").exists()


def test_destination_that_cannot_be_written_is_our_fault_and_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = run("build", "dense", "--format", "bf16", "--to", str(tmp_path / "file"))
    assert result.exit_code == 3
    assert "file" in result.stderr


def test_verify_checks_every_format_of_one_canary() -> None:
    result = run("verify", "dense", "--json")
    assert result.exit_code == 0
    (entry,) = json.loads(result.stdout)["canaries"]
    assert (entry["problem"], tuple(entry["checkpoints"])) == (None, zoo.weight_formats("dense"))


def test_verify_finds_a_damaged_file_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(zoo.__file__).parent / "dense", tmp_path / "dense")
    monkeypatch.setattr(zoo, "_CANARIES_FOLDER", tmp_path)
    data = bytearray((tmp_path / "dense" / zoo.PACKED_WEIGHTS).read_bytes())
    data[1000] ^= 1
    (tmp_path / "dense" / zoo.PACKED_WEIGHTS).write_bytes(data)
    result = run("verify", "dense")
    assert result.exit_code == 3
    assert "restore it from version control" in result.stderr
