"""What one look at a living process learns for the next: short stops, and the long work between them while the process runs."""

from typing import Callable, Dict, List, Sequence


class Looks:
    """Outlives the session of one look. `can_wait`: the process was stopped for this look alone and may be let go and stopped again."""

    def __init__(self) -> None:
        self.can_wait = False
        self.has_rehearsed = False
        """The answer was made once before the first stop, so that everything it needs is at hand."""
        self.mapped: Dict[str, Sequence[int]] = {}
        """Chunks with a mapping of their own that were found before, by allocator id: to be looked at first."""
        self._later: List[Callable[[], None]] = []

    def later(self, work: Callable[[], None]) -> None:
        """Do this while the process runs, and look again."""
        self._later.append(work)

    @property
    def wants_more(self) -> bool:
        """There is work for the time between two looks."""
        return bool(self._later)

    def between(self) -> None:
        """The process runs: do what was put off. What it gives is looked at again while the process stands still."""
        work, self._later = self._later, []
        for one in work:
            one()
