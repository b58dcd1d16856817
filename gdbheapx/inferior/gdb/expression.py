"""An expression of gdb's as an address, without a change of the program: none of its functions is called, nothing of it is written."""

import re

from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.inferior.gdb.settings import Settings
from gdbheapx.inferior.gdb.target import address_of, setting
from gdbheapx.problems import GDB_FAILED

READ_ONLY = {"may-call-functions": "off", "may-write-memory": "off"}
"""gdb takes no other setting of this kind while there is a process."""
LITERAL = re.compile(r"\"(\\.|[^\"\\])*\"|'(\\.|[^'\\])*'")
WRITES = re.compile(r"<<=|>>=|(?<![=!<>])=(?!=)|\+\+|--")
"""With these settings gdb refuses the program's variables only: registers and its own ($count++) would change."""
FUNCTION_OF_GDB = re.compile(r"\$[A-Za-z_]\w*\s*\(")
"""Python of other people's, or $_shell."""
HINT = "give a number, or an expression that only reads: $sp, &variable, obj->next"


def evaluate(expression: str) -> int:
    """The address. UsageError for what would change something, what needs a function of the program, and what gdb cannot evaluate."""
    code = LITERAL.sub("", expression)
    if WRITES.search(code):
        raise UsageError("%s would assign: it was not evaluated" % expression, HINT)
    if FUNCTION_OF_GDB.search(code):
        raise UsageError("%s calls a function of gdb's: it was not evaluated" % expression, HINT)
    try:
        with Settings(READ_ONLY):
            if any(setting(name) not in (None, "off") for name in READ_ONLY):
                raise HeapxError("this gdb has no read-only mode for expressions", code=GDB_FAILED)
            return address_of(expression)
    except HeapxError as error:
        raise UsageError("cannot evaluate %s: %s" % (expression, error.message), HINT)
