"""heapx query"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import NAMES, SHORT_STOP, SQL, CommandAnswer, Options, declare_argument, declare_command, parse_count
from gdbheapx.common import addon_loader
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import SHELL_ONLY
from gdbheapx.common.stops import Reads

HELP = """SQL over blocks, owners, arenas, classes, threads, leaks.

`gdbheapx --pid N query "SELECT status, count(*), sum(size_bytes) FROM blocks GROUP BY ALL"`. DuckDB answers (pip install
'gdbheapx[query]'), outside gdb: one SELECT; a process is paused only for the tables in it. SQL can read
no file and write none. Addresses are numbers that are shown in hex, and compared as `address = '0x55e226c732a0'`. --tables lists tables
and columns, and needs no process or core. `owner` and `path` of blocks name their owner: `SELECT address, size_bytes, owner, path FROM
blocks`; held_blocks also has what runtimes cut themselves. `sites` has functions that may have allocated the blocks of a row of classes, by
the program's code (gdbheapx[sites]; seconds to minutes): `SELECT c.bytes, s.* FROM classes c JOIN sites s USING (signature, module)`.
A snapshot has arenas, classes, threads, leaks, owners, and blocks in use.
"""


def check_query_options(session: Session, options: Options) -> None:
    """Before a process is stopped for it."""
    from gdbheapx.addons.views.query import table_rows

    asked = table_rows.read_request()
    if asked is not None and table_rows.SITES in asked.tables:
        addon_loader.load_capability("sites", "the table sites").require_code_reader(session)


@declare_command(
    "query",
    arguments=[
        declare_argument("sql", metavar="SQL", nargs="?", help="one SELECT in DuckDB's SQL"),
        declare_argument("--tables", action="store_true", help="list tables and columns"),
        declare_argument("--csv", action="store_true", help="CSV; a cell that a spreadsheet would run as a formula begins with '"),
        declare_argument("--limit", type=parse_count, metavar="N", help="at most N rows (default: 100 in text; in JSON and CSV all)"),
        *NAMES,
        *SHORT_STOP,
    ],
    needs_target=False,
    reads=Reads.CENSUS,
    renders=lambda options: SQL,
    help=HELP,
    examples=('-p 4711 query "SELECT status, count(*) FROM blocks GROUP BY ALL"', "query --tables"),
    in_shell=True,
    snapshot=True,
    before=check_query_options,
    needs=(
        "gdbheapx.analysis.census.owned",
        "gdbheapx.analysis.census.find",
        "gdbheapx.analysis.reachability.leaks",
        "gdbheapx.analysis.reachability.owners",
        "gdbheapx.kernel.blocks.stream",
        "gdbheapx.addons.views.query.table_rows",
        "gdbheapx.snapshot.record",
    ),
)
def answer_query(session: Session, options: Options) -> CommandAnswer:
    """The command `query`: the look that the shell's process has asked for. SQL is answered there."""
    from gdbheapx.addons.views.query import table_rows

    asked = table_rows.read_request()
    if asked is None:
        how = hint_command("query %s", options.sql or "SELECT count(*) FROM blocks")
        raise HeapxError("query runs from a shell, not inside gdb", "run: " + how, code=SHELL_ONLY)
    session.without_names = options.no_names
    tables = table_rows.find_table_rows(session, asked)
    return CommandAnswer(lambda: {"tables": tables}, lambda style: [], read=True)
