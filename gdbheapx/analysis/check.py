"""What `doctor` says of one thing."""

from typing import NamedTuple, Optional


class Check(NamedTuple):
    """One thing looked at."""

    what: str
    ok: Optional[bool]
    """None: only told, neither good nor bad."""
    found: str
    hint: Optional[str]
