"""The zoo: nothing is served or judged from files whose digests do not match, and concurrent writers do not collide."""

import json
import multiprocessing
import shutil
from pathlib import Path

import pytest

from suites.canaries import zoo


@pytest.fixture
def damaged_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A private copy of the tracked files that the zoo reads instead of the real ones."""
    folder = tmp_path / "tracked"
    shutil.copytree(Path(zoo.__file__).parent / "dense", folder / "dense")
    monkeypatch.setattr(zoo, "_CANARIES_FOLDER", folder)
    return folder / "dense"


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", zoo.MANIFEST_SHA256)
def test_tracked_files_and_all_formats_match_their_digests(name: str) -> None:
    assert zoo.verify(name) == zoo.weight_formats(name)
    assert zoo.load(name).sha256[zoo.PACKED_WEIGHTS]


def test_the_dense_canary_is_final() -> None:
    """Recorded results refer to it: formats may be added, weights and goldens may not change."""
    digests = zoo.load("dense").sha256
    assert digests[zoo.PACKED_WEIGHTS] == "4b3d872a96c933aca449f255711e774e814ef3fc3ef874611b29e510e411f526"
    assert digests[zoo.GOLDEN] == "da9aa47b9d6517b3458512159e85fd9e0cd1c73faf445a1fb4fb55b955863574"
    assert digests[zoo.REFERENCE] == "6d577feea78562cb1d638e7681a44c349108b1624fc77b5f4f65e97a2ac7b853"
    recorded = json.loads(zoo.tracked_file("dense", zoo.MANIFEST) or b"")["checkpoints"]["bf16"]
    assert recorded[zoo.MODEL_FILE] == "b9aa555908fe7d88943fba93b1f55c93ddeaa64a047b6c77c646cbb5f0fb801c"


def test_expanding_other_bytes_than_recorded_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = zoo.expand
    monkeypatch.setattr(zoo, "expand", lambda files, weight_format: {**real(files, weight_format), zoo.MODEL_FILE: b"other"})
    with pytest.raises(zoo.CanaryError, match="other bytes than recorded"):
        zoo.materialise("dense", "bf16", tmp_path)
    with pytest.raises(zoo.CanaryError, match="other bytes than recorded"):
        zoo.verify("dense")


@pytest.mark.parametrize("name", zoo.MANIFEST_SHA256)
def test_every_tracked_data_file_is_in_the_manifest(name: str) -> None:
    folder = Path(zoo.__file__).parent / name.replace("-", "_")
    data_files = {path.name for path in folder.iterdir() if path.is_file()} - {"__init__.py", zoo.MANIFEST}
    assert data_files == set(json.loads((folder / zoo.MANIFEST).read_text())["tracked"])


@pytest.mark.parametrize("file", [*zoo.CHECKPOINT_SIDE_FILES, zoo.PACKED_WEIGHTS, zoo.GOLDEN, zoo.REFERENCE])
def test_one_flipped_bit_in_a_tracked_file_is_found(damaged_copy: Path, file: str) -> None:
    flip_a_bit(damaged_copy / file)
    with pytest.raises(zoo.CorruptCanaryError, match=file):
        zoo.load("dense")


def test_manifest_edited_to_fit_a_changed_file_is_found(damaged_copy: Path) -> None:
    manifest = json.loads((damaged_copy / zoo.MANIFEST).read_text())
    manifest["tracked"][zoo.GOLDEN] = "0" * 64
    (damaged_copy / zoo.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(zoo.CorruptCanaryError, match=zoo.MANIFEST):
        zoo.verify("dense")


def test_damaged_packed_file_is_not_expanded_and_the_error_says_what_to_do(damaged_copy: Path, tmp_path: Path) -> None:
    flip_a_bit(damaged_copy / zoo.PACKED_WEIGHTS)
    with pytest.raises(zoo.CorruptCanaryError, match="restore it from version control or reinstall"):
        zoo.materialise("dense", "bf16", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_missing_packed_file_is_named(damaged_copy: Path) -> None:
    (damaged_copy / zoo.PACKED_WEIGHTS).unlink()
    with pytest.raises(zoo.CorruptCanaryError, match=zoo.PACKED_WEIGHTS):
        zoo.verify("dense")


@pytest.mark.parametrize("name", ["nothing", "../dense", ""])
def test_unknown_canary_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(zoo.UnknownCanaryError, match="dense"):
        zoo.materialise(name, "bf16", tmp_path)


@pytest.mark.parametrize("weight_format", ["bf17", "../bf16", ""])
def test_unknown_weight_format_is_refused_before_anything_is_written(weight_format: str, tmp_path: Path) -> None:
    with pytest.raises(zoo.UnknownCanaryError, match="bf16"):
        zoo.materialise("dense", weight_format, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_checkpoint_folder_holds_what_an_engine_loads_and_nothing_else(tmp_path: Path) -> None:
    folder = zoo.materialise("dense", "bf16", tmp_path / "new" / "cache")
    assert folder == tmp_path / "new" / "cache" / "dense-bf16"
    assert set(contents(folder)) == {zoo.MODEL_FILE, *zoo.CHECKPOINT_SIDE_FILES}
    assert [path.name for path in folder.parent.iterdir()] == ["dense-bf16"]
    assert folder.stat().st_mode & 0o555 == 0o555, "an engine in a container runs as another user"


def test_second_call_leaves_a_right_folder_untouched(tmp_path: Path) -> None:
    first = zoo.materialise("dense", "bf16", tmp_path)
    inodes = {path.name: path.stat().st_ino for path in first.iterdir()}
    assert zoo.materialise("dense", "bf16", tmp_path) == first
    assert {path.name: path.stat().st_ino for path in first.iterdir()} == inodes


@pytest.mark.parametrize("file", [zoo.MODEL_FILE, "tokenizer.json", "config.json"])
def test_damaged_file_in_the_cache_is_rebuilt(tmp_path: Path, file: str) -> None:
    folder = zoo.materialise("dense", "bf16", tmp_path)
    good = contents(folder)
    flip_a_bit(folder / file)
    zoo.materialise("dense", "bf16", tmp_path)
    assert contents(folder) == good


def test_half_written_folder_is_completed(tmp_path: Path) -> None:
    folder = zoo.materialise("dense", "bf16", tmp_path)
    good = contents(folder)
    (folder / "config.json").unlink()
    (folder / zoo.MODEL_FILE).write_bytes(good[zoo.MODEL_FILE][:1000])
    zoo.materialise("dense", "bf16", tmp_path)
    assert contents(folder) == good


@pytest.mark.parametrize("same_content", [False, True])
def test_link_in_place_of_a_file_is_replaced_without_touching_its_target(tmp_path: Path, same_content: bool) -> None:
    """Even a link to the right bytes: in a container that mounts only this folder it leads nowhere."""
    folder = zoo.materialise("dense", "bf16", tmp_path)
    linked = folder / "config.json"
    content = linked.read_bytes() if same_content else b"mine"
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_bytes(content)
    linked.unlink()
    linked.symlink_to(elsewhere)
    zoo.materialise("dense", "bf16", tmp_path)
    assert not linked.is_symlink()
    assert elsewhere.read_bytes() == content


def test_foreign_file_in_the_folder_is_refused_and_kept(tmp_path: Path) -> None:
    folder = zoo.materialise("dense", "bf16", tmp_path)
    foreign = folder / "model-00002.safetensors"
    foreign.write_bytes(b"mine")
    with pytest.raises(zoo.CanaryError, match=r"model-00002\.safetensors"):
        zoo.materialise("dense", "bf16", tmp_path)
    assert foreign.read_bytes() == b"mine"


def test_file_in_place_of_the_folder_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "dense-bf16").write_text("mine")
    with pytest.raises(zoo.CanaryError, match="not a folder"):
        zoo.materialise("dense", "bf16", tmp_path)
    assert (tmp_path / "dense-bf16").read_text() == "mine"


def test_folder_made_by_another_process_in_between_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process wins between our check and our rename."""
    real_rename = Path.rename
    ready = zoo.materialise("dense", "bf16", tmp_path / "other")

    def rename_after_the_other(self: Path, target: Path) -> Path:
        shutil.copytree(ready, target)
        return real_rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_after_the_other)
    folder = zoo.materialise("dense", "bf16", tmp_path / "cache")
    assert contents(folder) == contents(ready)
    assert [path.name for path in folder.parent.iterdir()] == ["dense-bf16"]


def _materialise_in_process(root: Path, start: "multiprocessing.synchronize.Barrier") -> None:
    start.wait(timeout=60)
    zoo.materialise("dense", "bf16", root)


@pytest.mark.parametrize("damaged_before", [False, True])
def test_two_processes_at_once_leave_one_right_folder(tmp_path: Path, damaged_before: bool) -> None:
    good = contents(zoo.materialise("dense", "bf16", tmp_path / "reference"))
    root = tmp_path / "cache"
    if damaged_before:
        flip_a_bit(zoo.materialise("dense", "bf16", root) / zoo.MODEL_FILE)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [context.Process(target=_materialise_in_process, args=(root, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    assert contents(root / "dense-bf16") == good
    assert [path.name for path in root.iterdir()] == ["dense-bf16"]
