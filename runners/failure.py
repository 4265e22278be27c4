"""How a phase says that the boot is over."""

from __future__ import annotations

from results.vocabulary import Outcome


class PhaseFailure(Exception):
    """A phase ended the boot: the outcome it has now, a reason sentence for people, and the evidence that was seen.

    `signature` is the id of a known failure signature or a fingerprint of the decisive log lines; `excerpt` the lines themselves.
    """

    def __init__(self, outcome: Outcome, reason: str, *, signature: str | None = None, excerpt: str | None = None) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.signature = signature
        self.excerpt = excerpt
