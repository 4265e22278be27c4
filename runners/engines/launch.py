"""What both engines' serve commands have in common.

Trap: a server inherits half its behaviour from the shell it was started in (a hub token, colours in the log). Rule: everything that decides
what runs or what the log looks like is in the argv or in the environment written here; the user's own settings come last and win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath

from runners.engines.base import UNKNOWN, ServeCommand, ServeRequest
from runners.engines.versions import version_range

QUIET_ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "DO_NOT_TRACK": "1"}
OFFLINE_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""For a model that lies on this machine: nothing may be fetched while a server starts."""

VersionedArguments = tuple[tuple[str, tuple[str, ...]], ...]
"""(version range, arguments) rows, first match wins."""


def arguments_for(version: str, table: VersionedArguments) -> tuple[str, ...]:
    """The arguments of the first row whose range holds `version`, none if no row does; of the last (newest) row for an unknown version."""
    if version == UNKNOWN:
        return table[-1][1]
    return next((arguments for versions, arguments in table if version_range(versions).contains(version)), ())


def with_defaults(request: ServeRequest, defaults: Mapping[str, str]) -> tuple[str, ...]:
    """`--option value` pairs of `defaults`, except options that the recipe or backend sets itself."""
    given = {argument.partition("=")[0] for argument in request.arguments}
    return tuple(part for option, value in defaults.items() if option not in given for part in (option, value))


def command(argv: Sequence[str], request: ServeRequest, environment: Mapping[str, str]) -> ServeCommand:
    """argv with the request's own arguments last, and the environment with the request's own values on top."""
    local = OFFLINE_ENVIRONMENT if PurePath(request.model_path).is_absolute() else {}
    merged = {**QUIET_ENVIRONMENT, **local, **environment, **request.environment}
    return ServeCommand(tuple(argv) + request.arguments, merged)


def option(name: str, value: int | None) -> tuple[str, ...]:
    """`--name value`, or nothing for None."""
    return () if value is None else (name, str(value))
