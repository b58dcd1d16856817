"""heapx diff"""

from gdbheapx.command import Answer, Options, argument, command
from gdbheapx.errors import UsageError
from gdbheapx.parse import SIZE_HELP, count, size
from gdbheapx.session import Session

HELP = """What grew from one look to a later one: what is in use, or only what the allocator keeps; then arenas, classes, owners.

Each of the two is the file of a snapshot, a core, or a process id; of a core or a process a snapshot is taken for this. A line reads
`+ GROWTH (NEW - OLD) BLOCKS what`. --html writes the same as a page that a browser shows without a network or scripts; it requires Jinja2.
"""


@command(
    "diff",
    arguments=[
        argument("old", metavar="OLD", help="snapshot, core or process id"),
        argument("new", metavar="NEW", help="the same, of a later moment"),
        argument("--limit", type=count, metavar="N", help="at most N rows of each kind (default: 10 in text)"),
        argument("--fail-on-growth", type=size, metavar="SIZE", help="exit code 3 if what is in use grew by SIZE or more; " + SIZE_HELP),
        argument("--html", metavar="FILE", help="(shell only) write a page to FILE, readable only by you"),
    ],
    needs_target=False,
    help=HELP,
)
def diff(session: Session, options: Options) -> Answer:
    """The command `diff`."""
    from gdbheapx.report import diff_text
    from gdbheapx.snapshot import diff as model
    from gdbheapx.snapshot import operand

    if options.html is not None:
        raise UsageError("diff --html is for the shell", "gdbheapx diff OLD NEW --html FILE")
    names, forms = (options.old, options.new), (operand.form(options.old), operand.form(options.new))
    found = model.diff(operand.opened(options.old), operand.opened(options.new), names, forms)
    failed = options.fail_on_growth is not None and found.growth_bytes >= options.fail_on_growth
    return Answer(
        lambda: diff_text.data(found, options.limit),
        lambda style: diff_text.lines(style, found, options.limit),
        finding=failed,
        read=True,
    )
