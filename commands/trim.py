"""heapx trim"""

from typing import Any

from gdbheapx import command
from gdbheapx.allocators.session import Session
from gdbheapx.command import SIZE_HELP, CommandAnswer, Options, TextStyle, declare_argument, declare_command
from gdbheapx.common.errors import UsageError
from gdbheapx.common.stops import Reads


def calls_process(options: Options) -> bool:
    """Return True if the options ask for a call into the process, which needs gdb."""
    return not options.dry_run or bool(options.probe)


HELP = """Calls malloc_trim, or with --dry-run predicts it.

It returns whole pages inside free chunks of every arena, and the main arena's top. It never returns the tops of other arenas, nor
what thread caches hold. It refuses, with the reason, if a call could harm the process: a thread is inside malloc, a lock is held,
the heap is damaged.
"""


@declare_command(
    "trim",
    arguments=[
        declare_argument("--dry-run", action="store_true", help="predict what malloc_trim would return to the OS; changes nothing"),
        declare_argument("--yes", action="store_true", help="do not ask for confirmation"),
        declare_argument(
            "--pad",
            type=command.parse_size,
            default=0,
            metavar="SIZE",
            help="how much malloc_trim(SIZE) leaves at the main top; " + SIZE_HELP,
        ),
        declare_argument(
            "--wait", type=int, default=20, metavar="N", help="retry up to N times if a thread is inside malloc (default: 20)"
        ),
        declare_argument("--accept-seccomp", action="store_true", help=command.ACCEPT_SECCOMP_HELP),
        declare_argument(
            "--probe", action="store_true", help="with --dry-run: also test, harmlessly, whether gdb can write and restore registers here"
        ),
        declare_argument(
            "--every",
            type=command.parse_seconds,
            metavar="SECONDS",
            help="(shell only) repeat every SECONDS, one JSON line per round; requires --above",
        ),
        declare_argument(
            "--above",
            type=command.parse_size,
            metavar="SIZE",
            help="with --every: trim only while more than this is resident; " + SIZE_HELP,
        ),
        declare_argument("--times", type=int, metavar="N", help="with --every: end after N rounds (default: when the process exits)"),
    ],
    acts=calls_process,
    reads=Reads.TOTALS,
    help=HELP,
    examples=("-p 4711 trim --dry-run", "-p 4711 trim"),
)
def answer_trim(session: Session, options: Options) -> CommandAnswer:
    """The command `trim`."""
    if options.dry_run:
        return answer_prediction(session, options)
    if options.every is not None or options.above is not None or options.times is not None:
        return trim_periodically(session, options)
    from gdbheapx.actions import call
    from gdbheapx.allocators.plan import Portion
    from gdbheapx.report import analysis_text

    return analysis_text.make_acted_answer(call.return_heap_memory(session, options, "trim", Portion(options.pad)))


def answer_prediction(session: Session, options: Options) -> CommandAnswer:
    """The dry run."""
    from gdbheapx.actions import call
    from gdbheapx.allocators.plan import Portion

    look = call.make_heap_dry_run(session, "trim", Portion(options.pad), options.accept_seccomp)
    can_write, predicted = call.probe_registers(session, look) if options.probe else (None, look())

    def text(style: TextStyle) -> Any:
        from gdbheapx.report.text import format_page

        yield from format_page(style, predicted.page)
        if can_write:
            yield "gdb can write and restore registers here: calls look possible"

    return CommandAnswer(lambda: {**predicted.data, "probe": can_write} if options.probe else predicted.data, text, read=True)


def trim_periodically(session: Session, options: Options) -> CommandAnswer:
    """--every: one JSON line for each period."""
    from gdbheapx.actions import call
    from gdbheapx.report.encodings import encode_json

    if options.every is None or options.above is None:
        raise UsageError("trim: --every and --above must be given together", "try: trim --every 60 --above 1000000000 --yes")
    if not options.yes:
        raise UsageError("trim: --every runs unattended and needs --yes", "add --yes")

    def lines(style: TextStyle) -> Any:
        for row in call.run_rounds(session, options, session.again):
            yield encode_json(row)

    return CommandAnswer(lambda: list(call.run_rounds(session, options, session.again)), lines, live=True)
