"""Otava (change points by e-divisive and a t test) in an environment of its own.

Trap: as a library it brings some 45 distributions and pins numpy; in our environment it would decide our versions. Rule: it lives in a
cached environment made by uv, is asked over a pipe, and if it cannot be had the output says why instead of a number.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import uv
from platformdirs import user_cache_path

from benchmarks.verdict.days import Day
from benchmarks.verdict.methods import FLOOR, Method

VERSION = "0.8.0"
MAX_P = 0.001
_INSTALL_TIMEOUT_S = 300
_WORKER = Path(__file__).with_name("otava_worker.py")


class OtavaUnavailableError(RuntimeError):
    """Otava cannot be installed or does not answer."""


@contextmanager
def otava_method() -> Iterator[Method]:
    """Otava as a method, its process alive inside the block; installs it on first use. Raises OtavaUnavailableError."""
    command = [str(_environment()), str(_WORKER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        rule = f"apache-otava {VERSION} on medians, p = {MAX_P}, magnitude 3 %: a change point at the newest night"
        try:
            yield Method(f"Otava {VERSION}", rule, lambda days: _ask(worker, days))
        finally:
            worker.kill()


def _environment() -> Path:
    home = user_cache_path("sparkproof") / f"otava-{VERSION}"
    python = home / "bin" / "python"
    if not (home / "complete").exists():
        _run([uv.find_uv_bin(), "venv", "--quiet", "--clear", str(home)])
        _run([uv.find_uv_bin(), "pip", "install", "--quiet", "--python", str(python), f"apache-otava=={VERSION}"])
        (home / "complete").touch()
    return python


def _run(command: Sequence[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()[-1:] or ["no output"]
        raise OtavaUnavailableError(f"cannot install apache-otava {VERSION}: {last[0][:300]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OtavaUnavailableError(f"cannot install apache-otava {VERSION}: {type(error).__name__}") from error


def _ask(worker: subprocess.Popen[str], days: Sequence[Day]) -> list[int]:
    question = {"max_pvalue": MAX_P, "min_magnitude": FLOOR, "series": [[median(night) for night in day.per_night] for day in days]}
    if worker.stdin is None or worker.stdout is None:
        raise OtavaUnavailableError("the worker has no pipes")
    try:
        worker.stdin.write(json.dumps(question) + "\n")
        worker.stdin.flush()
        told: list[int] = json.loads(worker.stdout.readline())
    except (OSError, ValueError) as error:
        raise OtavaUnavailableError(f"apache-otava {VERSION} did not answer: {type(error).__name__}") from error
    return told
