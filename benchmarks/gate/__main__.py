"""`python -m benchmarks.gate collect|judge|tables`: see README.md."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.gate.cases import clean_cases, fault_cases
from benchmarks.gate.collect import add_options, collect_as_asked
from benchmarks.gate.judge import NOT_LOADED, Pass, passes_of
from benchmarks.gate.peers import ask_peers
from benchmarks.gate.report import clean_table, fault_table, rows, weights_of, write, write_tables
from runners.envs.environment import ensure
from runners.spec import EngineSpec
from suites.canaries import zoo


def judged(arguments: argparse.Namespace) -> tuple[list[Pass], list[Pass]]:
    """Every pass that was collected: of faults and clean ones."""
    faults, clean = [], []
    for canary in zoo.MANIFEST_SHA256:
        for weight_format in zoo.weight_formats(canary):
            faults += [one for case in fault_cases(canary, weight_format) for one in passes_of(case, arguments.folder)]
            clean += [one for case in clean_cases(canary, weight_format, 1) for one in passes_of(case, arguments.folder)]
    return faults, clean


def judge(arguments: argparse.Namespace) -> None:
    """Judge what was collected, ask the peers if their Pythons are given, write the results and print the tables."""
    faults, clean = judged(arguments)
    head: dict[str, Any] = {"engine": arguments.engine, "date": datetime.now(UTC).date().isoformat(), "machine": arguments.machine}
    head["weights"] = {name: weights_of(name) for name in zoo.MANIFEST_SHA256}
    sound = {one.case.canary: one for one in clean if one.case.weight_format == "bf16" and not one.caught}
    peers = {}
    if arguments.benchy and arguments.infer_check:
        peers = ask_peers(faults, sound, arguments.benchy, arguments.infer_check, arguments.folder / "infer-check")
    found, runs = rows(faults), rows(clean)
    name = arguments.engine.replace("==", "-")
    print(write(f"faults-{name}", {**head, "faults": found, "peers": peers}))
    print(write(f"clean-{name}", {**head, "runs": runs}))
    print(fault_table(found, peers))
    print(clean_table(runs))
    served = [r for r in found if r["outcome"] != NOT_LOADED]
    caught, alarms = sum(r["caught"] for r in served), sum(r["caught"] for r in runs)
    refused = f"{len(found) - len(served)} more refused by the engine; " if len(found) > len(served) else ""
    print(f"{caught} of {len(served)} faults caught; {refused}{alarms} false alarms in {len(runs)} clean runs")


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate")
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="ask a release on this machine; goes on where an earlier stretch ended")
    add_options(collecting)
    judging = commands.add_parser("judge", help="judge what was collected and write the results")
    judging.add_argument("--folder", type=Path, required=True, help="where the answers are")
    judging.add_argument("--machine", required=True, help="what the answers were made on, in words")
    judging.add_argument("--benchy", type=Path, help="Python of an environment with llama-benchy")
    judging.add_argument("--infer-check", type=Path, help="Python of an environment with infer-check")
    commands.add_parser("tables", help="write the tables of the tracked results")
    for command in (collecting, judging):
        command.add_argument("--engine", default="vllm==0.32.0")
    arguments = parser.parse_args()
    if arguments.command == "tables":
        print(write_tables())
    elif arguments.command == "judge":
        judge(arguments)
    else:
        environment = ensure(EngineSpec.parse(arguments.engine), has_cuda=arguments.cuda, progress=print)
        collect_as_asked(arguments, str(environment.python))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
