import sys

import pytest

from runners.envs.environment import ensure_tool
from runners.envs.gguf_convert import gguf_of
from runners.errors import UsageError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the index, importable by name."""
    folder = tmp_path / "site" / "tiny_gguf"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield folder
    sys.modules.pop("tiny_gguf", None)


def test_package_in_parts_is_put_together_by_its_own_function(package, tmp_path):
    (package / "__init__.py").write_text("def assemble(path):\n    path.write_text('whole')\n    return path\n", encoding="utf-8")
    assert gguf_of("tiny-gguf", tmp_path).read_text(encoding="utf-8") == "whole"


def test_package_with_one_file_gives_that_file(package, tmp_path):
    (package / "data").mkdir()
    (package / "data" / "m.gguf").touch()
    assert gguf_of("tiny-gguf", tmp_path) == package / "data" / "m.gguf"


@pytest.mark.parametrize("files", [(), ("a.gguf", "b.gguf")])
def test_package_without_exactly_one_file_is_refused(package, tmp_path, files):
    for name in files:
        (package / name).touch()
    with pytest.raises(SystemExit, match=f"carries {len(files)} GGUF files"):
        gguf_of("tiny-gguf", tmp_path)


@pytest.mark.parametrize("extra", ["--index-url=https://elsewhere", "two words", "../path", ""])
def test_what_is_no_package_name_never_reaches_the_installer(tmp_path, extra):
    with pytest.raises(UsageError, match="not the name of a package"):
        ensure_tool("gguf-converter", extra=(extra,), progress=lambda line: None, cache_root=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_unknown_tool_is_refused(tmp_path):
    with pytest.raises(UsageError, match="not a tool we know"):
        ensure_tool("converter", progress=lambda line: None, cache_root=tmp_path)
