import fcntl
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from runners import bootstrap

REPOSITORY = Path(bootstrap.__file__).resolve().parent.parent
VersionInfo = namedtuple("VersionInfo", "major minor micro releaselevel serial")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with an empty lock file, so that the real venv and pip have nothing to fetch."""
    root = tmp_path / "check out"
    (root / "runners").mkdir(parents=True)
    shutil.copy(REPOSITORY / "runners" / "bootstrap.py", root / "runners")
    (root / "runners" / "__init__.py").touch()
    (root / "requirements.lock").touch()
    (root / "pyproject.toml").touch()
    (root / "hello.py").write_text("import sys\nprint('hello', sys.prefix, *sys.argv[1:])\n", encoding="utf-8")
    monkeypatch.setattr(bootstrap, "ROOT", root)
    monkeypatch.delenv("SPARKPROOF_VENV", raising=False)
    return root


@pytest.fixture
def commands(monkeypatch):
    """Commands instead of processes: each makes what it would have made, `fails` holds the output of those that fail."""
    ran, fails = [], {}

    def fake_run(command, **options):
        ran.append(command)
        venv = Path(command[-1])
        if "venv" in command and "venv" not in fails:
            (venv / "bin").mkdir(parents=True, exist_ok=True)
            (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True, exist_ok=True)
            (venv / "bin" / "python").touch()
            (venv / "pyvenv.cfg").touch()
        failed = next((text for key, text in fails.items() if key in command), None)
        return subprocess.CompletedProcess(command, 0 if failed is None else 1, failed or "", "")

    monkeypatch.setattr(bootstrap.subprocess, "run", fake_run)
    monkeypatch.setattr(bootstrap.os, "execv", lambda path, argv: ran.append(["execv", *argv]))
    fake_run.ran, fake_run.fails = ran, fails
    return fake_run


def without(monkeypatch, *missing, uv=None):
    found = bootstrap.importlib.util.find_spec
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: uv)


def refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        bootstrap.start(["hello"])
    said = capsys.readouterr().err
    assert stopped.value.code == 3
    assert "Traceback" not in said
    return said


def test_real_environment_is_made_entered_and_reused(checkout, tmp_path):
    environment = {**os.environ, "SPARKPROOF_VENV": str(tmp_path / "our own")}
    command = [sys.executable, "-c", "from runners.bootstrap import start; start(['hello', 'a b'])"]
    first, second = (subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout == f"hello {tmp_path / 'our own'} a b\n"
    assert "making" in first.stderr
    assert second.stderr == ""
    script = (tmp_path / "our own" / "bin" / "sparkproof").read_text(encoding="utf-8")
    assert "'" in script.splitlines()[1], "a path with a space is quoted"


def test_pip_installs_by_hash_and_the_checkout_is_importable(checkout, commands):
    bootstrap.start(["hello", "x"])
    create, install, enter = commands.ran
    assert create == [sys.executable, "-m", "venv", "--clear", str(checkout / ".venv")]
    assert install[-3:] == ["--require-hashes", "-r", str(checkout / "requirements.lock")]
    assert enter == ["execv", str(checkout / ".venv/bin/python"), "-P", "-m", "hello", "x"]
    assert (checkout / ".venv/lib/python3.11/site-packages/sparkproof.pth").read_text(encoding="utf-8") == f"{checkout}\n"


@pytest.mark.parametrize("changed", ["requirements.lock", "pyproject.toml"])
def test_changed_requirements_complete_the_environment_again(checkout, commands, changed):
    bootstrap.make(checkout / ".venv")
    bootstrap.make(checkout / ".venv")
    assert len(commands.ran) == 2
    (checkout / changed).write_text("# changed", encoding="utf-8")
    bootstrap.make(checkout / ".venv")
    assert len(commands.ran) == 4
    assert "--clear" not in commands.ran[2], "an environment that works is completed, not removed"


def test_half_made_environment_is_completed(checkout, commands):
    commands.fails["pip"] = "ERROR: interrupted"
    with pytest.raises(OSError, match="interrupted"):
        bootstrap.make(checkout / ".venv")
    commands.fails.clear()
    bootstrap.make(checkout / ".venv")
    assert (checkout / ".venv" / "sparkproof-stamp").exists()


def test_environment_is_made_under_a_lock(checkout, commands, monkeypatch):
    held = []

    def try_lock(command, **options):
        with (checkout / "requirements.lock").open("rb") as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                held.append(command)
        return commands(command, **options)

    monkeypatch.setattr(bootstrap.subprocess, "run", try_lock)
    bootstrap.make(checkout / ".venv")
    assert len(held) == 2


@pytest.mark.parametrize("version", [(3, 8), (3, 10)])
def test_old_python_is_told_which_one_is_needed(checkout, commands, monkeypatch, capsys, version):
    monkeypatch.setattr(bootstrap.sys, "version_info", VersionInfo(*version, 0, "final", 0))
    said = refused(capsys)
    assert "Python 3.11 or newer is needed" in said
    assert f"is {version[0]}.{version[1]}" in said
    assert commands.ran == []


@pytest.mark.parametrize("missing", ["ensurepip", "venv"])
def test_system_without_venv_is_told_which_package_to_install(checkout, commands, monkeypatch, capsys, missing):
    without(monkeypatch, missing)
    monkeypatch.setattr(bootstrap.sys, "version_info", VersionInfo(3, 12, 3, "final", 0))
    assert "sudo apt install python3.12-venv (or python3-venv), or install uv" in refused(capsys)
    assert commands.ran == []


def test_system_without_venv_uses_uv_when_it_is_there(checkout, commands, monkeypatch):
    without(monkeypatch, "ensurepip", uv="/usr/bin/uv")
    bootstrap.make(checkout / ".venv")
    assert commands.ran[0][:3] == ["/usr/bin/uv", "venv", "--seed"]
    assert commands.ran[1][1:4] == ["-m", "pip", "install"]


def test_failed_install_shows_pips_last_lines_and_where_to_look(checkout, commands, capsys):
    noise = [f"WARNING: Location 'file:///mnt/x{i}/' is ignored: it is neither a file nor a directory." for i in range(100)]
    commands.fails["pip"] = "\n".join(["first", *noise, "ERROR: No matching distribution found for duckdb==2.0.1"])
    said = refused(capsys)
    assert "No matching distribution found for duckdb" in said
    assert "is ignored" not in said
    assert "pip config list" in said


def test_failed_venv_shows_what_the_system_says(checkout, commands, capsys):
    commands.fails["venv"] = "The virtual environment was not created successfully because ensurepip is not\navailable."
    assert "because ensurepip is not" in refused(capsys)


def test_folder_with_something_else_is_never_cleared(checkout, commands, monkeypatch, capsys, tmp_path):
    (tmp_path / "thesis.txt").touch()
    monkeypatch.setenv("SPARKPROOF_VENV", str(tmp_path))
    assert "holds something else" in refused(capsys)
    assert commands.ran == []


def test_unwritable_place_is_said_without_a_traceback(checkout, commands, monkeypatch, capsys):
    (checkout / "a file").touch()
    monkeypatch.setenv("SPARKPROOF_VENV", str(checkout / "a file" / "venv"))
    assert "a file" in refused(capsys)


def test_ctrl_c_exits_with_130(checkout, commands, monkeypatch):
    def interrupted(command, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap.subprocess, "run", interrupted)
    with pytest.raises(SystemExit) as stopped:
        bootstrap.start(["hello"])
    assert stopped.value.code == 130
    assert not (checkout / ".venv" / "sparkproof-stamp").exists()


def test_bootstrap_stays_short_and_needs_only_the_standard_library():
    source = (REPOSITORY / "runners" / "bootstrap.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    imported = {line.split()[1].split(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("entry", ["runners/run.py", "tests/__main__.py", "runners/bootstrap.py"])
def test_entry_points_can_be_read_by_an_old_python(entry):
    source = (REPOSITORY / entry).read_text(encoding="utf-8")
    compile(source, entry, "exec", dont_inherit=True)
    assert "from __future__ import annotations" not in source, "Python 3.6 refuses it with a traceback"
    assert ":=" not in source, "Python 3.7 refuses it with a traceback"
