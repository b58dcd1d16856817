"""heapx chunks"""

from typing import Iterator

from gdbheapx import allocators
from gdbheapx.allocators.session import Session
from gdbheapx.command import OLDER, SIZE_HELP, CommandAnswer, Options, declare_argument, declare_command, parse_count, parse_size
from gdbheapx.common.stops import Reads


class ChunkStatuses:
    """The words of every allocator, asked for when a line has one."""

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(word for allocator in allocators.all_allocators() for word in allocator.statuses))

    def __contains__(self, word: object) -> bool:
        return word in list(self)


HELP = """Every chunk with its address, size and status.

`address` is what malloc returned; `chunk` is the header before it, where the allocator has one.
"""


@declare_command(
    "chunks",
    needs=("gdbheapx.report.pages",),
    arguments=[
        declare_argument("--arena", type=int, metavar="N", help="only arena N, numbered as in `arenas`"),
        declare_argument("--status", action="append", choices=ChunkStatuses(), help="only chunks of this status; may be repeated"),
        declare_argument(
            "--min-size", type=parse_size, default=0, metavar="SIZE", help="only chunks of at least SIZE, header included; " + SIZE_HELP
        ),
        declare_argument("--max-size", type=parse_size, metavar="SIZE", help="only chunks of at most SIZE, header included; " + SIZE_HELP),
        declare_argument("--limit", type=parse_count, metavar="N", help="at most N chunks (default: 100 in text, all in JSON)"),
        declare_argument("--sort", choices=("size", "address"), help="size: the N largest, largest first (N is --limit, default 1,000)"),
        declare_argument("--histogram", action="store_true", help=OLDER),
    ],
    reads=Reads.BLOCKS,
    help=HELP,
    examples=("-p 4711 chunks --sort size --limit 20", "--core core.4711 chunks --status free --min-size 1M"),
    snapshot="histogram",
)
def answer_chunks(session: Session, options: Options) -> CommandAnswer:
    """The command `chunks`."""
    from gdbheapx.report import pages

    if options.histogram:
        return pages.answer_sizes(session)
    statuses, sizes = frozenset(options.status) if options.status else None, (options.min_size, options.max_size)
    selection = pages.ChunkSelection(options.arena, statuses, *sizes, options.limit, options.sort)
    return pages.answer_chunks(session.heaps.all(), selection)
