"""`sparkproof shape`: list the shapes with their arithmetic, and write their folders.

Trap: somebody waits for a download that a shape does not need, or starts one that cannot fit. Rule: sizes and the ceiling of each are
printed before anything is made, and making one takes a second.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.table import Table

from runners.admission import canaries_of
from runners.cli.shell import err, errors_shown, out, print_json, shown
from runners.envs.environment import cache_folder
from runners.errors import UsageError
from runners.models import shape_folder
from suites.recipes import recipe_for
from suites.roofline import GB10_BANDWIDTH_BYTES_S
from suites.shapes import PREFIX, Shape, all_shapes, shape_for

shape = typer.Typer(name="shape", help="Real models' shapes with random weights: list them, write their folders.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

CONTEXT = 256
"""Tokens in the KV cache for which the ceiling is listed: the middle of an answer of the workload decode_c1."""


@dataclass(frozen=True)
class _Listed:
    """What `list` shows. Bytes are those of a checkpoint's layout; the ceiling is decode of one stream at `bandwidth_gb_s`."""

    model: str
    weight_format: str
    parameters: int
    active_parameters: int
    total_bytes: int
    active_bytes_per_token: int
    kv_bytes_per_token: int
    bandwidth_gb_s: float
    context_tokens: int
    roofline_tok_s: float | None
    canaries: tuple[str, ...]
    source: str


@shape.command("list")
def list_shapes(
    bandwidth: Annotated[float, typer.Option(min=0.1, help="Memory bandwidth in GB/s; default: a GB10's.")] = GB10_BANDWIDTH_BYTES_S / 1e9,
    tiny: Annotated[bool, typer.Option("--tiny", help="The tiny ones too, which are for tests.")] = False,
    json_: Json = False,
) -> None:
    """List the shapes: bytes in all, bytes that one token reads, and the decode rate that memory allows at most.

    Examples:

      sparkproof shape list

      sparkproof shape list --bandwidth 4800 --json

    Exit codes: 0 listed, 2 usage.
    """
    with errors_shown():
        listed = [_listed(one, bandwidth) for one in all_shapes().values() if tiny or not one.is_tiny]
        if json_:
            print_json([asdict(entry) for entry in listed])
            return
        table = Table(header_style="bold")
        table.add_column("--model", no_wrap=True)
        for heading in ("weights GB", "a token GB", "KV kB a token", f"tok/s at {bandwidth:g} GB/s"):
            table.add_column(heading, justify="right")
        table.add_column("its canaries", overflow="fold")
        for entry in listed:
            table.add_row(
                entry.model,
                f"{entry.total_bytes / 1e9:.4g}",
                f"{entry.active_bytes_per_token / 1e9:.3g}",
                f"{entry.kv_bytes_per_token / 1e3:.4g}",
                "–" if entry.roofline_tok_s is None else f"{entry.roofline_tok_s:.3g}",
                ", ".join(entry.canaries),
            )
        out.print(table)
        out.print(f"One stream, {CONTEXT} tokens in a 16-bit KV cache. Run one: sparkproof run --model NAME", markup=False, style="dim")


@shape.command()
def make(
    name: Annotated[str | None, typer.Argument(help="Shape, such as llama-3.1-8b-fp8; see `shape list`.", show_default=False)] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every shape.")] = False,
    json_: Json = False,
) -> None:
    """Write config.json and a filler tokenizer of the right vocabulary into the cache. Nothing is downloaded; `run` does it by itself.

    Examples:

      sparkproof shape make llama-3.1-8b-fp8

      sparkproof shape make --all --json

    Exit codes: 0 written or already there, 2 usage, 3 it cannot be written.
    """
    with errors_shown():
        if all_ == (name is not None):
            raise UsageError("give one shape or --all.", todo="`sparkproof shape list --tiny` names them.")
        asked = list(all_shapes().values()) if name is None else [shape_for(name)]
        written = []
        for one in asked:
            with err.status(f"writing {one.name} ..."):
                path = shape_folder(one.name, cache_folder())
            written.append({"model": f"{PREFIX}{one.name}", "path": str(path)})
            if not json_:
                out.print(shown(str(path)), markup=False, soft_wrap=True)
        if json_:
            print_json(written)


def _listed(one: Shape, bandwidth_gb_s: float) -> _Listed:
    recipe = recipe_for(f"{PREFIX}{one.name}")
    return _Listed(
        model=recipe.name,
        weight_format=one.weight_format,
        parameters=one.parameters,
        active_parameters=one.active_parameters,
        total_bytes=one.total_bytes,
        active_bytes_per_token=one.active_bytes,
        kv_bytes_per_token=one.kv_bytes_per_token(),
        bandwidth_gb_s=bandwidth_gb_s,
        context_tokens=CONTEXT,
        roofline_tok_s=None if one.launch_bound else one.roofline_tok_s(bandwidth_gb_s * 1e9, CONTEXT),
        canaries=tuple(canary.name for canary in canaries_of(recipe)),
        source=one.family.source,
    )
