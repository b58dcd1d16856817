"""heapx fleet"""

import argparse
import functools
from typing import Any, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, column_of, declare_argument, declare_command, parse_count
from gdbheapx.common import hints

HELP = """Reports of many cores and snapshots, and one table.

Each core is read by a process of its own, without following its blocks (`report --no-deep`): memory stays small, and a bad core is a
row with its reason. A URL is fetched by the process that reads it, which requires `gdbheapx[store]`. A second run makes only
missing documents: whole ones, of cores with the same size and time, stay. Ctrl-C leaves whole documents. --max-seconds limits
each core. views.sql, next to the documents, is for DuckDB.
Exit code 4: some cores have no answer or a partial one; 1: none has (with --share that is 4: a share may have one core, or none).

--table shows the table again, of the folder or of any documents of `report --json`; no core is read. Another file is a row with
the reason. Figures that a document does not have are unknown. `free` is memory that the allocator has and the program does not use, as in
`diff`; `memory` is RSS, or the bytes of the core. --sort takes a column by its heading ("in use"), or by its name in JSON (used_bytes).

With --dask, each core is a task of a Dask cluster. Its workers need gdbheapx in the same version and the cores at the same paths; the
documents come back to DIR here. Only on a trusted network or with tls://: who controls a scheduler runs code on every side. It requires
`gdbheapx[dask]`.
"""


def document_record() -> Any:
    """The record of a row."""
    from gdbheapx.addons.views.fleet.run import Document

    return Document


def parse_share(given: str) -> Tuple[int, int]:
    """I/N as numbers."""
    index, _, of = given.partition("/")
    numbers = parse_count(index), parse_count(of)
    if numbers[0] >= numbers[1]:
        raise argparse.ArgumentTypeError("%s is no share: the first of four is 0/4, the last 3/4" % given)
    return numbers


@declare_command(
    "fleet",
    arguments=[
        declare_argument(
            "cores", metavar="CORE", nargs="+", help="core, also compressed, snapshot, or URL, also a pattern: 's3://BUCKET/*.snap'"
        ),
        declare_argument(
            "-o", "--directory", metavar="DIR", help="folder for the documents, made with mode 0700; required without --table"
        ),
        declare_argument("--table", action="store_true", help="only the table, of documents of report --json, or a folder of them"),
        declare_argument(
            "--sort", type=column_of(document_record), metavar="COLUMN", help="with --table: order by this column; the largest number first"
        ),
        declare_argument("--by", choices=("executable", "verdict", "version"), help="with --table: one row for each of these, with sums"),
        declare_argument(
            "--csv", action="store_true", help="with --table: CSV; a cell that a spreadsheet would run as a formula begins with '"
        ),
        declare_argument("--workers", type=parse_count, metavar="N", help="how many processes at once (default: one for each CPU)"),
        declare_argument(
            "--dask", metavar="ADDRESS", help="let the Dask cluster of this scheduler look, for example tls://HOST:8786; see below"
        ),
        declare_argument(
            "--share", type=parse_share, metavar="I/N", help="only share I of N, from 0/N on: a core's share depends on its path alone"
        ),
    ],
    needs_target=False,
    help=HELP,
    examples=("fleet cores/*.core -o reports", "fleet --table reports --sort memory"),
    in_shell=True,
)
def answer_fleet(session: Session, options: Options) -> CommandAnswer:
    """The command `fleet`."""
    from gdbheapx.addons.views.fleet import run
    from gdbheapx.common import problems
    from gdbheapx.common.errors import HeapxError, UsageError

    if options.table:
        return answer_fleet_table(options)
    if options.directory is None:
        raise UsageError("fleet: -o DIR is required", "try: fleet cores/*.core -o reports")
    if options.workers == 0:
        raise UsageError("fleet: --workers must be at least 1", "use --workers 1, or omit it")
    if options.dask is not None and options.workers is not None:
        raise UsageError("fleet: --workers and --dask cannot be combined", "a cluster has as many workers as were started for it")
    distribute = None
    if options.dask is not None:
        from gdbheapx.addons.views.fleet import cluster

        distribute = functools.partial(cluster.run_on_cluster, options.dask)
    how = options.workers, distribute, options.share, options.max_seconds
    rows, missing = run.run_fleet(options.cores, options.directory, *how, session.budget)
    failed = sum(row.failed for row in rows)
    if failed == len(rows) and (options.share is None or missing):
        first = rows[0].error if rows else "stopped before there was one"
        raise HeapxError(
            "none of the cores has an answer: %s" % first,
            "the reason of each: " + hints.hint_run("fleet --table %s", options.directory),
            code=problems.NO_ANSWER,
        )
    partial = sum(row.partial for row in rows)
    for number, what in ((failed, "no answer"), (partial, "a partial answer"), (missing, "interrupted before this core was read")):
        if number:
            session.problem(problems.NO_ANSWER, None, "%d of %d cores: %s" % (number, len(rows) + missing, what))
    return CommandAnswer(lambda: run.table_data(rows, None), lambda style: run.document_table_lines(style, rows), read=True)


def answer_fleet_table(options: Options) -> CommandAnswer:
    """--table"""
    from gdbheapx.addons.views.fleet import run

    rows = run.order_documents([run.read_document_row(path) for path in run.list_document_paths(options.cores)], options.sort)
    groups = run.group_documents(rows, options.by) if options.by else None
    shown = rows if groups is None else groups
    return CommandAnswer(
        lambda: run.table_data(rows, groups),
        lambda style: run.document_csv_lines(shown) if options.csv else run.document_table_lines(style, shown),
        document=options.csv,
        read=True,
    )
