"""Data that SQL needs of a target: the commands that have it are run on one reading, and blocks go to a file as rows of CSV."""

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import columns, command
from gdbheapx.addons.views.query.tables import (
    BLOCKS,
    BY_NAME,
    BY_ONE_LOOK,
    CONTAINERS,
    HELD_BLOCKS,
    MOST_PATHS,
    NUMBERS,
    SITES,
    TABLES,
    TEXT,
    VARIABLE,
    QueryTable,
)
from gdbheapx.analysis.memory_verdict import tell_coverage
from gdbheapx.errors import HeapxError
from gdbheapx.model import TargetAddress
from gdbheapx.problems import CANNOT_WRITE, NO_ANSWER, NOT_IN_SNAPSHOT, OUT_OF_MEMORY
from gdbheapx.report import encodings
from gdbheapx.session import Session
from gdbheapx.snapshot.record import ELSEWHERE, RecordingSession

if TYPE_CHECKING:
    from gdbheapx.analysis.reachability.owners import OwnedMemory


class LookRequest(NamedTuple):
    """Request for the tables that the child has to read."""

    tables: Sequence[str]
    rows: int
    """The descriptor for the rows of blocks."""
    signed: Optional[int]
    """That for the rows of blocks in use with their signature; None: not asked for."""
    held: Optional[int] = None
    """That for the rows of blocks with their owners; None: not asked for."""
    with_paths: bool = False
    """They have paths, too."""


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
    later: Optional[Callable[[], None]] = None
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
        else:
            rows = list(_each_mapping_row(session))
            makers[table.name] = lambda rows=rows: rows  # type: ignore[misc]
    looks: List[Tuple[Optional[str], Callable[[], Any]]] = []
    if later is not None and asked.signed is not None:
        looks.append((None, later))
    if asked.held is not None:
        looks.append((None, lambda: _held_blocks(session, asked)))
    for table in (BY_NAME[name] for name in BY_ONE_LOOK if name in asked.tables):
        told = _make_container_reader if table.name == CONTAINERS else _make_command_reader
        looks.append((table.name, lambda table=table, told=told: told(session, table)))  # type: ignore[misc]
    for place, (name, look) in enumerate(looks):
        if place and session.target.kind == "live" and session.shared("reach") is None:
            hint = "ask for classes, leaks, owners and signatures one at a time, or take a core"
            raise HeapxError("there is no room to look at every block at once, and the process runs on by now", hint, code=OUT_OF_MEMORY)
        made = look()
        if name is not None:
            makers[name] = made
    return {name: rows() for name, rows in makers.items() if rows is not None}


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
            value = encodings.clean_name(str(value))
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


def _each_owner_level(rows: "Sequence[OwnedMemory]") -> Iterator[Dict[str, Any]]:
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
    used: List[encodings.UsedBlocks] = [(heap, []) for heap in heaps]
    clear_file(session, asked.rows)
    for heap, batches in used:
        writer = session.kernel.csv(encodings.make_csv_words(heap, for_engines=True))
        for blocks in heap.blocks():
            write_rows(session, asked.rows, writer.rows(blocks))
            if asked.signed is not None:
                chosen = encodings.select_in_use(blocks)
                if len(chosen.addresses):
                    batches.append(chosen)

    def write_signatures() -> None:
        assert asked.signed is not None
        signed = encodings.read_block_signatures(census.label_blocks(session, lambda graph: None, contents=True))
        clear_file(session, asked.signed)
        pieces = encodings.format_signed_csv(session.kernel, used, signed, for_engines=True)
        next(pieces)  # the heading
        for piece in pieces:
            write_rows(session, asked.signed, piece.encode("utf-8"))

    return write_signatures


def _held_blocks(session: Session, asked: LookRequest) -> None:
    """Writes the rows of blocks with their owners; their pieces are those of `owners`, unless only blocks of malloc's are asked for."""
    from gdbheapx.analysis.census import owned
    from gdbheapx.analysis.reachability import heap_graph

    assert asked.held is not None
    _need_blocks(session)
    found = owned.find_owned_blocks(session, HELD_BLOCKS in asked.tables)
    clear_file(session, asked.held)
    session.budget.progress.stage = "naming blocks"
    for piece in encodings.format_held_rows(found, MOST_PATHS if asked.with_paths else 0, lambda: heap_graph.check_time(session)):
        write_rows(session, asked.held, piece.encode("utf-8"))


def _kept_blocks(session: Session, asked: LookRequest) -> None:
    """Write the rows of the used blocks, which a snapshot has."""
    from gdbheapx.analysis.census import find as census

    told = session.shared(census.TOLD)
    if told is None:
        raise HeapxError("this snapshot does not have the single blocks", ELSEWHERE, code=NOT_IN_SNAPSHOT)
    for descriptor, with_names in ((asked.rows, False), (asked.signed, True)):
        if descriptor is not None:
            clear_file(session, descriptor)
            for piece in encodings.format_kept_rows(told, True, with_names):
                write_rows(session, descriptor, piece.encode("utf-8"))


def clear_file(session: Session, descriptor: int) -> None:
    """Empty the file, so that nothing of an earlier reading stays."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)


def write_rows(session: Session, descriptor: int, rows: bytes) -> None:
    """Write them. HeapxError where there is no room."""
    left = memoryview(rows)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError as error:
        raise HeapxError(
            "cannot write the rows of blocks to a temporary file: %s" % error.strerror, "set TMPDIR to another folder", code=CANNOT_WRITE
        )
