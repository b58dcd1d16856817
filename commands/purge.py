"""heapx purge"""

from typing import Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.errors import UsageError
from gdbheapx.session import Session

HELP = """Have jemalloc give its unused pages back: mallctl("arena.<i>.purge") in the process, or what it would give (--dry-run).

Dirty and muzzy pages of one arena or of all. Never what thread caches hold, never free regions in slabs that are in use.
It refuses, with the reason, where a call could harm the process: a thread inside jemalloc, a lock that is held, damage.
"""


@command(
    "purge",
    arguments=[
        argument("--arena", type=int, metavar="I", help="this arena alone (default: all)"),
        argument("--decay", action="store_true", help="only what has decayed by now, as a tick would"),
        argument("--dry-run", action="store_true", help="tell what a purge would give back; changes nothing"),
        argument("--yes", action="store_true", help="do not ask"),
        argument("--wait", type=int, default=20, metavar="N", help="stop again up to N times while a thread is inside jemalloc (default: 20)"),
    ],
    acts=lambda options: not options.dry_run,
    help=HELP,
)
def purge(session: Session, options: Any) -> Answer:
    """The command `purge`."""
    if options.arena is not None and not 0 <= options.arena < 4096:
        raise UsageError("purge: there is no arena %d" % options.arena, "see `gdbheapx arenas`")
    if options.dry_run:
        return predict(session, options)
    from gdbheapx.actions import purge as action
    from gdbheapx.report import acted

    return acted.answer(action.run(session, options))


def predict(session: Session, options: Any) -> Answer:
    """The dry run."""
    from gdbheapx.analysis.acted import purge_dry_run

    mallocs = session.jemallocs_in_question()
    if not mallocs:
        raise session.no_jemalloc("glibc's counterpart is trim")
    found = purge_dry_run(mallocs, options.arena, session.target.page_bytes)

    def text(style: Any) -> Any:
        from gdbheapx.report import acted

        return acted.purge_dry_run(style, found)

    return Answer(lambda: found.data, text, read=True)
