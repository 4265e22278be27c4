"""Errors of the store, each saying what, where and what to do next."""

from __future__ import annotations


class StoreError(Exception):
    """The result store cannot do what was asked; nothing that was measured is lost (the boot folders hold it)."""

    def __init__(self, message: str, *, where: str = "", todo: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.todo = todo

    def __str__(self) -> str:
        return " ".join(part for part in (self.message, f"({self.where})" if self.where else "", self.todo) if part)


class StoreLocked(StoreError):
    """Another process kept the database for longer than we were willing to wait."""


class FolderError(StoreError):
    """A boot folder that cannot be read back: truncated, foreign, or from a newer Sparkproof."""
