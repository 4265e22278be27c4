"""`python3 runners/run.py --engine vllm==0.32.0`: `sparkproof run` on a machine that has only git and Python."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runners.bootstrap import start

if __name__ == "__main__":
    start(["runners.cli.main", "run", *sys.argv[1:]])
