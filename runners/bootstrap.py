"""Our own Python environment, made on first use with nothing but the standard library, then entered.

Trap: the first command of the README fails on a bare machine, or two started at once spoil each other's environment. Rule: `.venv` in the
checkout (or `$SPARKPROOF_VENV`) is made under a lock from `requirements.lock` by pip, with the user's pip configuration, and stamped last.
"""

import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def start(module: "list[str]") -> None:
    """Replace this process by `python -m MODULE ARGUMENTS` in our environment; exit 3, saying what to do, if that cannot be made."""
    try:
        if sys.version_info < (3, 11):  # noqa: UP036 - started with whatever `python3` is
            raise OSError("Python 3.11 or newer is needed; {} is {}.{}".format(sys.executable, *sys.version_info))
        venv = Path(os.environ.get("SPARKPROOF_VENV") or ROOT / ".venv").absolute()
        make(venv)
        os.execv(venv / "bin" / "python", [str(venv / "bin" / "python"), "-P", "-m", *module])
    except OSError as error:
        sys.stderr.write(f"sparkproof: {error}\n")
        raise SystemExit(3) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def make(venv: Path) -> None:
    """Make or complete the environment unless its stamp says that it is complete. Raises OSError with what to do."""
    lock, python, stamp, uv = ROOT / "requirements.lock", venv / "bin" / "python", venv / "sparkproof-stamp", shutil.which("uv")
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        wanted = hashlib.sha256(held.read() + (ROOT / "pyproject.toml").read_bytes() + str(ROOT).encode()).hexdigest()
        if python.exists() and stamp.exists() and stamp.read_text() == wanted:
            return
        if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
            raise OSError(f"{venv} holds something else. Set SPARKPROOF_VENV to an empty folder.")
        create = [sys.executable, "-m", "venv", *([] if python.exists() else ["--clear"]), str(venv)]
        if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
            if uv is None:
                raise OSError("first run: sudo apt install python{}.{}-venv (or python3-venv), or install uv".format(*sys.version_info))
            create = [uv, "venv", "--seed", "--clear", "--no-project", "--python", sys.executable, str(venv)]
        sys.stderr.write(f"sparkproof: making {venv} (once, takes about a minute)\n")
        for command in (create, [str(python), "-m", "pip", "install", "--require-hashes", "-r", str(lock)]):
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
            if done.returncode:
                told = [line for line in done.stdout.splitlines() if " is ignored: " not in line]
                raise OSError("\n".join([*told[-12:], f"`{shlex.join(command)}` failed. Check `python3 -m pip config list`."]))
        next((venv / "lib").glob("python3*/site-packages")).joinpath("sparkproof.pth").write_text(f"{ROOT}\n")
        script = venv / "bin" / "sparkproof"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} -P -m runners.cli.main "$@"\n')
        script.chmod(0o755)
        stamp.write_text(wanted)
