"""heapx mcp"""

import os
import sys

from gdbheapx.allocators.session import Session
from gdbheapx.app.invocation import Invocation, Shell
from gdbheapx.command import MCP, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_run
from gdbheapx.common.problems import MISSING_PACKAGE, SHELL_ONLY

HELP = """Serves agents: read-only answers by the protocol MCP.

It speaks on standard input and output. Tools: report, arenas, census, leaks, owners, refs, whatis, pins, check, query, diff. Answers are
cut to 40 KB and name the parts left out, the pause of the process, and the calls that follow, with their arguments. Nothing that
changes a process is offered. With --pid, --core or --snapshot it reads that one alone, and `diff` compares it with the file of --older;
without, each call names its own. --max-stop and --max-seconds (default 60) hold for each call. It requires the MCP SDK and Python 3.10 or
later (pip install 'gdbheapx[mcp]').
"""


@declare_command(
    "mcp",
    arguments=[
        declare_argument("--names", action="store_true", help="also tell paths: names and keys of the program's own objects"),
        declare_argument("--older", metavar="FILE", help="an older snapshot or core, the only one that `diff` compares with"),
    ],
    needs_target=False,
    renders=lambda options: MCP,
    help=HELP,
    examples=("-p 4711 mcp",),
    in_shell=True,
)
def answer_mcp(session: Session, options: Options) -> CommandAnswer:
    """The command `mcp`: the shell's process serves."""
    raise HeapxError("mcp runs from a shell, not inside gdb", "run: " + hint_run("mcp"), code=SHELL_ONLY)


INSTALL = "pip install 'gdbheapx[mcp]'"
OLDEST = (3, 10)
"""The SDK's."""


def make(invocation: Invocation, shell: Shell) -> int:
    """Serve on standard input until it is closed; the exit code."""
    options = invocation.options
    try:
        if invocation.asked.debuginfod or invocation.asked.gdb is not None:
            raise UsageError("mcp reads without gdb", "omit --gdb and --debuginfod")
        try:
            if sys.version_info < OLDEST:
                raise ImportError("it needs Python %d.%d, and this is %d.%d" % (*OLDEST, *sys.version_info[:2]))
            from gdbheapx.addons.views.agents import answers, server
        except ImportError as error:
            why = " ".join(str(error).split())
            raise HeapxError("mcp requires the MCP SDK, which cannot be imported (%s)" % why, INSTALL, code=MISSING_PACKAGE)
        if os.isatty(0):
            raise HeapxError("mcp is started by an agent's program, which speaks to it", "in a terminal: gdbheapx report", code=SHELL_ONLY)
        server.build_server(answers.Answers(invocation.asked, options, options.names, options.older)).run("stdio")
        return 0
    except HeapxError as error:
        return shell.failed(error, False)
