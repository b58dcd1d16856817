"""heapx explore"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import EXPLORE, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command, hint_run
from gdbheapx.common.problems import SHELL_ONLY

HELP = """A core or snapshot in the terminal, node by node.

Keys: 1 to 7 choose overview, arenas, owners, census, search, SQL, differences; Enter opens a row (a class shows its owners and blocks,
an owner its place in the tree, a block its paths to roots), p shows the paths of the row under the cursor in the tree, Escape goes
back; / filters, s sorts, e exports the table as CSV, w writes the page of `report --html` (both ask for the file's name first), q ends.
--against OLD shows what grew since an older snapshot or core. It works over ssh, in 80 columns and more, and requires Textual
(pip install 'gdbheapx[explore]'). Of a process take a snapshot first: `gdbheapx --pid N snapshot FILE`.
"""


@declare_command(
    "explore",
    arguments=[
        declare_argument("file", metavar="FILE", nargs="?", help="core or snapshot; omitted: that of --core or --snapshot"),
        declare_argument("--against", metavar="OLD", help="an older snapshot or core, to see what grew"),
    ],
    needs_target=False,
    renders=lambda options: EXPLORE,
    help=HELP,
    examples=("explore core.4711", "explore now.snap --against before.snap"),
    in_shell=True,
)
def answer_explore(session: Session, options: Options) -> CommandAnswer:
    """The command `explore`: the shell's process shows it."""
    how = "take a snapshot, and explore that: %s, then %s" % (hint_command("snapshot now.snap"), hint_run("explore now.snap"))
    raise HeapxError("explore runs from a shell, not inside gdb", how, code=SHELL_ONLY)
