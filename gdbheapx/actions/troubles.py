"""What was found wrong while a call was prepared."""

from typing import List, Optional

from gdbheapx.problems import Code, Complaint


class Troubles:
    """Collects what forbids to call a function of the allocator: damage, and what was not read, or not to its end."""

    def __init__(self) -> None:
        self.found: List[str] = []

    def report(self, code: Code, address: Optional[int], what: str, hint: Optional[str], is_passing: bool = False) -> None:
        """As problems.Report."""
        if code.forbids_calls:
            self.found.append(Complaint(code, address, what, hint, is_passing).line())
