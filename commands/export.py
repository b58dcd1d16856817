"""heapx export"""

from gdbheapx.command import Answer, Options, argument, command
from gdbheapx.errors import HeapxError
from gdbheapx.session import Session

HELP = """What is in use as a file for viewers and engines: `gdbheapx export --format FORMAT -o FILE`.

folded: stacks for flamegraph.pl, inferno and speedscope, a line each, `frame;frame BYTES`. Of owners: who keeps a block alive, from
global variables and threads down; of the census: module, signature, size. Lines sum up to what the census says is in use; what is
too small for a frame of its own is in frames named `[smaller]`.
"""


@command(
    "export",
    arguments=[
        argument("--format", choices=("folded",), required=True, help="what to write"),
        argument("--of", choices=("owners", "census"), default=None, help="what the frames are (default: owners)"),
    ],
    help=HELP,
    needs=(
        "gdbheapx.analysis.census.find",
        "gdbheapx.analysis.census.owned",
        "gdbheapx.analysis.stacks",
        "gdbheapx.report.folded",
    ),
)
def export(session: Session, options: Options) -> Answer:
    """The command `export`."""
    from gdbheapx.analysis import stacks
    from gdbheapx.analysis.census import find, owned
    from gdbheapx.report import folded

    if options.of == "census":
        found = stacks.of_census(session.kept("census", find.Census, lambda: find.find(session)))
    elif session.target.kind == "snapshot":
        raise HeapxError("a snapshot does not have the owner of each block", "use --of census; or ask the process or its core")
    else:
        found = owned.find_stacks(session)
    lines = list(folded.lines(found))
    return Answer(lambda: {"stacks": found}, lambda style: lines, read=True, document=True)
