"""`sparkproof dashboard`: the pages over the store, in a browser.

Trap: a page with every log of the machine is put on the network because a server listens on all addresses by default. Rule: loopback,
unless an address is asked for by name, and then it is said what that means.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from runners.cli.shell import err, errors_shown, print_json, store_root
from runners.errors import UsageError

Host = Annotated[str, typer.Option(help="Address to listen on. Anything but loopback lets others read the store.")]
Port = Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")]
LOOPBACK, DEFAULT_PORT = "127.0.0.1", 8501


def dashboard(
    host: Host = LOOPBACK,
    port: Port = DEFAULT_PORT,
    json_: Annotated[bool, typer.Option("--json", help="Print the address as JSON before serving.")] = False,
) -> None:
    """Serve the dashboard over the store until Ctrl-C. A run in another process may write at the same time.

    Examples:

      sparkproof dashboard

      sparkproof dashboard --port 9000

      sparkproof dashboard --host 0.0.0.0      # everybody who reaches this machine can read every result and log
    """
    with errors_shown():
        serve(store_root(), host, port, json_=json_)


def serve(store: Path, host: str, port: int, *, json_: bool) -> None:
    """Become the server. Raises UsageError when the address cannot be listened on."""
    family = _can_listen(host, port)
    url = f"http://{f'[{host}]' if family is socket.AF_INET6 else host}:{port}"
    if json_:
        print_json({"url": url, "store": str(store)})
        sys.stdout.flush()
    if not _is_loopback(host):
        err.print(
            f"{host} is not loopback: everybody who can reach port {port} of this machine can read every result, log and model name of"
            f" {store}. There is no password, and nothing is encrypted.",
            markup=False,
            style="yellow",
        )
    err.print(f"store {store}\n{url} - stop with Ctrl-C", markup=False)
    command = [sys.executable, "-P", "-m", "dashboard", "--store", str(store), "--host", host, "--port", str(port)]
    os.execv(sys.executable, command)


def _can_listen(host: str, port: int) -> socket.AddressFamily:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except socket.gaierror as error:
        raise UsageError(f"no such address: {host[:80]!r}.", todo="Give an address of this machine, such as 127.0.0.1.") from error
    except OSError as error:
        reason = f"{host[:80]} port {port} cannot be listened on: {error.strerror}."
        raise UsageError(reason, todo=f"Another dashboard may run there; try --port {port % 65_535 + 1}.") from error
    return family


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
