"""heapx trim"""

from typing import Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.errors import HeapxError
from gdbheapx.session import Session


@command(
    "trim",
    arguments=[
        argument("--dry-run", action="store_true", help="predict what malloc_trim would give back; changes nothing"),
        argument("--pad", type=int, default=0, metavar="N", help="bytes that malloc_trim(N) leaves at the main top"),
    ],
)
def trim(session: Session, options: Any) -> Answer:
    """What malloc_trim(PAD) would give back, predicted by its own rules (--dry-run); nothing is called or written.

    Whole pages inside free chunks of every arena, and the main arena's top. Never the tops of other arenas, never thread caches.
    """
    if not options.dry_run:
        if session.target.kind == "core":
            raise HeapxError("a core cannot be trimmed: there is no process to run malloc_trim in", "trim --dry-run predicts what it would give")
        raise HeapxError("this version does not run malloc_trim", "trim --dry-run predicts what it would give")
    from gdbheapx.analysis.trim import dry_run

    found = dry_run(session.glibc_malloc().predictions(options.pad))

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        return pages.trim(style, found)

    return Answer(lambda: found.data, text)
