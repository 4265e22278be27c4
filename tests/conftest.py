"""What all tests share.

A shell that runs the tests in the background lets them ignore Ctrl-C, and every child would inherit that: tests that send signals need the
dispositions a user's terminal gives. Property tests have no deadline: a busy machine is no failure.
"""

from __future__ import annotations

import signal
from importlib.util import find_spec

from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)
for _number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(_number, signal.SIG_DFL)

settings.register_profile("sparkproof", deadline=None)
settings.load_profile("sparkproof")

collect_ignore = [] if find_spec("torch") else ["suites/canaries/test_torch_side.py"]
"""`tests/test_real_engines.py` runs it with the torch of an engine's environment."""
