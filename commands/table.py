"""heapx table"""

from typing import Any

from gdbheapx.command import Answer, Options, argument, column_of, command
from gdbheapx.session import Session

HELP = """Many documents of `report --json` as one table.

A FILE is such a document, or the folder that `fleet` has filled. What is no document is a row with the reason. Figures that a document does
not have are unknown. `free` is what the allocator holds and the program does not use, as in `diff`; `memory` is RSS, or the bytes of the
core. --sort takes a column by its heading ("in use"), or by its name in JSON (used_bytes).
"""


def record() -> Any:
    """The record of a row."""
    from gdbheapx.extras.fleet.documents import Document

    return Document


@command(
    "table",
    arguments=[
        argument("files", metavar="FILE", nargs="+", help="document of report --json, or a folder of them"),
        argument("--sort", type=column_of(record), metavar="COLUMN", help="order by this column of the table; the largest number first"),
        argument("--by", choices=("executable", "verdict", "version"), help="one row for each of these, with sums"),
        argument("--csv", action="store_true", help="CSV; a cell that a spreadsheet would run as a formula begins with '"),
    ],
    needs_target=False,
    help=HELP,
    examples=("table reports --sort memory",),
    in_shell=True,
)
def table(session: Session, options: Options) -> Answer:
    """The command `table`."""
    from gdbheapx.extras.fleet import documents

    rows = documents.ordered([documents.row(path) for path in documents.paths(options.files)], options.sort)
    groups = documents.grouped(rows, options.by) if options.by else None
    shown = rows if groups is None else groups
    return Answer(
        lambda: documents.table_data(rows, groups),
        lambda style: documents.csv_lines(shown) if options.csv else documents.table_lines(style, shown),
        document=options.csv,
        read=True,
    )
