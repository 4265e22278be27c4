"""`python -m dashboard`: start the server on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

_HERE = Path(__file__).parent


def options(host: str, port: int) -> list[str]:
    """Streamlit's options: no statistics, no links to other sites, no developer's menu, and only names that this host has."""
    loopback = {"127.0.0.1", "localhost", "::1"}
    # A name in the Host header that is not ours is a rebound name of somebody else's page; a wildcard address has no list of names.
    allowed = sorted(loopback) if host in loopback else ["*"]
    chosen = {
        "server.address": host,
        "server.port": str(port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "server.showEmailPrompt": "false",
        "server.maxUploadSize": "1",
        "server.enableStaticServing": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "type",
        "client.showErrorLinks": "false",
        "runner.magicEnabled": "false",
        "theme.light.primaryColor": "#0072b2",
        "theme.dark.primaryColor": "#56b4e9",
    }
    return [f"--{name}={value}" for name, value in chosen.items()] + [f"--server.allowedHosts={name}" for name in allowed]


def main(arguments: list[str] | None = None) -> None:
    """Replace this process by the server, so that whoever started it ends it."""
    parser = argparse.ArgumentParser(prog="python -m dashboard", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="The store's folder ($SPARKPROOF_HOME).")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8501)
    asked = parser.parse_args(arguments)
    command = [sys.executable, "-P", "-m", "streamlit", "run", str(_HERE / "server.py"), *options(asked.host, asked.port)]
    os.execve(sys.executable, command, {**os.environ, "SPARKPROOF_HOME": str(asked.store)})


if __name__ == "__main__":
    main()
