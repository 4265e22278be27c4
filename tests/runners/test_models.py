"""From a recipe to a folder: canaries of every kind, and whose fault it is when their files are not right."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.errors import InfrastructureError
from runners.models import materialise
from suites.canaries import zoo
from suites.recipes import recipe_for


def silent(_: str) -> None:
    return None


@pytest.mark.parametrize("name", ["canary-moe-int4", "canary-gpt-oss-mxfp4", "canary-hybrid", "canary-dense-fp8"])
def test_a_canary_recipe_becomes_a_folder_with_its_goldens_and_its_own_special_ids(name: str, tmp_path: Path) -> None:
    model = materialise(recipe_for(name), tmp_path, silent)
    assert model.canary is not None and model.path is not None
    assert (model.path / zoo.MODEL_FILE).exists()
    assert model.path.name == name.removeprefix("canary-") or model.path.name == f"{name.removeprefix('canary-')}-bf16"
    assert (model.vocab_size, model.bos_id, len(model.special_ids)) == (1024, 1019, 6)


def test_damaged_canary_files_are_our_fault_and_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "_CANARIES_FOLDER", tmp_path / "nothing")
    with pytest.raises(InfrastructureError, match="sparkproof canary verify"):
        materialise(recipe_for("canary-moe"), tmp_path, silent)
