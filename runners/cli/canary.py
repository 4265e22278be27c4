"""`sparkproof canary`: list our canaries, write their checkpoints, and check that they are the recorded ones.

Trap: a canary's answers are compared with goldens while the weights under it are not the ones that gave them. Rule: every tracked file and
every checkpoint that can be made of them is checked against recorded digests, here by hand and in every boot by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from results.vocabulary import ExitCode
from runners.cli.shell import err, errors_shown, out, print_json, shown
from runners.envs.environment import cache_folder
from runners.errors import InfrastructureError, UsageError
from suites.canaries import zoo

canary = typer.Typer(name="canary", help="Our tiny models with exact answers: list, write and verify them.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class _Listed:
    """What `list` shows of a canary; `packed_bytes` is its one packed file."""

    name: str
    architecture: str
    formats: tuple[str, ...]
    gate_prompts: int
    bos_prompts: int
    dropped: tuple[str, ...]
    packed_bytes: int


@dataclass(frozen=True)
class _Written:
    """A checkpoint folder that `build` made or found right."""

    name: str
    weight_format: str
    path: str


@dataclass(frozen=True)
class _Verified:
    """`problem` None: all tracked files and all checkpoints are the recorded ones."""

    name: str
    checkpoints: tuple[str, ...]
    problem: str | None


@canary.command("list")
def list_canaries(json_: Json = False) -> None:
    """List the canaries and the weight formats that each can be written in.

    Example:  sparkproof canary list

    Exit codes: 0 listed, 3 a canary's files are damaged.
    """
    with errors_shown(), _canary_errors():
        listed = [_listed(name) for name in zoo.MANIFEST_SHA256]
        if json_:
            print_json([asdict(entry) for entry in listed])
            return
        table = Table(header_style="bold")
        for heading in ("canary", "architecture", "prompts", "packed", "weight formats"):
            table.add_column(heading, overflow="fold")
        for entry in listed:
            prompts = f"{entry.gate_prompts} + {entry.bos_prompts} BOS"
            table.add_row(entry.name, entry.architecture, prompts, f"{entry.packed_bytes / 1e6:.1f} MB", " ".join(entry.formats))
        out.print(table)


@canary.command()
def build(
    name: Annotated[str | None, typer.Argument(help="The canary; with --all every one.", show_default=False)] = None,
    format_: Annotated[
        list[str] | None, typer.Option("--format", help="Weight format; default: all of the canary's. May be given several times.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every canary.")] = False,
    to: Annotated[Path | None, typer.Option(help="Folder for the checkpoints; default: the cache that `run` uses.")] = None,
    json_: Json = False,
) -> None:
    """Write checkpoint folders that vLLM, SGLang and transformers load, and verify them by hash.

    Examples:

      sparkproof canary build dense

      sparkproof canary build moe --format int4 --format nvfp4 --to ./checkpoints

      sparkproof canary build --all

    Exit codes: 0 written or already right, 2 usage, 3 damaged files or a folder that cannot be written.
    """
    with errors_shown(), _canary_errors():
        asked = _asked(name, tuple(format_ or ()), all_)
        root = (to or cache_folder() / "canaries").expanduser().absolute()
        written = []
        for canary_name, weight_format in asked:
            with err.status(f"writing {canary_name} as {weight_format} ..."):
                path = zoo.materialise(canary_name, weight_format, root)
            written.append(_Written(canary_name, weight_format, str(path)))
            if not json_:
                out.print(shown(str(path)), markup=False, soft_wrap=True)
        if json_:
            print_json([asdict(entry) for entry in written])


@canary.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="Only this canary.", show_default=False)] = None,
    json_: Json = False,
) -> None:
    """Check the tracked files of the canaries, and that every weight format made of them has the recorded sha256.

    Examples:  sparkproof canary verify   ·   sparkproof canary verify moe --json

    Exit codes: 0 all are the recorded ones, 2 usage, 3 something is damaged (named, with what to do).
    """
    with errors_shown(), _canary_errors():
        names = _known(name) if name is not None else tuple(zoo.MANIFEST_SHA256)
        results = []
        for canary_name in names:
            with err.status(f"verifying {canary_name} ..."):
                results.append(_verified(canary_name))
        exit_code = ExitCode.INFRASTRUCTURE if any(result.problem for result in results) else ExitCode.OK
        if json_:
            print_json({"exit_code": exit_code, "canaries": [asdict(result) for result in results]})
        for result in results if not json_ else ():
            if result.problem is None:
                out.print(f"{result.name}: all tracked files and {len(result.checkpoints)} formats are the recorded ones", markup=False)
            else:
                err.print(f"{result.name}: {shown(result.problem)}", markup=False, style="bold red", soft_wrap=True)
        raise SystemExit(exit_code)


def _asked(name: str | None, formats: tuple[str, ...], all_: bool) -> list[tuple[str, str]]:
    """(canary, format) pairs; raises UsageError before anything is written."""
    if all_ == (name is not None):
        raise UsageError("give one canary or --all.", todo=f"Canaries: {', '.join(zoo.MANIFEST_SHA256)}.")
    names = tuple(zoo.MANIFEST_SHA256) if name is None else _known(name)
    pairs = [(canary_name, f) for canary_name in names for f in zoo.weight_formats(canary_name) if not formats or f in formats]
    missing = set(formats) - {weight_format for _, weight_format in pairs}
    if missing:
        known = sorted({weight_format for canary_name in names for weight_format in zoo.weight_formats(canary_name)})
        raise UsageError(f"no such weight format here: {', '.join(sorted(missing))[:80]!r}.", todo=f"Known: {', '.join(known)}.")
    return pairs


def _known(name: str) -> tuple[str, ...]:
    if name not in zoo.MANIFEST_SHA256:
        raise UsageError(f"there is no canary {name[:60]!r}.", todo=f"Canaries: {', '.join(zoo.MANIFEST_SHA256)}.")
    return (name,)


def _listed(name: str) -> _Listed:
    loaded = zoo.load(name)
    config = json.loads(zoo.tracked_file(name, zoo.CONFIG) or b"{}")
    return _Listed(
        name=name,
        architecture=config["architectures"][0],
        formats=zoo.weight_formats(name),
        gate_prompts=len(loaded.prompts),
        bos_prompts=len(loaded.bos_prompts),
        dropped=loaded.dropped,
        packed_bytes=len(zoo.tracked_file(name, zoo.PACKED_WEIGHTS) or b""),
    )


def _verified(name: str) -> _Verified:
    try:
        return _Verified(name, zoo.verify(name), None)
    except zoo.CanaryError as error:
        return _Verified(name, (), str(error))


@contextmanager
def _canary_errors() -> Iterator[None]:
    """The zoo's errors as ours: damaged files and unwritable folders are this installation's fault, never an engine's."""
    try:
        yield
    except zoo.CanaryError as error:
        raise InfrastructureError(str(error), todo="See: sparkproof canary verify.") from error
    except OSError as error:
        where = str(error.filename or "")
        raise InfrastructureError(f"cannot be written: {error.strerror}.", where=where, todo="Choose another folder with --to.") from error
