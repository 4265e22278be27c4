"""`serve.sh`: the exact command of a boot, to be run by hand or attached to a bug report.

Trap: a pasted command loses its quoting (JSON arguments), its environment, or shows an API key. Rule: the script exports what we set,
unsets what the measured server did not inherit, quotes everything, and shows `[redacted]` for secrets.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from results.redact import redact_argv, redact_environment
from runners.engines.base import ServeCommand
from runners.process.server import NOT_INHERITED

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def serve_script(command: ServeCommand) -> str:
    """The text of the script. ValueError for a name that no shell can export, a NUL byte, or an empty command."""
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
            "# Starts the server exactly as it was measured. Stop it with Ctrl-C.",
            "# A value shown as [redacted] was a secret: put your own in its place.",
            "set -euo pipefail",
            "",
            "# The measured server inherited none of these.",
            f"unset {patterns}",
            "",
            *exports,
            "",
            "exec " + " \\\n    ".join(shlex.quote(part) for part in redact_argv(command.argv)),
            "",
        )
    )


def write_serve_script(command: ServeCommand, path: Path) -> None:
    """Write the script, executable for everybody (mode 755). ValueError as in `serve_script`."""
    path.write_text(serve_script(command))
    path.chmod(0o755)
