"""heapx malloc-stats"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session


@command("malloc-stats")
def malloc_stats(session: Session, options: Any) -> Answer:
    """The text of malloc_stats(3) without its 32-bit overflow; --json gives mallinfo2's ten fields."""
    malloc = session.malloc()
    fields, mp = malloc.mallinfo2(), malloc.mp()
    arenas, total = malloc.malloc_stats()

    def text(style: Any) -> Any:
        from gdbheapx.report.stats import malloc_stats_text

        blocks = [(row.index, row.system_bytes, row.in_use_bytes) for row in arenas]
        return malloc_stats_text(blocks, (total.system_bytes, total.in_use_bytes), mp["max_n_mmaps"], mp["max_mmapped_mem"])

    return Answer(fields._asdict, text)
