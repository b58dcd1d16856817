"""Change settings and signal handling of gdb for the length of an action, and evaluate an expression under read-only settings."""

import re
from typing import Dict, Tuple

from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.inferior.gdb.target import find_expression_address, read_gdb_setting, try_gdb
from gdbheapx.problems import GDB_FAILED

OWN_FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGSYS")


class GdbSettings:
    """gdb settings for the length of a block; those that this gdb lacks are left out."""

    def __init__(self, values: Dict[str, str]) -> None:
        self._wanted = values
        self._before: Dict[str, str] = {}

    def __enter__(self) -> None:
        for name, value in self._wanted.items():
            before = read_gdb_setting(name)
            if before is not None:
                self._before[name] = before
                try_gdb("set %s %s" % (name, value))

    def __exit__(self, *error: object) -> None:
        for name, value in self._before.items():
            try_gdb("set %s %s" % (name, value))


class GdbSignals:
    """Signal handling of gdb while it holds the process; a gdb of the user's own gets its settings back."""

    def __init__(self, ours: bool) -> None:
        self._ours = ours
        self._before: Dict[str, Tuple[str, str, str]] = {}

    def keep(self) -> None:
        """No signal of the program stops it or is lost while gdb holds it; what a thread raises itself by a fault does stop it."""
        self._before = read_signal_table()
        try_gdb("handle all nostop noprint pass")
        try_gdb(
            "handle SIGSTOP print"
        )  # gdb's own, by which it stops threads: of signals that are not even printed it takes none for its own, and hands them on
        for name in OWN_FAULTS:
            try_gdb("handle %s stop print pass" % name)
        try_gdb("handle SIGINT %s" % ("nostop noprint pass" if self._ours else "stop print nopass"))

    def put_back(self) -> None:
        """Restore the settings."""
        if self._ours:
            return
        now = read_signal_table()
        for name, actions in self._before.items():
            if now.get(name) != actions:
                try_gdb("handle %s %s %s %s" % ((name,) + actions))
        self._before = {}


def read_signal_table() -> Dict[str, Tuple[str, str, str]]:
    """Return how gdb handles each signal, in the words of `handle`."""
    table = {}
    for line in (try_gdb("info signals") or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].startswith("SIG") and all(word in ("Yes", "No") for word in words[1:4]):
            no = ["" if word == "Yes" else "no" for word in words[1:4]]
            table[words[0]] = (no[0] + "stop", no[1] + "print", no[2] + "pass")
    return table


READ_ONLY = {"may-call-functions": "off", "may-write-memory": "off"}
"""gdb takes no other setting of this kind while there is a process."""
LITERAL = re.compile(r"\"(\\.|[^\"\\])*\"|'(\\.|[^'\\])*'")
WRITES = re.compile(r"<<=|>>=|(?<![=!<>])=(?!=)|\+\+|--")
"""With these settings gdb refuses the program's variables only: registers and its own ($count++) would change."""
FUNCTION_OF_GDB = re.compile(r"\$[A-Za-z_]\w*\s*\(")
"""Python of other people's, or $_shell."""
HINT = "give a number, or an expression that only reads: $sp, &variable, obj->next"


def resolve_expression(expression: str) -> int:
    """The address. UsageError for what would change something, what needs a function of the program, and what gdb cannot evaluate."""
    code = LITERAL.sub("", expression)
    if WRITES.search(code):
        raise UsageError("%s would assign: it was not evaluated" % expression, HINT)
    if FUNCTION_OF_GDB.search(code):
        raise UsageError("%s calls a function of gdb's: it was not evaluated" % expression, HINT)
    try:
        with GdbSettings(READ_ONLY):
            if any(read_gdb_setting(name) not in (None, "off") for name in READ_ONLY):
                raise HeapxError("this gdb has no read-only mode for expressions", code=GDB_FAILED)
            return find_expression_address(expression)
    except HeapxError as error:
        raise UsageError("cannot evaluate %s: %s" % (expression, error.message), HINT)
