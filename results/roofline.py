"""How near a boot's decode came to what the node's memory allows, read from the view `rooflines`, which holds the formula.

Trap: 21 tok/s says nothing by itself; 140 % of what the memory can deliver says that something else was measured. Rule: the share is always
shown with its bandwidth and its bytes, an estimate is called one, and what no memory could deliver is an alarm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from results.store import Store

ABOVE = "fewer bytes were read than the model holds, or the probe is wrong"
"""What a rate above the roofline means."""


@dataclass(frozen=True)
class Roofline:
    """One boot and workload. `percent` is of the node's probe, `percent_of_nominal` of the data sheet; None where that is not known.

    `bound`: `exact`, `at_least` (more bytes were read, so the true percentage is higher) or `about`; None, of a record that does not say,
    is about.
    """

    run_id: str
    workload: str
    decode_tok_s: float
    bytes_per_token: int
    kv_bytes: int | None
    bound: str | None
    bandwidth_gb_s: float | None
    nominal_gb_s: float | None
    roofline_tok_s: float | None
    percent: float | None
    percent_of_nominal: float | None
    speculative: bool
    alarm: bool

    @property
    def sentence(self) -> str:
        """Everything above in one line."""
        bound = (self.bound or "about").replace("_", " ")
        size = f"{'' if bound == 'exact' else bound + ' '}{self.bytes_per_token / 1e9:.3g} GB a token"
        shares = [
            f"{percent:.0f} % of {bandwidth:.4g} GB/s ({what})"
            for percent, bandwidth, what in (
                (self.percent, self.bandwidth_gb_s, "this node's probe"),
                (self.percent_of_nominal, self.nominal_gb_s, "data sheet"),
            )
            if percent is not None
        ]
        text = f"{self.workload}: {self.decode_tok_s:.4g} tok/s x {size} = {', '.join(shares) or 'unknown: no probe ran'}"
        return f"ALARM, above the roofline: {text}; {ABOVE}" if self.alarm else text


def roofline_of(row: Mapping[str, Any]) -> Roofline:
    """From a row of the view, whatever else it holds."""
    return Roofline(**{field.name: row[field.name] for field in fields(Roofline)})


def rooflines_of(store: Store, run_ids: Sequence[str]) -> list[Roofline]:
    """What is known about these boots, by run and workload; boots that are launch-bound or of unknown size have none."""
    rows: list[dict[str, Any]] = store.query(
        "SELECT * FROM rooflines WHERE run_id IN (SELECT unnest(?)) ORDER BY run_id, workload <> 'decode_c1', workload",
        [list(run_ids)],
    )
    return [roofline_of(row) for row in rows]
