"""`sparkproof judge FILE`: saved outputs, judged without any server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from results.redact import plain
from results.vocabulary import ExitCode
from runners.cli.shell import cell, errors_shown, out, print_json
from runners.coherence.saved_outputs import MOST_BYTES, SavedVerdict, judge_saved, read_golden, read_outputs
from runners.errors import UsageError

_NAME_LIMIT = 80


def judge(
    file: Annotated[Path, typer.Argument(help='A JSON list of {"name", "text"} (and "finish_reason", if known), or plain text.')],
    golden: Annotated[
        Path | None,
        typer.Option(help="Golden texts, same form; several of one name are alternatives. Without it nothing is `wrong`."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge saved outputs of any model and engine: class, reason and position of each.

    Classes: pass_structure, empty, token_flood, repetition_loop, token_salad; with --golden also match and wrong.

    Examples:

      sparkproof judge answers.json

      sparkproof judge transcript.txt --json

      sparkproof judge answers.json --golden right.json

    Exit codes: 0 nothing is broken, 1 an output is broken (or wrong, with --golden), 2 usage.
    """
    with errors_shown():
        outputs = read_outputs(_bytes(file), str(file))
        known = read_golden(_bytes(golden), str(golden)) if golden is not None else None
        verdicts = judge_saved(outputs, known)
        bad = sum(v.bad for v in verdicts)
        code = ExitCode.BROKEN_OR_SLOWER if bad else ExitCode.OK
        if json_:
            print_json({"items": [_as_json(v) for v in verdicts], "judged": len(verdicts), "bad": bad, "exit_code": code})
        else:
            out.print(_table(verdicts))
            out.print(f"{bad} of {len(verdicts)} outputs are broken or wrong" if bad else f"nothing broken in {len(verdicts)} outputs")
        raise SystemExit(code)


def _bytes(path: Path) -> bytes:
    """At most a little more than may be judged, so that a huge file is refused and not read."""
    try:
        with path.open("rb") as stream:
            return stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}.", where=str(path), todo="Give the path of a file of outputs.") from error


def _as_json(verdict: SavedVerdict) -> dict[str, Any]:
    return {
        "name": plain(verdict.name, 4 * _NAME_LIMIT),
        "class": str(verdict.kind),
        "broken": verdict.broken,
        "reason": verdict.reason,
        "position": verdict.position,
        "numbers": dict(verdict.numbers),
    }


def _table(verdicts: list[SavedVerdict]) -> Table:
    table = Table(header_style="bold")
    for column in ("name", "class", "position", "reason"):
        table.add_column(column, overflow="fold")
    for v in verdicts:
        kind = cell(str(v.kind))
        kind.stylize("bold red" if v.bad else "green")
        table.add_row(cell(v.name, _NAME_LIMIT), kind, "" if v.position is None else f"{v.position:,}", cell(v.reason))
    return table
