"""The vocabulary of gpt-oss on a node without network: found, named to the server, or what to put where."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from runners.vocabulary_file import FOLDER, OfflineVocabulary, offline_vocabulary
from suites.recipes import Recipe, recipe_for

CONTENT = b"IQ== 0\nIg== 1\n"
NAME, CACHE_NAME = "o200k_base.tiktoken", "fb374d419588a4632f3f557e76b4b70aebbca790"


@pytest.fixture
def recipe() -> Recipe:
    """gpt-oss-120b, whose vocabulary is a few bytes of ours."""
    found = recipe_for("gpt-oss-120b")
    assert found.tokenizer is not None
    assert found.tokenizer.file is not None
    file = found.tokenizer.file.model_copy(update={"sha256": hashlib.sha256(CONTENT).hexdigest()})
    return found.model_copy(update={"tokenizer": found.tokenizer.model_copy(update={"file": file})})


def _put(folder: Path, name: str, content: bytes = CONTENT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return folder


def test_a_copy_in_our_cache_is_named_to_the_server(tmp_path: Path, recipe: Recipe) -> None:
    folder = _put(tmp_path / FOLDER, CACHE_NAME)
    found = offline_vocabulary(recipe, "vllm", "0.30.0", tmp_path, {})
    assert found == OfflineVocabulary({"TIKTOKEN_RS_CACHE_DIR": str(folder)}, folder)


@pytest.mark.parametrize(("variable", "name"), [("TIKTOKEN_ENCODINGS_BASE", NAME), ("TIKTOKEN_RS_CACHE_DIR", CACHE_NAME)])
def test_a_copy_where_the_users_variable_points_goes_first(tmp_path: Path, recipe: Recipe, variable: str, name: str) -> None:
    _put(tmp_path / FOLDER, CACHE_NAME)
    mine = _put(tmp_path / "mine", name)
    assert offline_vocabulary(recipe, "sglang", "0.5.23", tmp_path, {variable: str(mine)}) == OfflineVocabulary({variable: str(mine)}, mine)


def test_without_a_copy_the_file_its_name_and_its_place_are_said(tmp_path: Path, recipe: Recipe) -> None:
    found = offline_vocabulary(recipe, "vllm", "0.17.1", tmp_path, {})
    assert (found.environment, found.folder) == ({}, None)
    assert found.missing is not None
    assert NAME in found.missing
    assert str(tmp_path / FOLDER / CACHE_NAME) in found.missing
    assert f"TIKTOKEN_CACHE_DIR={tmp_path / FOLDER} python3" in found.missing


def test_a_damaged_copy_is_not_used_and_is_named(tmp_path: Path, recipe: Recipe) -> None:
    """The tokenizer would delete it and try to download another."""
    _put(tmp_path / FOLDER, CACHE_NAME, CONTENT[:5])
    found = offline_vocabulary(recipe, "vllm", "0.30.0", tmp_path, {})
    assert found.environment == {}
    assert f"{tmp_path / FOLDER / CACHE_NAME} is not it" in (found.missing or "")


def test_releases_with_the_vocabulary_inside_need_nothing(tmp_path: Path, recipe: Recipe) -> None:
    assert offline_vocabulary(recipe, "vllm", "0.31.0", tmp_path, {}) == OfflineVocabulary()
    assert offline_vocabulary(recipe_for("canary-dense"), "vllm", "0.30.0", tmp_path, {}) == OfflineVocabulary()
