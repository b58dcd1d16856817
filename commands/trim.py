"""heapx trim"""

from typing import Any

from gdbheapx.command import ACCEPT_SECCOMP_HELP, SIZE_HELP, Answer, Options, Style, argument, command, seconds, size
from gdbheapx.errors import UsageError
from gdbheapx.session import Session
from gdbheapx.stops import Reads


def acts(options: Options) -> bool:
    """Return True if the options ask for a call into the process, which needs gdb."""
    return not options.dry_run or bool(options.probe)


HELP = """Calls malloc_trim, or with --dry-run predicts it.

It returns whole pages inside free chunks of every arena, and the main arena's top. It never returns the tops of other arenas, nor
what thread caches hold. It refuses, with the reason, if a call could harm the process: a thread is inside malloc, a lock is held,
the heap is damaged.
"""


@command(
    "trim",
    arguments=[
        argument("--dry-run", action="store_true", help="predict what malloc_trim would return to the OS; changes nothing"),
        argument("--yes", action="store_true", help="do not ask for confirmation"),
        argument("--pad", type=size, default=0, metavar="SIZE", help="how much malloc_trim(SIZE) leaves at the main top; " + SIZE_HELP),
        argument("--wait", type=int, default=20, metavar="N", help="retry up to N times if a thread is inside malloc (default: 20)"),
        argument("--accept-seccomp", action="store_true", help=ACCEPT_SECCOMP_HELP),
        argument(
            "--probe", action="store_true", help="with --dry-run: also test, harmlessly, whether gdb can write and restore registers here"
        ),
        argument(
            "--every", type=seconds, metavar="SECONDS", help="(shell only) repeat every SECONDS, one JSON line per round; requires --above"
        ),
        argument("--above", type=size, metavar="SIZE", help="with --every: trim only while more than this is resident; " + SIZE_HELP),
        argument("--times", type=int, metavar="N", help="with --every: end after N rounds (default: when the process exits)"),
    ],
    acts=acts,
    reads=Reads.TOTALS,
    help=HELP,
    examples=("-p 4711 trim --dry-run", "-p 4711 trim"),
)
def trim(session: Session, options: Options) -> Answer:
    """The command `trim`."""
    if options.dry_run:
        return predict(session, options)
    if options.every is not None or options.above is not None or options.times is not None:
        return again(session, options)
    from gdbheapx.actions import call
    from gdbheapx.allocators.returning import Portion
    from gdbheapx.report import pages

    return pages.make_acted_answer(call.run(session, options, "trim", Portion(options.pad)))


def predict(session: Session, options: Options) -> Answer:
    """The dry run."""
    from gdbheapx.actions import call, foreseen
    from gdbheapx.allocators.returning import Portion

    look = foreseen.dry_run(session, "trim", Portion(options.pad), options.accept_seccomp)
    can_write, predicted = call.probe(session, look) if options.probe else (None, look())

    def text(style: Style) -> Any:
        from gdbheapx.report.text import format_page

        yield from format_page(style, predicted.page)
        if can_write:
            yield "gdb can write and restore registers here: calls look possible"

    return Answer(lambda: {**predicted.data, "probe": can_write} if options.probe else predicted.data, text, read=True)


def again(session: Session, options: Options) -> Answer:
    """--every: one JSON line for each period."""
    from gdbheapx.actions import every
    from gdbheapx.report.encodings import encode_json

    if options.every is None or options.above is None:
        raise UsageError("trim: --every and --above must be given together", "try: trim --every 60 --above 1000000000 --yes")
    if not options.yes:
        raise UsageError("trim: --every runs unattended and needs --yes", "add --yes")

    def lines(style: Style) -> Any:
        for row in every.rounds(session, options, session.again):
            yield encode_json(row)

    return Answer(lambda: list(every.rounds(session, options, session.again)), lines, live=True)
