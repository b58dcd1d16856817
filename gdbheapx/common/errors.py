"""Errors carry one line for the user: the cause, then what to type next."""

from typing import Any, Dict, Optional

from gdbheapx.common import hints
from gdbheapx.common.problems import BUSY, CUT, INTERRUPTED, MEMORY_UNREADABLE, NO_ANSWER, REFUSED, USAGE, ProblemCode


class HeapxError(Exception):
    """A cause in one sentence, with the next step in `hint` and the address concerned, if there is one."""

    exit_code = 1
    code: ProblemCode = NO_ANSWER
    """In `error` of JSON; in `problems` where the rest of an answer is."""

    def __init__(self, message: str, hint: Optional[str] = None, address: Optional[int] = None, code: Optional[ProblemCode] = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.address = address
        self.code = code or type(self).code

    def line(self) -> str:
        """The error as the one line that is shown: cause, then next step."""
        cause = self.message.rstrip(".")
        return hints.write_commands("%s; %s" % (cause, self.hint) if self.hint else cause)

    def write(self, line: hints.Write) -> None:
        """Have the commands that it names written for where it is read."""
        self.message = hints.write_commands(self.message, line)
        self.hint = None if self.hint is None else hints.write_commands(self.hint, line)
        self.args = (self.message,)

    def document(self) -> Dict[str, Optional[str]]:
        """The member `error` of JSON."""
        message = hints.write_commands(self.message.rstrip("."))
        return {"code": self.code, "message": message, "hint": self.hint and hints.write_commands(self.hint)}


def error_of_document(document: Any) -> Optional[HeapxError]:
    """The error in a document of another run of the tool; None where there is none."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not all(isinstance(error.get(name), str) for name in ("code", "message")):
        return None
    hint = error.get("hint")
    return HeapxError(error["message"], hint if isinstance(hint, str) else None, code=ProblemCode.of(error["code"]))


class UsageError(HeapxError):
    """The command line is wrong; exit code 2."""

    exit_code = 2
    code = USAGE


class UnreadableMemory(HeapxError):
    """Memory at `address` cannot be read: not mapped, not dumped, or beyond the end of a truncated core."""

    code = MEMORY_UNREADABLE

    def __init__(self, address: int, size_bytes: int = 0) -> None:
        super().__init__("cannot read memory at 0x%x" % address, address=address)
        self.size_bytes = size_bytes


class StopOver(KeyboardInterrupt):
    """The process runs again because the time was up that it may be stopped: nothing more is read of it. As Ctrl-C, it ends whatever is
    under way, and what was read so far is used."""


class Refusal(HeapxError):
    """A change of the process that is not made: nothing was called and nothing was written."""

    code = REFUSED


class Busy(Refusal):
    """Refusal that may pass: let the process run a little and repeat the command."""

    code = BUSY


class OutOfTime(Refusal):
    """The user's Ctrl-C or --max-seconds came before everything was looked at."""

    code = CUT


class Interrupted(HeapxError):
    """A signal ended the command; `name` as the user knows it: `Ctrl-C`, `SIGTERM`."""

    code = INTERRUPTED

    def __init__(self, name: str) -> None:
        super().__init__("interrupted by %s; no result" % name)


class Unevaluated(str):
    """A text that gdb has no value for: the name of a block or owner, or nothing."""

    error: UsageError
    """What gdb said."""

    @classmethod
    def of(cls, text: str, error: UsageError) -> "Unevaluated":
        """Return the text with its error."""
        made = cls(text)
        made.error = error
        return made
