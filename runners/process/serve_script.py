"""`serve.sh`: the exact command of a boot, to be run by hand or attached to a bug report.

Trap: a pasted command loses its quoting (JSON arguments), its environment, or shows an API key. Rule: the script exports what we set,
unsets what the measured server did not inherit, quotes everything, and shows `[redacted]` for secrets.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from results.redact import HIDDEN, plain, redact_argv, redact_environment
from runners.engines.base import ServeCommand
from runners.process.members import MARK
from runners.process.server import NOT_INHERITED

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def serve_script(command: ServeCommand, notes: Sequence[str] = ()) -> str:
    """The text of the script, `notes` as comments on top. ValueError for a name no shell can export, a NUL byte, or an empty command."""
    if not command.argv or any("\0" in part for part in (*command.argv, *command.environment.values())):
        raise ValueError("a serve command needs a program, and no NUL bytes")
    bad = [name for name in command.environment if not _NAME.fullmatch(name)]
    if bad:
        raise ValueError(f"not names of environment variables: {bad!r}")
    patterns = " ".join(f"${{!{p}*}}" if p.endswith("_") else p for p in NOT_INHERITED)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sorted(redact_environment(command.environment).items())]
    return "\n".join(
        (
            "#!/usr/bin/env bash",
            "# Starts the server with exactly this command. Stop it with Ctrl-C.",
            "# A value shown as [redacted] was a secret: put your own in its place.",
            *(f"# {plain(line)}".rstrip() for note in notes for line in (note.splitlines() or [""])),
            "set -euo pipefail",
            "",
            "# A measured server inherits none of these.",
            f"unset {patterns}",
            "",
            *exports,
            "",
            "exec " + " \\\n    ".join(_lines(redact_argv(command.argv))),
            "",
        )
    )


def _lines(argv: Sequence[str]) -> list[str]:
    """The quoted command, one option with its values a line."""
    lines: list[list[str]] = [[]]
    for part in argv:
        if part.startswith("-"):
            lines.append([])
        lines[-1].append(shlex.quote(part))
    return [" ".join(line) for line in lines if line]


_OURS_ALONE = {"--name": 1, "--label": 1, "--log-driver": 1, "--log-opt": 1, "--detach": 0, "--pull": 1}
"""Options of our `docker run`, with how many values they take, that only serve our own watching and ending of the container."""


def container_by_hand(argv: Sequence[str], environment: Mapping[str, str]) -> ServeCommand:
    """A measured `docker run` as somebody would type it: in the foreground, pulled if needed, without our name and labels (a container with
    our labels would be taken for one that we left behind). Secrets are still named only: the script sets them in docker's own environment.
    """
    kept: list[str] = []
    rest = list(argv[2:])
    while rest and rest[0] != "--entrypoint":
        option = rest.pop(0)
        if option in _OURS_ALONE:
            del rest[: _OURS_ALONE[option]]
        elif option == "--env" and rest and rest[0].startswith(f"{MARK}="):
            rest.pop(0)
        else:
            kept.append(option)
    secrets = {name: value for name, value in environment.items() if redact_environment({name: value})[name] == HIDDEN}
    return ServeCommand((*argv[:2], "--rm", "--interactive", *kept, *rest), secrets)


def write_serve_script(command: ServeCommand, path: Path) -> None:
    """Write the script, executable for everybody (mode 755). ValueError as in `serve_script`."""
    path.write_text(serve_script(command))
    path.chmod(0o755)
