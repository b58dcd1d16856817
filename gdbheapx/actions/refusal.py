"""Refusals: one sentence with thread and reason, then the next step."""

from gdbheapx.errors import HeapxError


class Refusal(HeapxError):
    """Nothing was called and nothing was written."""


class Busy(Refusal):
    """It cannot be done at this moment: let the process run a little and look again."""


class OutOfTime(Refusal):
    """The user's Ctrl-C or --max-seconds came before everything was looked at."""
