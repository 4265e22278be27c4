"""How to make an engine's environment by hand: the uv commands of its install plan, as comments of a serve script.

Trap: "pip install vllm" does not give what was measured. Rule: the commands are those that `runners/envs/maker.py` runs for this plan.
"""

from __future__ import annotations

import shlex

from runners.envs.recipes import InstallPlan


def commands_by_hand(plan: InstallPlan, folder: str) -> tuple[str, ...]:
    """Shell commands that make the environment of `plan` in `folder`, one a line."""
    quoted = shlex.quote(folder)
    python = shlex.quote(f"{folder}/bin/python")
    lines = [f"uv venv --no-project --python {shlex.quote(plan.python)} {quoted}"]
    options = [f"--torch-backend {shlex.quote(plan.torch_backend)}"] if plan.torch_backend else []
    overrides = [*plan.overrides, *(f"{name}; python_version < '0'" for name in plan.without)]
    if overrides:
        file = shlex.quote(f"{folder}/overrides.txt")
        lines.append(f"printf '%s\\n' {' '.join(map(shlex.quote, overrides))} > {file}")
        options.append(f"--overrides {file}")
    lines.append(" ".join(["uv pip install --python", python, *options, *map(shlex.quote, plan.requires)]))
    if plan.stubs:
        names = ", ".join(name for name, _ in plan.stubs)
        lines.append(f"# and importable, empty stand-ins for: {names} (`sparkproof run` makes them)")
    return tuple(lines)
