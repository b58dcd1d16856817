"""The tables that SQL may name: their columns with DuckDB's types. An address is a UBIGINT, and nothing else is."""

from typing import NamedTuple, Sequence, Tuple

ADDRESS, NUMBER, TEXT, SHARE, FLAG = "UBIGINT", "BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN"
"""Types of columns."""
VARIABLE = "GDBHEAPX_TABLES"
"""Of the environment: what `query` and a parquet file need of one look, and the descriptors for blocks (look.py)."""
BLOCKS, SIGNATURE = "blocks", "signature"


class Column(NamedTuple):
    """One column."""

    name: str
    type: str


class Table(NamedTuple):
    """One table."""

    name: str
    what: str
    columns: Sequence[Column]
    words: Tuple[str, ...] = ()
    """The command whose answer it is; empty: none has it."""
    member: str = ""
    """Of the command's data: the rows."""


def _columns(type_: str, names: str) -> Tuple[Column, ...]:
    return tuple(Column(name, type_) for name in names.split())


IN_ARENA = (
    "system_bytes max_system_bytes used_chunks used_blocks used_bytes tcache_chunks tcache_bytes cached_blocks cached_bytes fast_chunks"
    " fast_bytes free_chunks free_bytes top_bytes overhead_bytes foreign_bytes allocated_bytes active_bytes dirty_bytes muzzy_bytes"
    " retained_bytes metadata_bytes mapped_bytes resident_bytes unparsed_bytes largest_free_bytes reclaimable_bytes"
    " reclaimable_resident_bytes reclaimable_exclusive_bytes free_returned_resident_bytes retained_resident_bytes huge_bytes threads"
    " blind_threads dirty_decay_ms muzzy_decay_ms"
)
"""Of any allocator: what one does not have is NULL."""

TABLES = (
    Table(
        BLOCKS,
        "every block of malloc's; class: used, cached, free, reserve, overhead, returned; signature: of those in use, only if SQL names it",
        (
            Column("address", ADDRESS),
            *_columns(NUMBER, "size_bytes usable_bytes"),
            *_columns(TEXT, "class status"),
            Column("arena", NUMBER),
            Column("allocator", TEXT),
            Column(SIGNATURE, TEXT),
        ),
    ),
    Table(
        "arenas",
        "as `arenas` shows them",
        (Column("allocator", TEXT), Column("index", NUMBER), Column("address", ADDRESS), Column("kind", TEXT), *_columns(NUMBER, IN_ARENA)),
        ("arenas",),
        "arenas",
    ),
    Table(
        "classes",
        "what the blocks in use are, as `census` has it",
        (
            *_columns(TEXT, "signature module sure"),
            *_columns(NUMBER, "size_bytes blocks bytes"),
            Column("share_percent", SHARE),
            Column("sample", ADDRESS),
        ),
        ("census",),
        "rows",
    ),
    Table(
        "threads",
        "each thread's cache, as `tcache` has it",
        (
            Column("allocator", TEXT),
            Column("lwp", NUMBER),
            Column("name", TEXT),
            Column("arena", NUMBER),
            Column("tcache", ADDRESS),
            *_columns(NUMBER, "chunks bytes"),
        ),
        ("tcache",),
        "threads",
    ),
    Table(
        "mappings",
        "memory of the process, or of its core, by mapping and by whose it is, as `report` splits it",
        (
            *_columns(ADDRESS, "start end"),
            *_columns(NUMBER, "bytes resident_bytes swapped_bytes"),
            *_columns(TEXT, "permissions name kind owner allocator"),
        ),
    ),
    Table(
        "leaks",
        "leaked blocks to which no other leads, by size and signature, with what hangs behind them, as `leaks` has it",
        (
            *_columns(TEXT, "signature kind"),
            *_columns(NUMBER, "size_bytes blocks bytes behind_blocks behind_bytes"),
            Column("sample", ADDRESS),
        ),
        ("leaks",),
        "groups",
    ),
    Table(
        "owners",
        "who keeps memory alive, down to level 3, the 40 largest of each; parent is the row above, NULL on level 1",
        (
            *_columns(NUMBER, "row level parent"),
            *_columns(TEXT, "owner kind"),
            Column("address", ADDRESS),
            *_columns(NUMBER, "retained_bytes retained_blocks"),
            Column("share_percent", SHARE),
            *_columns(NUMBER, "reached_bytes reached_blocks"),
            Column(SIGNATURE, TEXT),
        ),
        ("owners", "--depth", "3", "--limit", "40"),
        "owners",
    ),
)
BY_NAME = {table.name: table for table in TABLES}
BY_ONE_LOOK = ("classes", "leaks", "owners")
"""The first of them that reads every block does it for all: those read while the process stands still come before."""
