"""The tables that SQL may name: their columns with DuckDB's types, as the records of the commands declare them. An address is a UBIGINT,
and nothing else is."""

from typing import Any, Dict, NamedTuple, Sequence, Tuple, Union, get_args, get_origin, get_type_hints

from gdbheapx.allocators import OfAllocator
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.reachability.leaks import Group
from gdbheapx.analysis.reachability.owners import Owned
from gdbheapx.model import Address, ThreadCache

ADDRESS, NUMBER, TEXT, SHARE, FLAG = "UBIGINT", "BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN"
"""Types of columns."""
VARIABLE = "GDBHEAPX_TABLES"
"""Of the environment: what `query` and a parquet file need of one look, and the descriptors for blocks (table_rows.py)."""
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


TYPES = {bool: FLAG, int: NUMBER, str: TEXT, float: SHARE, Address: ADDRESS, Sequence[Address]: ADDRESS}
"""By type of a record's member; of samples the first is shown."""


def columns_of(record: Any) -> Tuple[Column, ...]:
    """The members of a record that are one value. Of arenas those of every allocator: what one does not have is NULL."""
    kind = record.kind() if isinstance(record, OfAllocator) else record
    columns: Dict[str, Column] = {}
    for choice in get_args(kind) or (kind,):
        for name, declared in get_type_hints(choice).items():
            type_ = get_args(declared)[0] if get_origin(declared) is Union else declared
            if type_ in TYPES:
                columns.setdefault(name, Column(name, TYPES[type_]))
    return tuple(columns.values())


def _columns(type_: str, names: str) -> Tuple[Column, ...]:
    return tuple(Column(name, type_) for name in names.split())


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
        columns_of(OfAllocator("arenas")),
        ("arenas",),
        "arenas",
    ),
    Table(
        "classes",
        "what the blocks in use are, as `census` has it",
        columns_of(CensusRow),
        ("census",),
        "rows",
    ),
    Table(
        "held",
        "which owner holds which class, as `census --by owner` has it",
        columns_of(CensusRow),
        ("census", "--by", "owner"),
        "rows",
    ),
    Table(
        "threads",
        "each thread's cache, as `tcache` has it",
        columns_of(ThreadCache),
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
        columns_of(Group),
        ("leaks",),
        "groups",
    ),
    Table(
        "owners",
        "who keeps memory alive, down to level 3, the 40 largest of each; parent is the row above, NULL on level 1",
        (*_columns(NUMBER, "row level parent"), *columns_of(Owned)),
        ("owners", "--depth", "3", "--limit", "40"),
        "owners",
    ),
)
BY_NAME = {table.name: table for table in TABLES}
BY_ONE_LOOK = ("classes", "held", "leaks", "owners")
"""The first of them that reads every block does it for all: those read while the process stands still come before."""
