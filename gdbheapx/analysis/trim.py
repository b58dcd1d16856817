"""A prediction of a trim, for all arenas."""

from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.sums import add


class ArenaPrediction(NamedTuple):
    """One arena's share."""

    arena: int
    interior_bytes: int
    """Whole pages inside free chunks."""
    top_bytes: int
    """The end of the main arena's top."""
    resident_bytes: Optional[int]
    """Those that count in RSS; None where that cannot be told (cores)."""
    exclusive_bytes: Optional[int]
    """Those of them that the machine gets back at once."""


class DryRun(NamedTuple):
    """What a trim would give back."""

    arenas: Sequence[ArenaPrediction]
    predicted_bytes: int
    predicted_resident_bytes: Optional[int]
    predicted_exclusive_bytes: Optional[int]

    @property
    def data(self) -> Dict[str, Any]:
        """The contract's keys of `trim`; what only a real run gives is null."""
        unknown = dict.fromkeys(
            ["returned"]
            + ["%s_%s_bytes" % (what, when) for what in ("anonymous", "rss") for when in ("before", "after", "diff")]
            + ["swap_before_bytes", "swap_after_bytes", "elapsed_ms", "stopped_ms"]
        )
        known = {
            "call": None,
            "way": "none",
            "predicted_bytes": self.predicted_bytes,
            "predicted_resident_bytes": self.predicted_resident_bytes,
            "predicted_exclusive_bytes": self.predicted_exclusive_bytes,
            "arenas": self.arenas,
        }
        return {**unknown, **known}


def dry_run(predictions: Sequence[Tuple[int, Any]]) -> DryRun:
    """Sums of the arenas' predictions (index, prediction with interior_bytes, top_bytes, resident_bytes, exclusive_bytes)."""
    rows = [ArenaPrediction(index, one.interior_bytes, one.top_bytes, one.resident_bytes, one.exclusive_bytes) for index, one in predictions]
    total = sum(row.interior_bytes + row.top_bytes for row in rows)
    return DryRun(rows, total, add(row.resident_bytes for row in rows), add(row.exclusive_bytes for row in rows))
