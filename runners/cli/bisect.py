"""`sparkproof bisect`: between which two releases something broke, or was repaired."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from results.vocabulary import ExitCode, Outcome, exit_code_of
from runners.bisect.visit import BisectRequest, BisectResult, prepare, present, run_bisect, sentence
from runners.cli.progress import SessionProgress
from runners.cli.shell import cell, err, errors_shown, open_store, out, print_json, shown
from runners.envs.environment import cache_folder


def bisect(
    good: Annotated[str, typer.Option(help="A release on which it works. Newer than --bad: look for the repair.")],
    bad: Annotated[str, typer.Option(help="A release on which it does not.")],
    model: Annotated[str, typer.Option(help="Recipe or checkpoint folder.")],
    backend: Annotated[str, typer.Option(help="Backend.")],
    engine: Annotated[str, typer.Option(help="vllm or sglang, or vllm@docker.")] = "vllm",
    metric: Annotated[str | None, typer.Option(help="A number instead of pass and fail: decode_tok_s, or decode_c8/ttft_s.")] = None,
    boots: Annotated[int | None, typer.Option(min=1, max=20, help="Boots of a release (default 1, for a number 3).")] = None,
    repeats: Annotated[int | None, typer.Option(min=1, max=100, help="Timed repeats of each workload in a boot.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the releases and what is known of them; start nothing.")] = False,
    download: Annotated[bool, typer.Option("--download", help="Allow fetching model files from a hub.")] = False,
    label: Annotated[str | None, typer.Option(help="What you call this node.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the release in which something broke or was repaired, in log2 steps over published releases.

    What was tested is read back from the store: after Ctrl-C or a reboot, the same command goes on where it stopped. Releases that cannot
    run here are stepped around; then the answer is a range.

    Examples:

      sparkproof bisect --engine vllm --good 0.27.1 --bad 0.32.0 --model canary-dense --backend eager

      sparkproof bisect --good 0.27.1 --bad 0.32.0 --model gemma3-270m --backend eager --metric decode_tok_s

      sparkproof bisect --engine sglang --good 0.5.23 --bad 0.5.14 --model canary-dense --backend eager

    Exit codes: 0 found (a release, or the narrowest range that can be tested), 2 usage, or good is not good or bad not bad, 3 our or the
    node's fault, 130 interrupted.
    """
    with errors_shown():
        request = BisectRequest(engine, good, bad, model, backend, metric, boots, repeats, label, download)
        with err.status("listing the releases ..."):
            question = prepare(request)
        store = open_store()
        if dry_run:
            result = present(question, store)
        else:
            with SessionProgress() as progress:
                result = run_bisect(question, store, cache_folder(), progress, lambda text: err.print(shown(text, 1_000), markup=False))
        exit_code = ExitCode.OK if dry_run else _exit_code(result)
        if json_:
            print_json(as_json(result, exit_code))
        else:
            _print(result)
        raise SystemExit(exit_code)


def as_json(result: BisectResult, exit_code: int) -> dict[str, Any]:
    """Everything that is known."""
    known = result.known
    return {
        "exit_code": exit_code,
        "sentence": sentence(result),
        "metric": result.question.series,
        "last_good": known.last if known else None,
        "first_bad": known.first if known else None,
        "between": list(known.between) if known else [],
        "also_bad_before": list(known.contradictions) if known else [],
        "next": result.next_release,
        "problem": result.problem,
        "boots_made": len(result.made),
        "releases": [
            {
                "release": release,
                **_row(result, release),
                "run_ids": list(result.tested[release].run_ids) if release in result.tested else [],
            }
            for release in result.question.releases
        ],
    }


def _row(result: BisectResult, release: str) -> dict[str, Any]:
    tested = result.tested.get(release)
    if tested is None:
        return {"answer": "not tested", "state": None, "boots": 0, "value": None, "reason": None}
    words = {"like_start": "good", "like_end": "bad", "cannot_tell": "cannot be tested"}
    answer = words[tested.answer] if tested.answer is not None else "more boots needed"
    return {"answer": answer, "state": str(tested.state), "boots": tested.boots, "value": tested.value, "reason": tested.reason}


def _print(result: BisectResult) -> None:
    table = Table(header_style="bold")
    for name in ("release", "answer", "state", "boots", "reason"):
        table.add_column(name, overflow="fold")
    for release in result.question.releases:
        row = _row(result, release)
        values = (release, *(row[name] for name in ("answer", "state", "boots", "reason")))
        table.add_row(*(cell("–" if value is None else str(value), 400) for value in values))
    out.print(table)
    out.print(shown(sentence(result), 1_000), markup=False, style="bold")
    if not result.finished and result.problem is None:
        out.print("not finished: the same command goes on from here", markup=False)


def _exit_code(result: BisectResult) -> int:
    if result.problem is not None:
        return ExitCode.USAGE
    if result.finished:
        return ExitCode.OK
    outcomes = [made.run.outcome or Outcome.INFRASTRUCTURE for made in result.made]
    return ExitCode.INTERRUPTED if exit_code_of(outcomes) == ExitCode.INTERRUPTED else ExitCode.INFRASTRUCTURE
