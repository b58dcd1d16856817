"""The tables that SQL may name: their columns with DuckDB's types, as the records of the commands declare them (an address is a UBIGINT,
and nothing else is); and their rows: the commands that have them are run on one reading, and blocks go to a file as rows of CSV."""

import os
import typing
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx import allocators, command
from gdbheapx.addons.views.query import csv_rows
from gdbheapx.allocators.records import OfAllocator
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.memory_verdict import tell_coverage
from gdbheapx.analysis.reachability.dominance import MOST_CONTAINERS, ContainerRow
from gdbheapx.analysis.reachability.heap_graph import HeldByField, ManagedClass
from gdbheapx.analysis.reachability.leaks import LeakGroup
from gdbheapx.analysis.reachability.owners import OwnedMemory
from gdbheapx.app import worker
from gdbheapx.common import columns
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import TargetAddress, ThreadCache
from gdbheapx.common.problems import CANNOT_WRITE, NO_ANSWER, NOT_IN_SNAPSHOT, OUT_OF_MEMORY
from gdbheapx.snapshot.record import ELSEWHERE, RecordingSession

ADDRESS, NUMBER, TEXT, SHARE, FLAG, NUMBERS = "UBIGINT", "BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN", "BIGINT[]"
"""Types of columns."""
VARIABLE = "GDBHEAPX_TABLES"
"""Of the environment: what `query` and a parquet file need of one look, and the descriptors for blocks."""
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
    for choice in typing.get_args(kind) or (kind,):
        for name, declared in typing.get_type_hints(choice).items():
            type_ = typing.get_args(declared)[0] if typing.get_origin(declared) is Union else declared
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
    QueryTable("arenas", "as `arenas` shows them", table_columns_of(OfAllocator("arenas")), ("arenas",), "arenas"),
    QueryTable("classes", "blocks in use by type, as `census` has it", table_columns_of(CensusRow), ("census",), "rows"),
    QueryTable(
        "held",
        "which owner holds which class, as `census --by owner` has it",
        table_columns_of(CensusRow),
        ("census", "--by", "owner"),
        "rows",
    ),
    QueryTable("threads", "each thread's cache, as `tcache` has it", table_columns_of(ThreadCache), ("tcache",), "threads"),
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


class LookRequest(NamedTuple):
    """Request for the tables that the child has to read, and the descriptors of the files for their blocks."""

    tables: Sequence[str]
    rows: int
    """For the rows of blocks."""
    signed: Optional[int]
    """For the rows of blocks in use with their signature; None: not asked for."""
    held: Optional[int] = None
    """For the rows of blocks with their owners; None: not asked for."""
    with_paths: bool = False
    """They have paths, too."""

    def close(self) -> None:
        """Close the files."""
        for descriptor in (self.rows, self.signed, self.held):
            if descriptor is not None:
                os.close(descriptor)


def open_request(asked: Asked) -> LookRequest:
    """Return the request for what SQL names, with files that have no name."""
    signed, held = (worker.open_temporary() if is_asked else None for is_asked in (asked.with_signatures, asked.with_owners))
    return LookRequest(asked.tables, worker.open_temporary(), signed, held, asked.with_paths)


def encode_request(asked: LookRequest) -> str:
    """Return the request as text for the environment."""
    signed, held = ("" if descriptor is None else str(descriptor) for descriptor in (asked.signed, asked.held))
    return "%s;%d;%s;%s;%d" % (",".join(asked.tables), asked.rows, signed, held, asked.with_paths)


def read_request() -> Optional[LookRequest]:
    """Return the request that this process was started for; None if it was started for something else."""
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    tables, rows, *others, with_paths = text.split(";")
    signed, held = (int(descriptor) if descriptor else None for descriptor in others)
    return LookRequest([name for name in tables.split(",") if name in BY_NAME], int(rows), signed, held, with_paths == "1")


Rows = List[List[Any]]


def find_table_rows(session: Session, asked: LookRequest) -> Dict[str, Rows]:
    """Rows by table."""
    is_snapshot = not session.target.has_memory
    if not is_snapshot:
        session.store = RecordingSession()
    if BLOCKS in asked.tables or HELD_BLOCKS in asked.tables:  # the commands behind other tables ask for themselves
        tell_coverage(session)
    makers: Dict[str, Callable[[], Rows]] = {}
    looks: List[Tuple[Optional[str], Callable[[], Any]]] = []
    for table in TABLES:  # those that are read while the process stands still
        if table.name not in asked.tables or table.name in (HELD_BLOCKS, *BY_ONE_LOOK):
            continue
        if table.words:
            makers[table.name] = _make_command_reader(session, table)
        elif is_snapshot and table.name == BLOCKS:
            _kept_blocks(session, asked)
        elif is_snapshot:
            raise HeapxError("a snapshot does not have the table %s" % table.name, ELSEWHERE, code=NOT_IN_SNAPSHOT)
        elif table.name == BLOCKS:
            later = _write_blocks(session, asked)
            looks += [(None, later)] if asked.signed is not None else []
        else:
            rows = list(_each_mapping_row(session))
            makers[table.name] = lambda rows=rows: rows  # type: ignore[misc]
    if asked.held is not None:
        looks.append((None, lambda: _held_blocks(session, asked)))
    for table in (BY_NAME[name] for name in BY_ONE_LOOK if name in asked.tables):
        read = _make_container_reader if table.name == CONTAINERS else _make_command_reader
        looks.append((table.name, lambda table=table, read=read: read(session, table)))  # type: ignore[misc]
    for place, (name, look) in enumerate(looks):
        if place and session.target.kind == "live" and session.shared("reach") is None:
            hint = "ask for classes, leaks, owners and signatures one at a time, or take a core"
            raise HeapxError("there is no room to look at every block at once, and the process runs on by now", hint, code=OUT_OF_MEMORY)
        made = look()
        if name is not None:
            makers[name] = made
    return {name: rows() for name, rows in makers.items()}


def _make_command_reader(session: Session, table: QueryTable) -> Callable[[], Rows]:
    """The rows of a command's answer."""
    command.load_commands(table.words[0])
    declared = command.find_command(table.words[0])
    assert declared is not None, table
    hides = session.without_names and any("--no-names" in given.flags for given in declared.arguments)  # the command says it anew
    options = command.parse_command([*table.words, *["--no-names"] * hides], "gdbheapx").options
    session.target.prepare(declared, session, options)
    answer = declared.run(session, options)

    def read_answer_rows() -> Rows:
        data = columns.field_value(answer.data(), table.member)
        return [make_table_cells(table, row) for row in ROWS.get(table.name, iter)(data)]

    return read_answer_rows


def make_table_cells(table: QueryTable, row: Any) -> List[Any]:
    """A record, or a mapping, as the row of its table; what it does not have is None."""
    row_cells = []
    for column in table.columns:
        value = row.get(column.name) if isinstance(row, Mapping) else getattr(row, column.name, None)
        if isinstance(value, (list, tuple)) and column.type != NUMBERS:  # samples: the first
            value = value[0] if value else None
        if column.type == TEXT and value is not None:
            value = csv_rows.clean_name(str(value))
        row_cells.append(int(value) if isinstance(value, TargetAddress) else value)
    return row_cells


def _need_blocks(session: Session) -> None:
    from gdbheapx.analysis.census import find

    if not session.target.has_memory and session.shared(find.TOLD) is None:
        raise HeapxError("this snapshot does not have the single blocks", ELSEWHERE, code=NOT_IN_SNAPSHOT)


def _make_container_reader(session: Session, table: QueryTable) -> Callable[[], Rows]:
    from gdbheapx.analysis.census import owned

    _need_blocks(session)
    found = owned.find_kept_containers(session)
    return lambda: [make_table_cells(table, row) for row in found]


def _each_owner_level(rows: Sequence[OwnedMemory]) -> Iterator[Dict[str, Any]]:
    """Owners and what they own, one after the other, each with its level and the number of the row above."""
    left: List[Tuple[int, Optional[int], OwnedMemory]] = [(1, None, row) for row in reversed(rows)]
    number = 0
    while left:
        level, parent, row = left.pop()
        number += 1
        yield {**row._asdict(), "row": number, "level": level, "parent": parent}
        left += [(level + 1, number, child) for child in reversed(row.children)]


def _each_candidate(rows: Sequence[Mapping[str, Any]]) -> Iterator[Dict[str, Any]]:
    """Yield the candidates of each row of the census."""
    for row in rows:
        for site in row["sites"]:
            whose = {"signature": row["signature"], "module": row["module"], "site_module": site.module}
            yield {**site._asdict(), **whose, "sizes_bytes": site.sizes, "why": "; ".join(site.why)}


ROWS: Dict[str, Callable[[Any], Iterator[Any]]] = {"owners": _each_owner_level, SITES: _each_candidate}
"""What makes rows of a command's data, where its records are not the rows."""


def _each_mapping_row(session: Session) -> Iterator[List[Any]]:
    """Yield each mapping, once for each of its owners."""
    from gdbheapx.analysis.split import split_memory

    target, heaps = session.target, session.heaps.all()
    memory = split_memory(target, session.kernel, {heap.info.id: heap.claims() for heap in heaps}, session.budget)
    if memory is None or memory.attribution is None:
        raise HeapxError("this target does not tell how much memory its mappings take", ELSEWHERE, code=NO_ANSWER)
    table = BY_NAME["mappings"]
    for place, use in enumerate(memory.attribution.mappings):
        mapping = use.mapping
        rights = "".join(
            letter if is_set else "-" for letter, is_set in zip("rwx", (mapping.readable, mapping.writable, mapping.executable))
        )
        row: Dict[str, Any] = {"start": mapping.start, "end": mapping.end, "bytes": mapping.size_bytes, "name": mapping.name}
        row["permissions"] = rights + ("s" if mapping.shared else "p")
        pieces = memory.pieces.get(place, ())
        for piece in pieces:
            owner = {"kind": piece.owner.kind, "owner": piece.owner.name, "allocator": piece.owner.allocator}
            yield make_table_cells(table, {**row, **owner, "resident_bytes": piece.taken_bytes, "swapped_bytes": piece.swapped_bytes})
        if not pieces:
            yield make_table_cells(table, {**row, "resident_bytes": use.resident_bytes, "swapped_bytes": use.swapped_bytes})


def _write_blocks(session: Session, asked: LookRequest) -> Callable[[], None]:
    """Writes the rows of blocks; what is given back writes those with signatures, once all blocks were looked at."""
    from gdbheapx.analysis.census import find as census
    from gdbheapx.analysis.reachability import heap_graph

    heaps = session.heaps.all()
    if asked.signed is not None or asked.held is not None:
        heap_graph.check_owners_fit(session)
    used: List[csv_rows.UsedBlocks] = [(heap, []) for heap in heaps]

    def each_piece() -> Iterator[bytes]:
        for heap, batches in used:
            writer = csv_rows.CsvRows(session.kernel.library, csv_rows.make_csv_words(heap, for_engines=True))
            for blocks in heap.blocks():
                yield writer.rows(blocks)
                chosen = csv_rows.select_in_use(blocks) if asked.signed is not None else None
                if chosen is not None and len(chosen.addresses):
                    batches.append(chosen)

    write_rows(asked.rows, each_piece())

    def write_signatures() -> None:
        assert asked.signed is not None
        signed = csv_rows.read_block_signatures(census.label_blocks(session, lambda graph: None, contents=True))
        pieces = csv_rows.format_signed_csv(session.kernel, used, signed, for_engines=True)
        next(pieces)  # the heading
        write_rows(asked.signed, (piece.encode("utf-8") for piece in pieces))

    return write_signatures


def _held_blocks(session: Session, asked: LookRequest) -> None:
    """Writes the rows of blocks with their owners; their pieces are those of `owners`, unless only blocks of malloc's are asked for."""
    from gdbheapx.analysis.census import owned
    from gdbheapx.analysis.reachability import heap_graph

    assert asked.held is not None
    _need_blocks(session)
    found = owned.find_owned_blocks(session, HELD_BLOCKS in asked.tables)
    session.budget.progress.stage = "naming blocks"
    pieces = csv_rows.format_held_rows(found, MOST_PATHS if asked.with_paths else 0, lambda: heap_graph.check_time(session))
    write_rows(asked.held, (piece.encode("utf-8") for piece in pieces))


def _kept_blocks(session: Session, asked: LookRequest) -> None:
    """Write the rows of the used blocks, which a snapshot has."""
    from gdbheapx.analysis.census import find as census

    _need_blocks(session)
    told = session.shared(census.TOLD)
    for descriptor, with_names in ((asked.rows, False), (asked.signed, True)):
        if descriptor is not None:
            write_rows(descriptor, (piece.encode("utf-8") for piece in csv_rows.format_kept_rows(told, True, with_names)))


def write_rows(descriptor: int, pieces: Iterable[bytes]) -> None:
    """Replace what an earlier reading has left in the file. HeapxError where there is no room."""
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        for piece in pieces:
            left = memoryview(piece)
            while left:
                left = left[os.write(descriptor, left) :]
    except OSError as error:
        raise HeapxError(
            "cannot write the rows of blocks to a temporary file: %s" % error.strerror, "set TMPDIR to another folder", code=CANNOT_WRITE
        )
