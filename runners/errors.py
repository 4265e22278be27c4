"""What can go wrong before or around a boot, and the exit code of each.

Trap: a network outage or a full disk is recorded as a fault of the engine release, and a typo starts a night of installs. Rule: the class
of an error says whose fault it is, its text says what, where and what to do next, and only the CLI turns it into an exit.
"""

from __future__ import annotations

from typing import ClassVar


class SparkproofError(Exception):
    """Base of all: `message` says what, `where` names the file, setting or command, `todo` is the next step as a sentence."""

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, where: str = "", todo: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.where}:" if self.where else "", self.message, self.todo) if part)


class UsageError(SparkproofError):
    """What was asked cannot be: unknown engine, version or flag, or an unreadable file. Nothing has been started."""

    exit_code = 2


class InfrastructureError(SparkproofError):
    """Our side's or the node's fault (network, disk, missing tool or setting): says nothing about the engine."""

    exit_code = 3


class InstallFailed(SparkproofError):
    """The release itself could not be installed here: its requirements contradict each other, or a package failed to build."""

    exit_code = 3


class Unsupported(SparkproofError):
    """This release exists but no known way of installing it fits this node. An outcome, not a crash."""

    exit_code = 1
