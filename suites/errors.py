"""Errors of suite files: what is wrong, in which file and line, and what was expected."""

from __future__ import annotations


class SuiteError(Exception):
    """A recipe, backend, suite or canary that cannot be used as written. A usage error: nothing has been started."""

    def __init__(self, message: str, *, where: str = "", todo: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        return " ".join(part for part in (f"{self.where}:" if self.where else "", self.message, self.todo) if part)
