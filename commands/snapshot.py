"""heapx snapshot"""

from typing import Any

from gdbheapx.allocators.session import Session
from gdbheapx.command import OLDER, SHORT_STOP, CommandAnswer, Options, declare_argument, declare_command, name_a_target
from gdbheapx.common.errors import UsageError
from gdbheapx.common.stops import Reads

HELP = """Writes the heap to a small file, to keep, mail or compare.

`gdbheapx --snapshot FILE COMMAND` answers report, arenas, bins, tcache, tunables, decay, tickers, malloc-info,
malloc-stats, chunks --histogram, leaks, owners, refs, whatis, pins and census from it; `gdbheapx diff` compares two.
The file has every block in use with its size, type and pointers, some 2 bytes for each, but no byte of the program's
data.
It has names: of types, symbols, modules, variables and threads, and the program's path; --no-names replaces them by numbers, and --show
lists every text in a file. Keys in paths are data, and left out: `shop._cache[...]`. Addresses are those of mappings that were moved:
offsets are kept, places are not, unless --keep-addresses is given. A process is paused once.
FILE may be a URL (s3://BUCKET/KEY), here and wherever a snapshot is read: it requires fsspec (pip install 'gdbheapx[store]').
"""
VIEWS_HELP = """`export`, `query` and `report --html` read a snapshot, too.
"""


@declare_command(
    "snapshot",
    arguments=[
        declare_argument("file", metavar="FILE", help="the file, or a URL; an existing one is overwritten"),
        declare_argument("--no-names", action="store_true", help="replace names of types, symbols, modules, threads and files by numbers"),
        declare_argument("--with-offsets", action="store_true", help=OLDER),
        declare_argument(
            "--keep-addresses", action="store_true", help="write addresses as they are: they tell an attacker where things lie"
        ),
        declare_argument("--show", action="store_true", help="list every text in the snapshot FILE; needs no process or core"),
        *SHORT_STOP,
    ],
    needs_target=False,
    reads=Reads.SNAPSHOT,
    help=HELP,
    help_of={"html": VIEWS_HELP},
    examples=("-p 4711 snapshot now.snap", "--snapshot now.snap report", "snapshot now.snap --show"),
    needs=("gdbheapx.snapshot.take", "gdbheapx.report.census_text", "gdbheapx.report.reach_text"),
)
def answer_snapshot(session: Session, options: Options) -> CommandAnswer:
    """The command `snapshot`."""
    from gdbheapx.report import analysis_text

    if options.show:
        from gdbheapx.snapshot import record, take

        texts = take.list_strings(record.open_snapshot(options.file))
        return CommandAnswer(lambda: {"texts": texts}, lambda style: iter(texts), read=True)
    if not session.has_target:
        raise UsageError("snapshot requires a process or a core, or --show", name_a_target("snapshot now.snap"))
    from gdbheapx.snapshot import container, take

    made = take.take_snapshot(session, not options.no_names, options.keep_addresses)

    def written() -> Any:
        size = container.write_file(options.file, made.parts())
        return analysis_text.make_snapshot_data(options.file, size, made)

    return CommandAnswer(written, lambda style: analysis_text.format_snapshot(style, written(), made), read=True)
