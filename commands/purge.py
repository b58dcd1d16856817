"""heapx purge"""

from gdbheapx.allocators.session import Session
from gdbheapx.command import ACCEPT_SECCOMP_HELP, CommandAnswer, Options, declare_argument, declare_command
from gdbheapx.common.errors import UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.stops import Reads

HELP = """Makes an allocator return its unused pages.

Calls the allocator's own function. It cannot return what thread caches hold, nor free blocks in a page, slab or span with blocks in use.
It refuses, with the reason, if a call could harm the process: a thread is inside the allocator, a lock is held, the heap is damaged.
"""


@declare_command(
    "purge",
    arguments=[
        declare_argument("--arena", type=int, metavar="I", help="only this arena (default: all)"),
        declare_argument("--decay", action="store_true", help="only pages that have decayed by now, as the allocator's own timer would"),
        declare_argument("--dry-run", action="store_true", help="show what a purge would return to the OS; changes nothing"),
        declare_argument("--yes", action="store_true", help="do not ask for confirmation"),
        declare_argument(
            "--wait", type=int, default=20, metavar="N", help="retry up to N times if a thread is inside the allocator (default: 20)"
        ),
        declare_argument("--accept-seccomp", action="store_true", help=ACCEPT_SECCOMP_HELP),
    ],
    acts=lambda options: not options.dry_run,
    reads=Reads.TOTALS,
    help=HELP,
    examples=("-p 4711 purge --dry-run", "-p 4711 purge"),
)
def answer_purge(session: Session, options: Options) -> CommandAnswer:
    """The command `purge`."""
    if options.arena is not None and not 0 <= options.arena < 4096:
        raise UsageError("purge: arena %d not found" % options.arena, "see " + hint_command("arenas"))
    from gdbheapx.actions import call
    from gdbheapx.allocators.plan import Portion
    from gdbheapx.report import analysis_text, text

    portion = Portion(arena=options.arena, is_decayed=options.decay)
    if not options.dry_run:
        return analysis_text.make_acted_answer(call.return_heap_memory(session, options, "purge", portion))
    predicted = call.make_heap_dry_run(session, "purge", portion, options.accept_seccomp)()
    return CommandAnswer(lambda: predicted.data, lambda style: text.format_page(style, predicted.page), read=True)
