"""Run an installer or a docker client as a child that cannot outlive us.

Trap: Ctrl-C stops us, but `uv` or the compiler under it keeps writing into a half-made environment. Rule: every child is an argument list
in its own process group with no standard input, and whatever interrupts us ends the whole group first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LONGEST_LINE = 4096
_MOST_LINES = 2000
_MOST_OUTPUT_BYTES = 50_000_000


@dataclass(frozen=True)
class Finished:
    """`returncode` is None when the command passed its time limit and was ended. `messages` are the last lines of standard error.

    With `all_messages`, those of standard output are among them and `output` is empty.
    """

    returncode: int | None
    output: str
    messages: tuple[str, ...]


def run_command(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    timeout_s: float,
    on_message: Callable[[str], None] = lambda line: None,
    all_messages: bool = False,
) -> Finished:
    """Run `argv` in `folder`; each line of standard error goes to `on_message` as it comes, with `all_messages` each line of standard
    output too (docker tells its progress there). Raises OSError if it cannot be started.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            list(argv),
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if all_messages else output,
            stderr=subprocess.STDOUT if all_messages else subprocess.PIPE,
            start_new_session=True,
        )
        late = threading.Event()

        def end_late() -> None:
            late.set()
            end_group(process)

        timer = threading.Timer(timeout_s, end_late)
        timer.daemon = True
        timer.start()
        try:
            messages = _stream(process, on_message)
            returncode = process.wait()
        except BaseException:
            end_group(process)
            raise
        finally:
            timer.cancel()
        output.seek(0)
        text = output.read(_MOST_OUTPUT_BYTES).decode(errors="replace")
    return Finished(None if late.is_set() else returncode, text, messages)


def _stream(process: subprocess.Popen[bytes], on_message: Callable[[str], None]) -> tuple[str, ...]:
    messages: deque[str] = deque(maxlen=_MOST_LINES)
    pipe = process.stderr or process.stdout
    assert pipe is not None
    with pipe as stream:
        while raw := stream.readline(_LONGEST_LINE):
            line = raw.decode(errors="replace").rstrip()
            messages.append(line)
            on_message(line)
    return tuple(messages)


def end_group(process: subprocess.Popen[bytes], patience_s: float = 5.0) -> None:
    """End the child and everything in its group: politely, then for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
