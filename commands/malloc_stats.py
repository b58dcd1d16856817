"""heapx malloc-stats"""

from typing import TYPE_CHECKING, Any

from gdbheapx.command import Answer, argument, command
from gdbheapx.errors import UsageError
from gdbheapx.problems import OTHER_IS_LARGER
from gdbheapx.session import Session

if TYPE_CHECKING:
    from gdbheapx.glibc.allocator import GlibcMalloc
    from gdbheapx.jemalloc.allocator import JemallocMalloc

ARGUMENTS = (argument("--merged-only", action="store_true", help="jemalloc: general figures and all arenas merged; leave out single arenas"),)

HELP = """The statistics that the allocator itself would print, read from memory; calls nothing.

jemalloc: malloc_stats_print's text; --json has its keys. glibc: the text of malloc_stats(3) without its 32-bit overflow; --json
gives mallinfo2's ten fields. Reports the allocator that owns malloc, unless --allocator selects another. If a jemalloc holds
more memory than that one, a note names it.
"""


@command("malloc-stats", ARGUMENTS, help=HELP)
def malloc_stats(session: Session, options: Any) -> Answer:
    """The command `malloc-stats`."""
    malloc = session.malloc()
    if malloc.kind == "jemalloc":
        return _jemalloc(malloc, options.merged_only)  # type: ignore[arg-type]
    if options.merged_only:
        raise UsageError("--merged-only requires jemalloc, but glibc owns malloc here", "omit it, or add --allocator jemalloc")
    return _glibc(session, malloc)  # type: ignore[arg-type]


def _jemalloc(malloc: "JemallocMalloc", merged_only: bool) -> Answer:
    from gdbheapx.jemalloc import stats

    found = malloc.malloc_stats()
    if merged_only:
        found = stats.merged_only(found)

    def text(style: Any) -> Any:
        from gdbheapx.report.jemalloc_stats import malloc_stats_text

        return malloc_stats_text(found)

    return Answer(lambda: {"jemalloc": stats.as_json(found)}, text, read=True)


def _glibc(session: Session, malloc: "GlibcMalloc") -> Answer:
    from gdbheapx.analysis import beside

    fields, mp = malloc.mallinfo2(), malloc.mp()
    arenas, total = malloc.malloc_stats()
    if session.allocator_id is None:
        for what, hint in beside.larger(total.system_bytes, session.jemalloc_mallocs()):
            session.problem(OTHER_IS_LARGER, malloc.info.id, what, hint, partial=False)

    def text(style: Any) -> Any:
        from gdbheapx.report.stats import malloc_stats_text

        blocks = [(row.index, row.system_bytes, row.in_use_bytes) for row in arenas]
        return malloc_stats_text(blocks, (total.system_bytes, total.in_use_bytes), mp["max_n_mmaps"], mp["max_mmapped_mem"])

    return Answer(fields._asdict, text, read=True)
