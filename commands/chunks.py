"""heapx chunks"""

from typing import Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.session import Session

STATUSES = ("used", "tcache", "cached", "fast", "free", "top", "mmapped", "overhead", "dirty", "muzzy", "retained", "metadata")


@command(
    "chunks",
    arguments=[
        argument("--arena", type=int, metavar="N", help="only arena N, counted as in `arenas`"),
        argument("--status", action="append", choices=STATUSES, help="only chunks of this status; may be repeated"),
        argument("--min-size", type=int, default=0, metavar="N", help="only chunks of at least N bytes, header included where there is one"),
        argument("--max-size", type=int, metavar="N", help="only chunks of at most N bytes, header included where there is one"),
        argument("--limit", type=int, metavar="N", help="at most N chunks; text shows 100 unless told, JSON all"),
        argument("--sort", choices=("size", "address"), help="size: the N largest first (N is --limit, 1,000 unless told)"),
        argument("--histogram", action="store_true", help="count by size class instead of listing"),
    ],
)
def chunks(session: Session, options: Any) -> Answer:
    """Every chunk with its address, size and status; filtered, sorted, or counted by size class.

    `address` is what malloc returned, `chunk` glibc's header before it. A chunk in a thread cache or fastbin is listed as such, not as used.
    jemalloc's blocks are used, cached (in a thread cache) or free regions of slabs; dirty, muzzy and retained are its unused extents.
    """
    from gdbheapx.report import listing

    if options.histogram:
        rows = [row for malloc in session.mallocs() for row in malloc.histogram()]
        return listing.histogram_answer(rows)
    selection = listing.Selection(
        options.arena, frozenset(options.status) if options.status else None, options.min_size, options.max_size, options.limit, options.sort
    )
    return listing.chunk_answer(session.mallocs(), selection)
