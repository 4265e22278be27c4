"""`python3 -m tests [pytest arguments]`: the tests, on a machine that has only git and Python."""

import sys
from pathlib import Path

from runners.bootstrap import start

if __name__ == "__main__":
    arguments = sys.argv[1:] or [str(Path(__file__).resolve().parent)]
    start(["pytest", *arguments])
