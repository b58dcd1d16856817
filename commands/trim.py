"""heapx trim"""

from typing import Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.session import Session


def acts(options: Any) -> bool:
    """It needs gdb's power over the process, not only to read it."""
    return not options.dry_run or options.probe


@command(
    "trim",
    arguments=[
        argument("--dry-run", action="store_true", help="predict what malloc_trim would give back; changes nothing"),
        argument("--yes", action="store_true", help="do not ask"),
        argument("--pad", type=int, default=0, metavar="N", help="bytes that malloc_trim(N) leaves at the main top"),
        argument("--wait", type=int, default=20, metavar="N", help="stop again up to N times while a thread is inside malloc (default: 20)"),
        argument("--probe", action="store_true", help="with --dry-run: try whether gdb can write and restore registers here, harmlessly"),
    ],
    acts=acts,
)
def trim(session: Session, options: Any) -> Answer:
    """Run malloc_trim(PAD) in the process, or predict by its own rules what it would give back (--dry-run).

    Whole pages inside free chunks of every arena, and the main arena's top. Never the tops of other arenas, never thread caches.
    It refuses, with the reason, where a call could harm the process: a thread inside malloc, a lock that is held, a damaged heap.
    """
    if options.dry_run:
        return predict(session, options)
    from gdbheapx.actions import trim as action

    done = action.run(session, options)
    if done.trouble is not None:
        session.problem(None, done.trouble, "see what the process does now before anything else is tried")

    def text(style: Any) -> Any:
        from gdbheapx.report import acted

        return acted.call(style, done)

    return Answer(lambda: done.data, text)


def predict(session: Session, options: Any) -> Answer:
    """The dry run."""
    from gdbheapx.analysis.trim import dry_run

    found = dry_run(session.glibc_malloc().predictions(options.pad))

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        return pages.trim(style, found)

    return Answer(lambda: found.data, text)
