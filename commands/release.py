"""heapx release"""

from typing import Any, Iterator

from gdbheapx.allocators.session import Session
from gdbheapx.command import ACCEPT_SECCOMP_HELP, CommandAnswer, Options, TextStyle, declare_argument, declare_command
from gdbheapx.common.stops import Reads

HELP = """Returns free memory to the OS; --dry-run predicts it.

Each allocator of the process is asked in its own way: what `trim` or `purge` does, whichever is for it. It returns whole free pages, not
what thread caches hold, nor free memory in pages that also have blocks in use (`gdbheapx pins`). It asks before each call, and refuses,
with the reason, if a call could harm the process: a thread is inside the allocator, a lock is held, the heap is damaged. `trim` and `purge`
have options for one arena, for a pad, and for doing it again and again.
"""


@declare_command(
    "release",
    arguments=[
        declare_argument("--dry-run", action="store_true", help="predict what each allocator would return to the OS; changes nothing"),
        declare_argument("--yes", action="store_true", help="do not ask for confirmation"),
        declare_argument(
            "--wait", type=int, default=20, metavar="N", help="retry up to N times if a thread is inside the allocator (default: 20)"
        ),
        declare_argument("--accept-seccomp", action="store_true", help=ACCEPT_SECCOMP_HELP),
    ],
    acts=lambda options: not options.dry_run,
    reads=Reads.TOTALS,
    help=HELP,
    examples=("-p 4711 release --dry-run", "-p 4711 release"),
)
def answer_release(session: Session, options: Options) -> CommandAnswer:
    """The command `release`."""
    from gdbheapx.actions import call as action
    from gdbheapx.allocators.plan import Acted
    from gdbheapx.report import analysis_text, text

    parts = action.predict_release(session, options.accept_seccomp) if options.dry_run else action.release_memory(session, options)

    def lines(style: TextStyle) -> Iterator[Any]:
        for allocator, name, result in parts:
            if len(parts) > 1:
                yield "%s (%s):" % (allocator, name)
            yield from text.format_page(style, analysis_text.make_call_page(result) if isinstance(result, Acted) else result.page)

    rows = [{"allocator": allocator, "command": name, **result.data} for allocator, name, result in parts]
    return CommandAnswer(lambda: {"releases": rows}, lines, read=bool(options.dry_run))
