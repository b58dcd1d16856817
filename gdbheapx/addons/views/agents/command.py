"""`mcp`, in the shell: agents ask on standard input until it is closed."""

import os
import sys

from gdbheapx import runner
from gdbheapx.addons.views.agents.answers import Answers
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.invocation import Invocation, Shell
from gdbheapx.problems import MISSING_PACKAGE, SHELL_ONLY

INSTALL = "pip install 'gdbheapx[mcp]'"
OLDEST = (3, 10)
"""The SDK's."""


def make(invocation: Invocation, shell: Shell) -> int:
    """Serve; the exit code."""
    try:
        return _serve_tools(invocation)
    except HeapxError as error:
        return shell.failed(error, False)


def _serve_tools(invocation: Invocation) -> int:
    if invocation.asked.debuginfod or invocation.asked.gdb is not None:
        raise UsageError("mcp reads without gdb", "omit --gdb and --debuginfod")
    try:
        if sys.version_info < OLDEST:
            raise ImportError("it needs Python %d.%d, and this is %d.%d" % (*OLDEST, *sys.version_info[:2]))
        from gdbheapx.addons.views.agents.server import build_server
    except ImportError as error:
        why = " ".join(str(error).split())
        raise HeapxError("mcp requires the MCP SDK, which cannot be imported (%s)" % why, INSTALL, code=MISSING_PACKAGE)
    if os.isatty(0):
        raise HeapxError("mcp is started by an agent's program, which speaks to it", "in a terminal: gdbheapx report", code=SHELL_ONLY)
    options = invocation.options
    build_server(Answers(invocation.asked, options, options.names, options.older)).run("stdio")
    return runner.WHOLE
