"""heapx fleet"""

from gdbheapx.command import Answer, Options, argument, command
from gdbheapx.parse import count
from gdbheapx.session import Session

HELP = """`report --json` of many cores, a document each in a folder; then one table of them.

Each core is looked at by a process of its own, without following its blocks (`report --no-deep`): memory stays small, and a bad core is a
row with its reason. A second run makes only what is lacking: documents that are whole, of cores with the same size and time, stay. Ctrl-C
leaves what is whole. --max-seconds limits each look. Beside the documents lies views.sql, for DuckDB. `table DIR` shows the table again.
Exit code 4: some cores have no answer or a partial one; 1: none has.
"""


@command(
    "fleet",
    arguments=[
        argument("cores", metavar="CORE", nargs="+", help="core, also compressed; one given twice counts once"),
        argument("-o", "--directory", metavar="DIR", required=True, help="folder for the documents, made with mode 0700"),
        argument("--workers", type=count, metavar="N", help="how many processes at once (default: one for each CPU)"),
    ],
    needs_target=False,
    help=HELP,
)
def fleet(session: Session, options: Options) -> Answer:
    """The command `fleet`."""
    from gdbheapx import problems
    from gdbheapx.errors import HeapxError
    from gdbheapx.fleet import run
    from gdbheapx.report import fleet_text

    done = run.run(options.cores, options.directory, options.workers, options.max_seconds, session.budget)
    failed = sum(row.failed for row in done.rows)
    if failed == len(done.rows):
        first = done.rows[0].error if done.rows else "stopped before there was one"
        raise HeapxError("none of the cores has an answer: %s" % first, "the reason of each: gdbheapx table %s" % options.directory)
    partial = sum(row.partial for row in done.rows)
    for number, what in ((failed, "no answer"), (partial, "a partial answer"), (done.missing, "no document yet: somebody interrupted")):
        if number:
            session.problem(problems.NO_ANSWER, None, "%d of %d cores: %s" % (number, len(done.rows) + done.missing, what))
    return Answer(lambda: fleet_text.data(done.rows, None), lambda style: fleet_text.lines(style, done.rows), read=True)
