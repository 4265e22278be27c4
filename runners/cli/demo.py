"""`sparkproof demo`: the dashboard over the sample of real measurements that comes with Sparkproof."""

from __future__ import annotations

from typing import Annotated

import typer

from results.sample import sample_store
from runners.cli.dashboard import DEFAULT_PORT, LOOPBACK, Host, Port, serve
from runners.cli.shell import err, errors_shown
from runners.envs.environment import cache_folder


def demo(
    host: Host = LOOPBACK,
    port: Port = DEFAULT_PORT,
    json_: Annotated[bool, typer.Option("--json", help="Print the address as JSON before serving.")] = False,
) -> None:
    """Serve the dashboard over a small set of real measurements. Your own store is not touched.

    Example:  sparkproof demo
    """
    with errors_shown():
        with err.status("making the sample's store ..."):
            store = sample_store(cache_folder() / "demo")
        serve(store.root, host, port, json_=json_)
