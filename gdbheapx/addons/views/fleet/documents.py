"""Documents of `report --json`, as rows. They may be anybody's: a field of another kind than it should have is unknown.

`table` and `fleet` show them as a table, or as CSV.
"""

import json
import os
from typing import Annotated, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from gdbheapx import files
from gdbheapx.columns import BYTES, IF_ANY, IF_KNOWN, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.command import TextStyle
from gdbheapx.errors import HeapxError
from gdbheapx.findings import EVIDENCE_MISSING
from gdbheapx.model import HeapSum
from gdbheapx.problems import FILE_NOT_FOUND, FILE_UNREADABLE
from gdbheapx.report import text

SCHEMA = "gdbheapx/1"
MOST_BYTES = 64 << 20
"""A document has some ten kilobytes; a larger file is none."""
MOST_NUMBER = 1 << 64
MOST_TEXT = 300
SOURCE = "fleet"
"""The member that `fleet` adds to a document: which core, as it was, and how the look ended."""
NONE = "unknown"


class Document(NamedTuple):
    """Row of one document. A figure that the document does not have is None."""

    core: Annotated[str, Column("core", TEXT)]
    executable: Annotated[Optional[str], Column("executable", TEXT, goes=1)] = None
    version: Annotated[Optional[str], Column("version", TEXT, goes=6)] = None
    build_id: Annotated[Optional[str], Column("build-id", TEXT, None, IF_KNOWN, goes=7)] = None
    """Of the allocator's object."""
    verdict: Annotated[Optional[str], Column("verdict", TEXT)] = None
    used_bytes: Annotated[Optional[int], Column("in use", BYTES)] = None
    kept_bytes: Annotated[Optional[int], Column("free", BYTES)] = None
    memory_bytes: Annotated[Optional[int], Column("memory", BYTES, goes=3)] = None
    """RSS of a process, dumped bytes of a core."""
    largest: Annotated[Optional[str], Column("largest class", TEXT, None, IF_KNOWN, goes=4)] = None
    largest_bytes: Annotated[Optional[int], Column("of it", BYTES, None, IF_KNOWN, goes=5)] = None
    suspect: Annotated[Optional[str], Column("suspect", TEXT, None, IF_KNOWN, goes=2)] = None
    partial: Annotated[bool, Column("partial", TEXT, None, IF_ANY)] = False
    error: Annotated[Optional[str], Column("error", TEXT, None, IF_KNOWN)] = None
    """Why there is no answer, or why it is partial."""
    failed: bool = False
    """There is no answer."""
    document: str = ""
    error_code: Optional[str] = None
    """Of the error without an answer, where the document has one."""


class Group(NamedTuple):
    """Rows that have one value in common."""

    value: Annotated[str, Column("", TEXT)]
    documents: Annotated[int, Column("documents")]
    failed: Annotated[int, Column("failed", goes=1)]
    used_bytes: Annotated[int, Column("in use", BYTES)]
    """Of those that know it, as are the others."""
    kept_bytes: Annotated[int, Column("free", BYTES)]
    memory_bytes: Annotated[int, Column("memory", BYTES)]


class BadDocument(Exception):
    """Error for a file that is no document: its text is the reason, in one line."""


def load_document(path: str) -> Dict[str, Any]:
    """The document. Damaged says why there is none."""
    try:
        descriptor = files.open_regular(path)
        with open(descriptor, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadDocument(error.strerror or str(error))
    if len(content) > MOST_BYTES:
        raise BadDocument("it is too large for a document of report --json")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise BadDocument("it is not JSON, or it is cut")
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or document.get("command") != "report":
        raise BadDocument("it is not a document of report --json")
    return document


def list_document_paths(given: Sequence[str]) -> Iterator[str]:
    """The files, those of a folder in order of their names; each once."""
    seen = set()
    for file in given:
        documents = [file]
        if os.path.isdir(file):
            try:
                documents = [os.path.join(file, name) for name in sorted(os.listdir(file)) if name.endswith(".json")]
            except OSError as error:
                raise HeapxError(
                    "cannot read the folder %s: %s" % (file, error.strerror), "give documents of report --json", code=FILE_UNREADABLE
                )
            if not documents:
                raise HeapxError("%s has no documents" % file, "make some: gdbheapx fleet CORE... -o %s" % file, code=FILE_NOT_FOUND)
        for path in documents:
            if os.path.abspath(path) not in seen:
                seen.add(os.path.abspath(path))
                yield path


def read_document_row(path: str) -> Document:
    """Return one file as a row, whatever the file is."""
    try:
        return make_document_row(load_document(path), path)
    except BadDocument as error:
        return Document(core=path, error=str(error), failed=True, document=path)


def make_document_row(document: Mapping[str, Any], path: str) -> Document:
    """The row of a document."""
    data, target, source = (_dict_or_empty(document.get(name)) for name in ("data", "target", SOURCE))
    infos = [_dict_or_empty(allocator) for allocator in _list_or_empty(document.get("allocators"))]
    info = next((allocator for allocator in infos if allocator.get("owns_malloc") is True), infos[0] if infos else {})
    heaps = _sum_heaps(data)
    name, version = _text_or_none(info.get("name")), _text_or_none(info.get("version"))
    inside = _dict_or_empty(data.get("inside"))
    # a class tells more than a size
    classes, sizes = ([_dict_or_empty(row) for row in _list_or_empty(rows)] for rows in (inside.get("classes"), data.get("sizes")))
    largest = next((class_ for class_ in classes if _text_or_none(class_.get("signature"))), {})
    size = sizes[0] if sizes else {}
    label = _text_or_none(largest.get("signature")) or (
        "%d bytes" % size["size_bytes"] if _number_or_none(size.get("size_bytes")) is not None else None
    )
    verdict = _dict_or_empty(data.get("verdict"))
    is_lacking = verdict.get("code") == EVIDENCE_MISSING  # what was read is no figure of the whole
    partial, failed = document.get("partial") is True, _text_or_none(source.get("error")) or (None if data else "it has no data")
    problems = [_text_or_none(_dict_or_empty(problem).get("what")) for problem in _list_or_empty(document.get("problems"))]
    return Document(
        core=_text_or_none(source.get("core")) or _text_or_none(target.get("core")) or path,
        executable=_text_or_none(target.get("executable")),
        version=" ".join(part for part in (name, version) if part) or None,
        build_id=_text_or_none(info.get("build_id")),
        verdict=_text_or_none(verdict.get("kind")),
        used_bytes=sum(heap.used_bytes for heap in heaps) if heaps and not is_lacking else None,
        kept_bytes=sum(heap.kept_bytes for heap in heaps) if heaps and not is_lacking else None,
        memory_bytes=_number_or_none(_dict_or_empty(data.get("memory")).get("total_bytes")),
        largest=label,
        largest_bytes=_number_or_none(largest.get("bytes")) if largest else _number_or_none(size.get("used_bytes")),
        suspect=_text_or_none(_dict_or_empty(inside.get("suspect")).get("owner")),
        partial=partial,
        error=failed or (next((problem for problem in problems if problem), "it does not say why") if partial else None),
        failed=failed is not None,
        document=path,
        error_code=_text_or_none(_dict_or_empty(document.get("error")).get("code")),
    )


def order_documents(rows: Sequence[Document], field: Optional[str]) -> List[Document]:
    """Return the rows ordered by a column: the largest number first, texts by the alphabet, the unknown last."""
    if field is None:
        return list(rows)
    known = [row for row in rows if getattr(row, field) is not None]
    return sorted(known, key=lambda row: getattr(row, field), reverse=field.endswith("_bytes")) + [
        row for row in rows if getattr(row, field) is None
    ]


def group_documents(rows: Sequence[Document], field: str) -> List[Group]:
    """Return one row for each value, the one that uses most first."""
    by_value: Dict[str, List[Document]] = {}
    for row in rows:
        by_value.setdefault(getattr(row, field) or NONE, []).append(row)
    groups = [
        Group(
            value=value,
            documents=len(some),
            failed=sum(row.failed for row in some),
            used_bytes=sum(row.used_bytes or 0 for row in some),
            kept_bytes=sum(row.kept_bytes or 0 for row in some),
            memory_bytes=sum(row.memory_bytes or 0 for row in some),
        )
        for value, some in by_value.items()
    ]
    return sorted(groups, key=lambda group: (-group.used_bytes, group.value))


def _dict_or_empty(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_or_empty(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text_or_none(value: Any) -> Optional[str]:
    return value[:MOST_TEXT] if isinstance(value, str) and value else None


def _number_or_none(value: Any) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_NUMBER else None


def _sum_heaps(data: Mapping[str, Any]) -> List[HeapSum]:
    """Return the sums of the heaps that have figures; a document of another release may have none."""
    rows = [_dict_or_empty(heap) for heap in _list_or_empty(data.get("heaps"))]
    sums = [(_number_or_none(row.get("held_bytes")), _number_or_none(row.get("used_bytes"))) for row in rows]
    return [HeapSum("", held, used) for held, used in sums if held is not None and used is not None]


def table_data(rows: Sequence[Document], groups: Optional[Sequence[Group]]) -> Dict[str, Any]:
    """The `data` member."""
    return {"rows": list(rows), "groups": None if groups is None else list(groups)}


def document_table_lines(style: TextStyle, rows: Union[Sequence[Document], Sequence[Group]]) -> Iterator[str]:
    """A table, or nothing."""
    record: Any = type(rows[0]) if rows else Document
    columns = columns_of(record)
    known = {column.field for column in columns if any(getattr(row, column.field) is not None for row in rows)}
    absent = {column.field: "" for column in columns if column.unit == TEXT and column.field in known}
    shown: List[Any] = [
        {name: absent.get(name) if value is None else _format_cell(value) for name, value in row._asdict().items()} for row in rows
    ]
    yield from text.format_page(style, [ColumnsTable(columns, shown)])


def document_csv_lines(rows: Union[Sequence[Document], Sequence[Group]]) -> Iterator[str]:
    """CSV with a heading."""
    yield text.format_csv_line((type(rows[0]) if rows else Document)._fields)
    for row in rows:
        yield text.format_csv_line(text.safe_cell(value) if isinstance(value, str) else value for value in row)


def _format_cell(value: Any) -> Any:
    return "yes" if value is True else "" if value is False else value
