"""The tables that SQL may name: their columns with DuckDB's types, as the records of the commands declare them. An address is a UBIGINT,
and nothing else is."""

from typing import Any, Dict, NamedTuple, Sequence, Tuple, Union, get_args, get_origin, get_type_hints

from gdbheapx import allocators
from gdbheapx.allocators.records import OfAllocator
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.reachability.dominance import MOST_CONTAINERS, ContainerRow
from gdbheapx.analysis.reachability.leaks import LeakGroup
from gdbheapx.analysis.reachability.managed import HeldByField, ManagedClass
from gdbheapx.analysis.reachability.owners import OwnedMemory
from gdbheapx.model import TargetAddress, ThreadCache

ADDRESS, NUMBER, TEXT, SHARE, FLAG, NUMBERS = "UBIGINT", "BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN", "BIGINT[]"
"""Types of columns."""
VARIABLE = "GDBHEAPX_TABLES"
"""Of the environment: what `query` and a parquet file need of one look, and the descriptors for blocks (table_rows.py)."""
BLOCKS, HELD_BLOCKS, SITES, CONTAINERS = "blocks", "held_blocks", "sites", "containers"
SIGNATURE, OWNER, CONTAINER, PATH = "signature", "owner", "container", "path"
COSTLY = {BLOCKS: (SIGNATURE, OWNER, CONTAINER, PATH), HELD_BLOCKS: (PATH,)}
"""By table the columns that are there only if SQL names them."""
NOT_COUNTED = "[of the allocator, or cut up]"
"""The owner of a block in use that `owners` does not count: the allocator's own, or one whose pieces count."""
MOST_PATHS = 50_000


class QueryColumn(NamedTuple):
    """Column of a table."""

    name: str
    type: str


class QueryTable(NamedTuple):
    """Table for SQL."""

    name: str
    what: str
    columns: Sequence[QueryColumn]
    words: Tuple[str, ...] = ()
    """The command whose answer it is; empty: none has it."""
    member: str = ""
    """Of the command's data: the rows."""


class Asked(NamedTuple):
    """Tables and costly columns that SQL names."""

    tables: Sequence[str]
    columns: Sequence[Tuple[str, str]] = ()
    """(table, column), of COSTLY."""

    @property
    def with_signatures(self) -> bool:
        """Blocks get them."""
        return (BLOCKS, SIGNATURE) in self.columns

    @property
    def with_owners(self) -> bool:
        """Blocks have owners, whichever table says so."""
        return HELD_BLOCKS in self.tables or {(BLOCKS, OWNER), (BLOCKS, CONTAINER)} & {*self.columns} != set() or self.with_paths

    @property
    def with_paths(self) -> bool:
        """And paths."""
        return any(column == PATH for _, column in self.columns)

    def missing(self, table: str) -> Sequence[str]:
        """Columns of a table that are not there."""
        return [column for column in COSTLY.get(table, ()) if (table, column) not in self.columns]


TYPES = {bool: FLAG, int: NUMBER, str: TEXT, float: SHARE, TargetAddress: ADDRESS, Sequence[TargetAddress]: ADDRESS}
"""By type of a record's member; of samples the first is shown."""


def table_columns_of(record: Any) -> Tuple[QueryColumn, ...]:
    """The members of a record that are one value. Of arenas those of every allocator: what one does not have is NULL."""
    kind = allocators.find_record_kinds(record) if isinstance(record, OfAllocator) else record
    columns: Dict[str, QueryColumn] = {}
    for choice in get_args(kind) or (kind,):
        for name, declared in get_type_hints(choice).items():
            type_ = get_args(declared)[0] if get_origin(declared) is Union else declared
            if type_ in TYPES:
                columns.setdefault(name, QueryColumn(name, TYPES[type_]))
    return tuple(columns.values())


def _make_columns(type_: str, names: str) -> Tuple[QueryColumn, ...]:
    return tuple(QueryColumn(name, type_) for name in names.split())


TABLES = (
    QueryTable(
        BLOCKS,
        "every block of malloc's; class: used, cached, free, reserve, overhead, returned; signature, owner, container, path: of those in "
        "use, each only if SQL names it: then every block is read, as `owners` does; owner NULL: leaked; path: see held_blocks",
        (
            QueryColumn("address", ADDRESS),
            *_make_columns(NUMBER, "size_bytes usable_bytes"),
            *_make_columns(TEXT, "class status"),
            QueryColumn("arena", NUMBER),
            QueryColumn("allocator", TEXT),
            *_make_columns(TEXT, "%s %s" % (SIGNATURE, OWNER)),
            QueryColumn(CONTAINER, NUMBER),
            QueryColumn(PATH, TEXT),
        ),
    ),
    QueryTable(
        HELD_BLOCKS,
        "every block in use that `owners` counts, those that runtimes cut themselves too; owner: NULL if leaked, by name the 500 that "
        "retain most; path: of the %s largest blocks, only if SQL names it: NULL where nothing gives a name" % "{:,}".format(MOST_PATHS),
        (
            QueryColumn("address", ADDRESS),
            QueryColumn("usable_bytes", NUMBER),
            *_make_columns(TEXT, "signature owner"),
            QueryColumn(CONTAINER, NUMBER),
            QueryColumn(PATH, TEXT),
        ),
    ),
    QueryTable(
        CONTAINERS,
        "lists, trees, hash tables and the like, as `owners` has them, the %s that retain most (bytes): owner holds it, by the pointer at "
        "field; id: the column container of blocks and held_blocks" % "{:,}".format(MOST_CONTAINERS),
        table_columns_of(ContainerRow),
    ),
    QueryTable(
        "arenas",
        "as `arenas` shows them",
        table_columns_of(OfAllocator("arenas")),
        ("arenas",),
        "arenas",
    ),
    QueryTable(
        "classes",
        "blocks in use by type, as `census` has it",
        table_columns_of(CensusRow),
        ("census",),
        "rows",
    ),
    QueryTable(
        "held",
        "which owner holds which class, as `census --by owner` has it",
        table_columns_of(CensusRow),
        ("census", "--by", "owner"),
        "rows",
    ),
    QueryTable(
        "threads",
        "each thread's cache, as `tcache` has it",
        table_columns_of(ThreadCache),
        ("tcache",),
        "threads",
    ),
    QueryTable(
        "mappings",
        "memory of the process, or of its core, by mapping and owner, as `report` splits it",
        (
            *_make_columns(ADDRESS, "start end"),
            *_make_columns(NUMBER, "bytes resident_bytes swapped_bytes"),
            *_make_columns(TEXT, "permissions name kind owner allocator"),
        ),
    ),
    QueryTable(
        "leaks",
        "leaked blocks without a reference from another one, by size and signature, with the blocks reachable from them, as `leaks` has it",
        table_columns_of(LeakGroup),
        ("leaks",),
        "groups",
    ),
    QueryTable(
        "objects",
        "objects of Java in its own heap by class, as `census` has them; garbage: unreachable ones",
        table_columns_of(ManagedClass),
        ("census",),
        "objects",
    ),
    QueryTable(
        "fields",
        "malloc memory that objects of Java hold, by class and field, as `owners` has it",
        table_columns_of(HeldByField),
        ("owners",),
        "fields",
    ),
    QueryTable(
        "owners",
        "who keeps memory alive, down to level 3, the 40 largest of each; parent is the row above, NULL on level 1",
        (*_make_columns(NUMBER, "row level parent"), *table_columns_of(OwnedMemory)),
        ("owners", "--depth", "3", "--limit", "40"),
        "owners",
    ),
    QueryTable(
        SITES,
        "functions that may have allocated the blocks of a row of classes (signature, module), by the program's code: candidates, no "
        "stack, as `census --sites` has them; sizes_bytes: sizes of their calls, is_open: other sizes, too; rows without any are not "
        "here; code is read only if SQL names the table",
        (
            *_make_columns(TEXT, "signature module function site_module"),
            QueryColumn("address", ADDRESS),
            *_make_columns(NUMBER, "offset calls"),
            QueryColumn("sizes_bytes", NUMBERS),
            QueryColumn("is_open", FLAG),
            QueryColumn("why", TEXT),
        ),
        ("census", "--sites"),
        "rows",
    ),
)
BY_NAME = {table.name: table for table in TABLES}
BY_ONE_LOOK = ("classes", CONTAINERS, "fields", "held", "leaks", "objects", "owners", SITES)
"""The first of them that reads every block does it for all: those read while the process is stopped come before."""
