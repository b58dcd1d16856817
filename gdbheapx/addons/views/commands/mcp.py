"""heapx mcp"""

from gdbheapx.command import MCP, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.errors import HeapxError
from gdbheapx.hints import hint_run
from gdbheapx.problems import SHELL_ONLY
from gdbheapx.session import Session

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
