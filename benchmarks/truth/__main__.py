"""`python -m benchmarks.truth [--quick] [--peers [FOLDER]] [--only NAME ...] [--json]`: how right our numbers are, and what they cost.

On a machine that is not quiet `--realtime` runs every client, ours and the peers', before ordinary processes while it times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.truth import report
from benchmarks.truth.accuracy import Row, compare, compare_peer
from benchmarks.truth.cost import Cost, another_turn, profile, sparkproof_as_peer, with_capacity
from benchmarks.truth.ours import PROMPT_TOKENS, measure_scenario
from benchmarks.truth.peer_environments import default_folder, make_environment, newest_vllm
from benchmarks.truth.peers import TOOLS, Peer, find_peers, run_peer
from benchmarks.truth.process import RunningTruth, truth_server
from benchmarks.truth.realtime import raise_this_process
from benchmarks.truth.scenarios import QUICK, SCENARIOS, Scenario, scenario_named
from suites.canaries.zoo import materialise

Say = Callable[[str], None]
OURS = "sparkproof"


def measure_ours(server: RunningTruth, scenario: Scenario, repeats: int) -> Row:
    """Our row of one scenario."""
    server.choose(scenario, prompt_tokens=PROMPT_TOKENS)
    said = measure_scenario(server.base_url, scenario, repeats)
    return compare(OURS, scenario, said, server.sent())


def measure_peer(server: RunningTruth, peer: Peer, scenario: Scenario, repeats: int, tokenizer: Path, *, realtime: bool) -> Row:
    """A peer's row of one scenario."""
    server.choose(scenario, prompt_tokens=PROMPT_TOKENS)
    run = run_peer(peer, server, scenario, scenario.streams * repeats, tokenizer, realtime=realtime)
    return compare_peer(peer.name, scenario, run.said, server.sent())


def chosen(only: Sequence[str], quick: bool) -> tuple[Scenario, ...]:
    """The scenarios to run. Raises SystemExit for a name that there is not."""
    try:
        return tuple(scenario_named(name) for name in only or (QUICK if quick else [s.name for s in SCENARIOS]))
    except KeyError as unknown:
        raise SystemExit(str(unknown.args[0])) from None


def machine() -> str:
    """Processor and cores."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    )
    return f"{names[0] if names else platform.processor() or 'unknown processor'}, {os.cpu_count()} cores, Linux {platform.release()}"


def peers_of(arguments: argparse.Namespace, say: Say) -> tuple[tuple[Peer, ...], tuple[str, ...]]:
    """The peers asked for, installed if they are not there, and a sentence for each that there is not."""
    if arguments.peers is None:
        return (), ()
    failed = [why for name in TOOLS if (why := make_environment(arguments.peers, name, say)) is not None]
    found, missing = find_peers(arguments.peers, arguments.vllm_python or newest_vllm())
    return found, (*failed, *(m for m in missing if m.partition(":")[0] not in {f.partition(":")[0] for f in failed}))


def run(arguments: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Everything that was asked for. With `--keep`, what is known so far is kept after every scenario and tool."""
    scenarios = () if arguments.no_accuracy else chosen(arguments.only, arguments.quick)
    peers, missing = peers_of(arguments, say)
    repeats = 2 if arguments.quick else 3
    rows, parts, load = list[Row](), list[tuple[str, float]](), os.getloadavg()[0]
    tools = () if arguments.no_cost else (sparkproof_as_peer(_revision()), *peers)
    costs = {tool.name: Cost(tool.name, ()) for tool in tools}
    raised = arguments.realtime and raise_this_process()
    tokenizer = materialise("dense", "bf16", arguments.scratch)
    with truth_server() as server:

        def so_far() -> dict[str, Any]:
            about = {
                "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
                "machine": machine(),
                "python": platform.python_version(),
                "versions": {OURS: _revision(), **{peer.name: peer.version for peer in peers}},
                "load": [load, os.getloadavg()[0]],
                "realtime": server.realtime,
                "clients_realtime": raised or os.sched_getscheduler(0) != os.SCHED_OTHER,
                "missing": list(missing),
            }
            result = report.result_of(rows, tuple(costs.values()), parts, about)
            if arguments.keep:
                report.write(result, arguments.keep)
            return result

        for scenario in scenarios:
            say(f"{scenario.name}: {OURS}")
            rows.append(measure_ours(server, scenario, repeats))
            for peer in peers:
                say(f"{scenario.name}: {peer.name}")
                rows.append(measure_peer(server, peer, scenario, repeats, tokenizer, realtime=raised))
            so_far()
        for turn, tool in product(range(arguments.turns), tools):
            say(f"cost, turn {turn + 1} of {arguments.turns}: {tool.name}")
            costs[tool.name] = another_turn(costs[tool.name], tool, server, tokenizer, realtime=raised)
            so_far()
        for tool in tools:
            costs[tool.name] = with_capacity(costs[tool.name], tool, server, tokenizer, say, realtime=raised)
            so_far()
        if tools:
            parts = profile(server)
        return so_far()


def _revision() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return done.stdout.strip() or "unknown revision"


def main() -> int:
    """1 if one of our numbers is wrong or missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one scenario of each kind, two batches each")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these scenarios, of every tool")
    parser.add_argument(
        "--peers",
        nargs="?",
        type=Path,
        const=default_folder(),
        metavar="FOLDER",
        help="time with the peers too, out of this folder",
    )
    parser.add_argument("--vllm-python", type=Path, help="Python of an environment with vLLM, for `vllm bench serve`; else the newest made")
    parser.add_argument("--no-cost", action="store_true", help="accuracy only")
    parser.add_argument("--turns", type=int, default=3, help="how often the cost of every tool is measured, all tools in turns (3)")
    parser.add_argument("--no-accuracy", action="store_true", help="cost only")
    parser.add_argument(
        "--scratch", type=Path, default=Path.home() / ".cache" / "sparkproof" / "canaries", help="where the canary is laid out"
    )
    parser.add_argument("--realtime", action="store_true", help="clients before ordinary processes while they time; needs the right to")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--keep", metavar="NAME", help="write results/NAME.json beside this module")
    parser.add_argument("--show", metavar="NAME", help="print the tables of a kept result; nothing is measured")
    parser.add_argument("--readme", action="store_true", help="write the tables of all kept results into README.md; nothing is measured")
    arguments = parser.parse_args()
    if arguments.readme:
        report.write_readme()
        return 0
    result = report.read(arguments.show) if arguments.show else run(arguments, lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps(result, indent=1) if arguments.json else report.tables(result))
    return int(any(row["tool"] == OURS and row["verdict"] != "right" for row in result["accuracy"]))


if __name__ == "__main__":
    raise SystemExit(main())
