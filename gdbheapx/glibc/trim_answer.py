"""The answer of `trim --dry-run`."""

from typing import Annotated, Any, Dict, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.predicted import Predicted, Way, conclusion, total, unmade
from gdbheapx.allocators.records import Page
from gdbheapx.columns import BYTES, IF_KNOWN, TEXT, Column, Table, columns_of
from gdbheapx.glibc.trim_model import Prediction


class ArenaPrediction(NamedTuple):
    """One arena's share."""

    arena: Annotated[int, Column("arena", TEXT)]
    interior_bytes: Annotated[int, Column("inside free chunks", BYTES)]
    """Whole pages inside free chunks."""
    top_bytes: Annotated[int, Column("top", BYTES)]
    """The end of the main arena's top."""
    resident_bytes: Annotated[Optional[int], Column("in RAM", BYTES, shown=IF_KNOWN)]
    """Those that count in RSS; None where that cannot be told (cores)."""
    exclusive_bytes: Optional[int]
    """Those of them that the machine gets back at once."""


class TrimDryRun(NamedTuple):
    """What a trim would give back."""

    arenas: Sequence[ArenaPrediction]
    way: Way = Way()

    @property
    def predicted(self) -> Predicted:
        """All arenas together."""
        resident, exclusive = total([row.resident_bytes for row in self.arenas]), total([row.exclusive_bytes for row in self.arenas])
        return Predicted(sum(row.interior_bytes + row.top_bytes for row in self.arenas), resident, exclusive)

    @property
    def data(self) -> Dict[str, Any]:
        """The contract's keys of `trim`."""
        return unmade(self.predicted, self.predicted.bytes, self.arenas)

    @property
    def page(self) -> Page:
        """Arena by arena."""
        found = self.predicted
        resident = found.resident_bytes is not None
        yield Table([one for one in columns_of(ArenaPrediction) if resident or one.field != "resident_bytes"], self.arenas)
        yield conclusion(found, found.bytes, "malloc_trim", "trim", self.way)


def dry_run(predictions: Sequence[Tuple[int, Prediction]], is_live: bool) -> TrimDryRun:
    """From the arenas' predictions, (index, prediction)."""
    rows = [
        ArenaPrediction(index, one.interior_bytes, one.top_bytes, one.resident_bytes, one.exclusive_bytes) for index, one in predictions
    ]
    return TrimDryRun(rows, Way(is_live))
