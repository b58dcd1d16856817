"""Errors carry one line for the user: the cause, then what to type next."""

from typing import Optional


class HeapxError(Exception):
    """A cause in one sentence, with the next step in `hint` and the address concerned, if there is one."""

    exit_code = 1

    def __init__(self, message: str, hint: Optional[str] = None, address: Optional[int] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.address = address

    def line(self) -> str:
        """The error as the one line that is shown: cause, then next step."""
        cause = self.message.rstrip(".")
        return "%s; %s" % (cause, self.hint) if self.hint else cause


class UsageError(HeapxError):
    """The command line is wrong; exit code 2."""

    exit_code = 2


class Unreadable(HeapxError):
    """Memory at `address` cannot be read: not mapped, not dumped, or beyond the end of a truncated core."""

    def __init__(self, address: int, size_bytes: int = 0) -> None:
        super().__init__("memory at 0x%x cannot be read" % address, address=address)
        self.size_bytes = size_bytes
