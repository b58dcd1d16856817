"""heapx export"""

from typing import List, Optional

from gdbheapx.command import Answer, Options, argument, command
from gdbheapx.errors import HeapxError, UsageError
from gdbheapx.session import Session

HELP = """What is in use as a file for viewers and engines: `gdbheapx export --format FORMAT -o FILE`.

folded: stacks for flamegraph.pl, inferno and speedscope, a line each, `frame;frame BYTES`. pprof: the same for `go tool pprof`, with
blocks and bytes. Of owners: who keeps a block alive, from global variables and threads down; of the census: module, signature, size; of the
profile (pprof only): the calls that allocated it, where the allocator samples them. Of owners and the census the sum is what is in
use; what is too small for a frame of its own is in frames named `[smaller]`.
"""


@command(
    "export",
    arguments=[
        argument("--format", choices=("folded", "pprof"), required=True, help="what to write"),
        argument("--of", choices=("owners", "census", "profile"), default="owners", help="what the frames are (default: owners)"),
    ],
    help=HELP,
    needs=(
        "gdbheapx.analysis.census.find",
        "gdbheapx.analysis.census.owned",
        "gdbheapx.analysis.stacks",
        "gdbheapx.report.folded",
        "gdbheapx.report.pprof",
    ),
)
def export(session: Session, options: Options) -> Answer:
    """The command `export`."""
    from gdbheapx.analysis import stacks
    from gdbheapx.analysis.census import find, owned
    from gdbheapx.report import folded, pprof

    is_snapshot = session.target.kind == "snapshot"
    period: Optional[int] = None
    if options.format == "pprof" and not options.output and not options.json:
        raise UsageError("a profile for pprof is not text", "name the file with -o FILE")
    if options.of == "profile" and options.format != "pprof":
        raise UsageError("calls have no names yet: pprof finds them", "use --format pprof")
    if is_snapshot and options.of != "census":
        raise HeapxError("a snapshot has no stacks of %s" % options.of, "use --of census; or ask the process or its core")
    images: List[stacks.Image] = [] if is_snapshot else stacks.images(session.target)
    if options.of == "census":
        found = stacks.of_census(session.kept("census", find.Census, lambda: find.find(session)))
    elif options.of == "owners":
        found = owned.find_stacks(session)
    else:
        sampled = session.heaps.one_offering("profile").offers["profile"]()
        found, period = stacks.of_calls(sampled.stacks()), sampled.sample_bytes
    if options.format == "folded":
        lines = list(folded.lines(found))
        return Answer(lambda: {"stacks": found}, lambda style: lines, read=True, document=True)

    def file() -> List[str]:
        return [pprof.encoded(found, images, period).decode("utf-8", "surrogateescape")]

    return Answer(lambda: {"stacks": found}, lambda style: file(), read=True, document=True, pieces=True)
