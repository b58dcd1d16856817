"""heapx report"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """Where the memory went: is it malloc at all, is it a leak or is the allocator holding it, and what to do next.

First the memory of the process (RSS), or the bytes of the core, by whose it is: allocators, runtimes (JVM, V8, Go, BEAM, PHP, Ruby,
CPython), thread stacks, generated code, bss, shared memory, private copies of file pages, page cache. The parts add up to RSS;
`shared` and PSS tell what other processes map as well, `swapped` what is in swap, hugetlb pages are beside RSS. docs/whose-memory.md
explains each. Then a verdict with its evidence, the arenas, the size classes that hold most, and what trim would give back.

Kinds of verdict: `leak-like` (the program holds it), `hoarding` (the allocator holds what was freed), `fragmented` (jemalloc), `mixed`,
`small`, `huge-pages` (what the allocator gave back is in RAM all the same, on huge pages that it still uses parts of), `not-malloc` (something else is larger than all allocators; its code is `mostly-` and the kind of that part), `unread`
(an allocator that cannot be read may have it). `sure` is `certain`, `likely` or `guess`.
"""


@command("report", help=HELP)
def report(session: Session, options: Any) -> Answer:
    """The command `report`."""
    from gdbheapx.analysis.overview import overview

    session.may_be_none = True
    found = overview(session)

    def text(style: Any) -> Any:
        from gdbheapx.report.overview_text import lines

        return lines(style, found)

    return Answer(lambda: found, text, read=True)
