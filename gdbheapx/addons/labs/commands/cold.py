"""heapx cold"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, declare_argument, declare_command, parse_count, some_seconds
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.problems import NOT_LIVE
from gdbheapx.common.stops import Reads

HELP = """Memory in use but untouched, and memory in swap.

By class and owner. Cold are blocks with all pages in swap, or untouched while they were watched. Without --for nothing is
watched. With --for the pages are marked, the process runs on, and after that time a short pause shows which are still untouched. It asks
first (--yes), because it changes state of the kernel:

`--age idle` (where the kernel has idle page tracking): reads and writes. No call in the process, no fault; the marks are one for all who
use them. Where the kernel reclaims memory by generations (MGLRU), a watch in which it did ends in an error.

`--age written`: writes alone, so memory that is only read looks cold. The process makes two system calls and takes a page fault for each
page that it first writes to (Linux 6.7); on Linux 6.1 to 6.6 the kernel's soft-dirty bits are cleared instead. With `--reads` the accessed
bits are cleared first, and show by mapping how much was read: where all was, or nothing, the rows go by it. Under memory pressure the
kernel may then swap out memory in use.

One hot block makes its whole page look hot, so cold memory is a lower bound. Unknown ages are `age unknown`, neither warm nor cold.

To be named and counted, blocks in swap are read, which brings them back into RAM: the next answer has less in swap. A snapshot has the
state of its time; a core has none.
"""


def watch_before(session: Session, options: Options) -> None:
    """Before the look: what becomes of marked pages."""
    kind, in_gdb = session.target.kind, session.in_gdb and options.for_s
    if kind == "core":
        what = "a core does not say which pages were in swap, nor which were in use"
        raise HeapxError(what, "while it runs: gdbheapx -p PID cold --for 60", code=NOT_LIVE)
    if in_gdb or kind not in ("live", "snapshot"):
        what = "cold --for needs a process that runs on meanwhile" if in_gdb else "cold needs a process of this machine"
        raise HeapxError(what, "run: gdbheapx -p %s cold --for 60" % (session.target.pid or "PID"), code=NOT_LIVE)
    if not options.for_s and (options.age or options.reads):
        raise UsageError("--age and --reads are for a watch", "add --for SECONDS")
    if options.for_s:
        if kind == "snapshot":
            how = "ask the process: gdbheapx -p %s cold --for %g" % (session.target.pid or "PID", options.for_s)
            raise HeapxError("a snapshot has no process to watch", how, code=NOT_LIVE)
        from gdbheapx.addons.labs.cold import watch

        watch.watch_pages(session, options)


@declare_command(
    "cold",
    arguments=[
        declare_argument(
            "--for", dest="for_s", type=some_seconds, metavar="SECONDS", help="mark pages, and see which are untouched so long after"
        ),
        declare_argument(
            "--age", choices=("idle", "written"), help="with --for: by which means (default: idle where there is it, and no MGLRU)"
        ),
        declare_argument("--reads", action="store_true", help="with --age written: also how much was read, by the kernel's marks"),
        declare_argument("--by", choices=("both", "class", "owner"), default="both", help="group rows by this (default: both)"),
        declare_argument("--limit", type=parse_count, metavar="N", help="at most N rows (default: 20 in text)"),
        declare_argument("--accept-thp-split", action="store_true", help="with --age written, although huge pages may become small ones"),
        declare_argument(
            "--accept-mark-loss", action="store_true", help="with --for, although others may wait for the marks that are used"
        ),
        declare_argument("--yes", action="store_true", help="with --for: do not ask for confirmation"),
    ],
    reads=Reads.OWNERS,
    live=True,
    help=HELP,
    examples=("-p 4711 cold", "-p 4711 cold --for 60"),
    snapshot=True,
    needs=("gdbheapx.addons.labs.cold.find",),
    before=watch_before,
)
def cold(session: Session, options: Options) -> CommandAnswer:
    """The command `cold`."""
    from gdbheapx.addons.labs.cold import find
    from gdbheapx.report.text import format_page

    found = find.find_cold(session, options.by)
    limit = options.limit
    return CommandAnswer(
        lambda: find.make_cold_data(found, limit),
        lambda style: format_page(style, find.make_cold_page(found, limit)),
        read=True,
        record=lambda: found,
    )
