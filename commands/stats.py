"""heapx stats"""

from typing import Any, Dict, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.errors import UsageError
from gdbheapx.common.problems import OTHER_IS_LARGER
from gdbheapx.common.stops import Reads

ARGUMENTS = (
    declare_argument("--format", choices=("text", "xml"), default="text", help="text (default); xml: malloc_info(0, fp), byte for byte"),
    declare_argument(
        "--merged-only",
        action="store_true",
        help="general figures and all arenas merged; leave out single arenas, where the statistics have them",
    ),
)

HELP = """The statistics that the allocator itself would print.

They are read from memory, in the allocator's own words; nothing is called, and cores have them, too. Reports the allocator that owns
malloc, unless --allocator selects another. If another holds more memory than that one, a note names it.
Refused where the owner has no such text here: see `gdbheapx arenas`.
"""


@declare_command(
    "stats",
    ARGUMENTS,
    reads=lambda options: Reads.LISTS if options.format == "xml" else Reads.TOTALS,
    help=HELP,
    examples=("-p 4711 stats", "--core core.4711 stats --format xml"),
    needs=("gdbheapx.analysis.census.block",),
    snapshot=True,
)
def answer_stats(session: Session, options: Options) -> CommandAnswer:
    """The command `stats`."""
    if options.format == "xml":
        xml = session.kept(
            "malloc-info", str, lambda: str(session.heaps.with_own_account("native-info", "malloc-info").capabilities["native-info"]())
        )
        return CommandAnswer(lambda: {"xml": xml}, lambda style: xml.splitlines(), read=True, exact=True)
    name = "malloc-stats --merged-only" if options.merged_only else "malloc-stats"
    data, lines = session.kept(name, Tuple[Dict[str, Any], Sequence[str]], lambda: read_stats(session, options.merged_only))
    return CommandAnswer(lambda: data, lambda style: lines, read=True, exact=True)


def read_stats(session: Session, is_merged: bool) -> Tuple[Dict[str, Any], Sequence[str]]:
    """Return the statistics of the heap in use, as JSON and as the allocator itself prints them."""
    from gdbheapx.analysis.census import block

    heap = session.heaps.with_own_account("native-stats", "malloc-stats")
    stats = heap.capabilities["native-stats"]()
    if is_merged:
        if not hasattr(stats, "merged_only"):
            cause = "--merged-only does not apply to %s, which owns malloc here" % heap.kind
            raise UsageError(cause, "omit it, or select another with --allocator")
        stats = stats.merged_only()
    if session.allocator_id is None:
        others = [other for other in session.heaps.all() if other is not heap and "held-bytes" in other.capabilities]
        for what, hint in block.find_larger(stats.held_bytes, others):
            session.problem(OTHER_IS_LARGER, heap.info.id, what, hint, partial=False)
    return stats.data(), list(stats.lines())
