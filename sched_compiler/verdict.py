"""Verdicts: what was found about a property of a schedule, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: `launch`: proven for all tables that pass their check, which is made at launch.
Status = Literal["proven", "launch", "refuted", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about one property, and how. An `advisory` property is wished for, not needed."""

    property: str
    status: Status
    how: str
    advisory: bool = False

    def holds(self) -> bool:
        return self.advisory or self.status in ("proven", "launch")
