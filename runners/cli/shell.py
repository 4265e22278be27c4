"""What every command shares: where the store is, how errors end the program, and the two consoles.

Results go to standard output, everything else (progress, warnings, errors) to standard error, so that `--json` can be piped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs
from rich.console import Console
from rich.text import Text

from results.errors import FolderError, StoreError
from results.redact import plain, redact
from results.store import Store
from results.vocabulary import ExitCode
from runners.errors import SparkproofError
from runners.process.interrupt import Interrupted
from suites.errors import SuiteError

_FILE_WIDTH = 120
"""Columns of output that goes to a file or pipe, which has no width of its own."""


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _FILE_WIDTH
    return console


out = _console(stderr=False)
err = _console(stderr=True)


def store_root() -> Path:
    """`$SPARKPROOF_HOME`, or the user's data directory."""
    return Path(os.environ.get("SPARKPROOF_HOME") or platformdirs.user_data_path("sparkproof")).expanduser().absolute()


def open_store() -> Store:
    """The user's result store."""
    return Store(store_root())


def print_json(data: Any) -> None:
    """Print `data` as JSON on standard output, exactly (no wrapping, no colour)."""
    sys.stdout.write(json.dumps(data, indent=2, default=str, allow_nan=False) + "\n")


def fail(message: str, *, where: str = "", todo: str = "") -> None:
    """Say what went wrong, where, and what to do next."""
    text = Text.assemble(("error: ", "bold red"), shown(message))
    if where:
        text.append(f"\n  where: {shown(where)}")
    if todo:
        text.append(f"\n  next:  {shown(todo)}")
    err.print(text)


@contextmanager
def errors_shown() -> Iterator[None]:
    """Turn our own errors into their message and exit code; anything else is a bug and keeps its traceback."""
    try:
        yield
    except SparkproofError as error:
        fail(error.message, where=error.where, todo=error.todo)
        raise SystemExit(error.exit_code) from error
    except SuiteError as error:
        fail(error.message, where=error.where, todo=error.todo)
        raise SystemExit(ExitCode.USAGE) from error
    except FolderError as error:
        fail(error.message, where=error.where, todo=error.todo)
        raise SystemExit(ExitCode.USAGE) from error
    except StoreError as error:
        fail(error.message, where=error.where, todo=error.todo)
        raise SystemExit(ExitCode.INFRASTRUCTURE) from error
    except (KeyboardInterrupt, Interrupted) as error:
        fail("interrupted")
        raise SystemExit(ExitCode.INTERRUPTED) from error


def shown(text: str, limit: int = 4_000) -> str:
    """Text from outside as it may be shown: no secrets, no escapes, bounded. Print it as `Text` or without markup."""
    return plain(redact(text), limit)


def cell(text: str, limit: int = 300) -> Text:
    """A table cell of text from outside: brackets in it are brackets, never markup."""
    return Text(plain(text, limit))
