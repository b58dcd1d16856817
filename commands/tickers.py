"""heapx tickers"""

from typing import TYPE_CHECKING, Annotated, Any

from gdbheapx.allocators.session import Session
from gdbheapx.command import ACCEPT_SECCOMP_HELP, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.errors import UsageError
from gdbheapx.common.stops import Reads

if TYPE_CHECKING:
    from gdbheapx.allocators.records import Answered

HELP = """jemalloc threads that never return unused pages.

In jemalloc 5.0.1 to 5.2.1 a thread with free() as its first call never returns unused pages to the OS: it is `blind`. A thread that has
only freed so far becomes blind at its first malloc: it is `at-risk`. Exit code 3: an arena goes unpurged, or is degraded, overdue by more
than twice its decay time and keeps more than 1 MiB or 1 % of what jemalloc holds (--strict: a thread is blind, whether or not its arena
suffers); 4: the state of a thread is unknown. Changes nothing in the process unless --cure is given.
"""


@declare_command(
    "tickers",
    arguments=[
        declare_argument(
            "--cure", action="store_true", help="reset one byte in the tsd of each blind thread, so that it ticks again; calls nothing"
        ),
        declare_argument("--strict", action="store_true", help="exit code 3 for each blind thread, also where its arena is purged"),
        declare_argument("--thread", type=int, metavar="LWP", help="with --cure: only this thread"),
        declare_argument("--yes", action="store_true", help="with --cure: do not ask for confirmation"),
        declare_argument(
            "--wait",
            type=int,
            default=20,
            metavar="N",
            help="with --cure: retry up to N times if a thread is inside jemalloc (default: 20)",
        ),
        declare_argument("--accept-seccomp", action="store_true", help="with --cure: " + ACCEPT_SECCOMP_HELP),
    ],
    acts=lambda options: options.cure,
    reads=Reads.STATE,
    help=HELP,
    examples=("-p 4711 tickers", "-p 4711 tickers --cure"),
    snapshot=True,
)
def answer_tickers(session: Session, options: Options) -> CommandAnswer:
    """The command `tickers`."""
    if options.thread is not None and not options.cure:
        raise UsageError("tickers: --thread requires --cure", "try: tickers --cure --thread %d" % options.thread)
    from gdbheapx.actions import call
    from gdbheapx.allocators.records import OfAllocator

    if options.cure:
        return _make_answer(call.cure_threads(session, options), options.strict)
    kind = Annotated[Any, OfAllocator("tickers")]
    return _make_answer(session.kept("tickers", kind, lambda: call.find_blind_tickers(session)), options.strict)


def _make_answer(answered: "Answered", is_strict: bool) -> CommandAnswer:
    from gdbheapx.report.text import format_page

    finding = answered.is_strict_finding if is_strict else answered.is_finding
    return CommandAnswer(lambda: answered.data, lambda style: format_page(style, answered.page), finding=finding, read=not answered.is_done)
