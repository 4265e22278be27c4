"""Stand-ins for packages that an engine imports at start and never calls on this node.

Trap: a stand-in that answers quietly computes nonsense. Rule: it can be imported and named, and anything that calls it fails with its name.
The version is 0, so that version checks treat the package as too old to be used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")

SOURCE = '''"""Stand-in made by Sparkproof: importable, not callable."""

__version__ = "0.0.0"


class _Missing(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _missing(f"{cls.__qualname__}.{name}")

    def __call__(cls, *args, **kwargs):
        raise RuntimeError(f"{cls.__qualname__} is a stand-in: the real package is not installed in this environment")


def _missing(qualified_name):
    return _Missing(qualified_name.rpartition(".")[2], (), {"__qualname__": qualified_name})


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(f"{__name__}.{name}")
'''


def write_stub(site_packages: Path, package: str, modules: Sequence[str] = ()) -> None:
    """Write the stand-in `package` with its dotted `modules` below `site_packages`. Raises FileExistsError if the package is there."""
    for name in (package, *modules):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a module name")
    (site_packages / package).mkdir()
    for name in (package, *(f"{package}.{module}" for module in modules)):
        folder = site_packages
        for part in name.split("."):
            folder /= part
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").write_text(SOURCE, encoding="utf-8")
