"""A look at each of many cores, by a program of its own, on any machine: a core that is bad, or huge, ends nothing else. Its documents of
`report --json`, as rows: they may be anybody's, and a field of another kind than it should have is unknown.

The file views.sql next to the documents of a fleet: views for DuckDB, which reads JSON itself.
"""

import contextlib
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from typing import IO, Annotated, Any, Callable, Dict, Generator, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.command import TextStyle
from gdbheapx.common import child_python, files
from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import BYTES, IF_ANY, IF_KNOWN, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.common.errors import HeapxError, error_of_document
from gdbheapx.common.findings import EVIDENCE_MISSING
from gdbheapx.common.global_options import GLOBALS, GlobalOptions, split_words, unpack_words
from gdbheapx.common.model import HeapSum
from gdbheapx.common.problems import CANNOT_WRITE, FILE_NOT_FOUND, FILE_UNREADABLE, SHELL_ONLY, UNSAFE_PATH
from gdbheapx.report import text
from gdbheapx.snapshot import container

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


VIEWS = "views.sql"
SQL = """-- Views over the documents in this folder. Use: cd into it, then: duckdb -init views.sql
-- SELECT * FROM builds;  SELECT * FROM hosts;  SELECT * FROM growth;
CREATE OR REPLACE VIEW documents AS
  SELECT filename AS document, content::JSON AS doc
  FROM read_text('*.json') WHERE json_valid(content);
CREATE OR REPLACE VIEW cores AS
  SELECT document, doc->>'$.fleet.core' AS core, regexp_extract(doc->>'$.fleet.core', '^(.*)/[^/]*$', 1) AS folder,
    make_timestamp(TRY_CAST(doc->>'$.fleet.modified_ns' AS BIGINT) // 1000) AS modified,
    doc->>'$.target.executable' AS executable, doc->>'$.allocators[0].name' AS allocator,
    doc->>'$.allocators[0].version' AS version, doc->>'$.allocators[0].build_id' AS build_id,
    doc->>'$.data.verdict.kind' AS verdict, TRY_CAST(doc->>'$.data.memory.total_bytes' AS BIGINT) AS memory_bytes,
    TRY_CAST(doc->>'$.partial' AS BOOLEAN) AS partial, doc->>'$.fleet.error' AS error
  FROM documents WHERE doc->>'$.schema' = 'gdbheapx/1';
CREATE OR REPLACE VIEW classes AS
  SELECT document, TRY_CAST(one->>'$.size_bytes' AS BIGINT) AS size_bytes,
    TRY_CAST(one->>'$.used_chunks' AS BIGINT) AS blocks, TRY_CAST(one->>'$.used_bytes' AS BIGINT) AS bytes
  FROM (SELECT document, unnest(CAST(doc->'$.data.sizes' AS JSON[])) AS one FROM documents
    WHERE json_type(doc, '$.data.sizes') = 'ARRAY');
-- Which build
CREATE OR REPLACE VIEW builds AS
  SELECT executable, allocator, version, build_id, verdict, count(*) AS cores, count(error) AS failed, sum(memory_bytes) AS memory_bytes
  FROM cores GROUP BY ALL ORDER BY memory_bytes DESC NULLS LAST;
-- Which host: cores are usually collected in a folder for each
CREATE OR REPLACE VIEW hosts AS
  SELECT folder, count(*) AS cores, count(error) AS failed, sum(memory_bytes) AS memory_bytes, max(memory_bytes) AS largest_bytes
  FROM cores GROUP BY ALL ORDER BY memory_bytes DESC NULLS LAST;
-- Which class grew, from the oldest core of a program to its newest; a core that was cut shows no growth
CREATE OR REPLACE VIEW growth AS
  SELECT executable, size_bytes, arg_max(bytes, modified) - arg_min(bytes, modified) AS growth_bytes,
    arg_min(bytes, modified) AS old_bytes, arg_max(bytes, modified) AS new_bytes, count(*) AS cores
  FROM cores JOIN classes USING (document) WHERE partial IS NOT TRUE GROUP BY ALL ORDER BY growth_bytes DESC NULLS LAST;
"""
WHOLE, PARTIAL = 0, 4
NAME = re.compile(r"[^A-Za-z0-9._-]")
MOST_NAME = 100
POLL_SECONDS = 0.02
GRACE_SECONDS = 30.0
"""What a look may take beyond twice its limit before it is ended: opening a core is not part of the limit."""
MOST_ERROR = 8192
State = Optional[Tuple[int, Optional[int]]]
"""Size and time of a core; None where it cannot be seen. Of what lies at a URL the time may be unknown."""


class Child(NamedTuple):
    """A look that runs."""

    process: "subprocess.Popen[bytes]"
    out: IO[bytes]
    err: IO[bytes]
    began: float


class ChildExit(NamedTuple):
    """Output of a child that is over."""

    code: int
    content: bytes
    said: str
    """The last line on standard error."""


class Core(NamedTuple):
    """Core and its document."""

    path: str
    document: str
    error: Optional[str] = None
    """Why nothing could be listed by this pattern."""


Looks = Generator[Tuple[Core, State, ChildExit], None, None]
"""Looks that are over, with the core's state before them."""


def read_core_state(path: str) -> State:
    """The core as it is now."""
    if container.is_url(path):
        return container.read_url_state(path)
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


def report_words(max_seconds: Optional[float]) -> List[str]:
    """The command of a look."""
    return ["report", "--json", "--no-deep", *(["--max-seconds", "%g" % max_seconds] if max_seconds is not None else [])]


def compute_time_limit(max_seconds: Optional[float]) -> Optional[float]:
    """Return the seconds after which a child is killed; None without --max-seconds."""
    return None if max_seconds is None else 2 * max_seconds + GRACE_SECONDS


def start_child(words: Sequence[str], core: str, asks: Sequence[str]) -> Child:
    """Start the look; `words` are options of the program, `asks` the command. The program itself distinguishes a snapshot from a core."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    process = child_python.start_gdbheapx([*words, core, *asks], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    return Child(process, out, err, time.monotonic())


def run_child(
    words: Sequence[str], core: str, asks: Sequence[str], seconds: Optional[float], is_over: Callable[[Child], bool]
) -> Optional[ChildExit]:
    """Return the output of a look, or None if it was ended because `is_over`."""
    look = start_child(words, core, asks)
    try:
        while not has_child_ended(look, seconds):
            if is_over(look):
                return None
            time.sleep(POLL_SECONDS)
        return collect_child(look)
    finally:
        end_child(look)


def has_child_ended(child: Child, seconds: Optional[float]) -> bool:
    """Return True if the child is over; a child beyond its limit is killed."""
    if child.process.poll() is None and seconds is not None and time.monotonic() - child.began > seconds:
        _kill_group(child)
    return child.process.poll() is not None


def collect_child(child: Child) -> ChildExit:
    """Return the output of a child that is over, and close its files."""
    child.out.seek(0)
    content = child.out.read(MOST_BYTES + 1)
    child.err.seek(max(0, os.fstat(child.err.fileno()).st_size - MOST_ERROR))
    said = child.err.read().decode("utf-8", "replace").strip().split("\n")[-1].replace("gdbheapx: ", "", 1)
    end_child(child)
    return ChildExit(child.process.returncode, content, said)


def end_child(child: Child) -> None:
    """End it, whether it is over or not. Harmless when called twice."""
    if not child.out.closed:
        _kill_group(child)
        child.out.close()
        child.err.close()


def _kill_group(child: Child) -> None:
    """Kill the child and the gdb that it may have started."""
    try:
        os.killpg(child.process.pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended
    child.process.wait()


def replace_private_file(path: str, content: str) -> None:
    """Put a file in the place of another in one step, readable only by its owner."""
    descriptor, made = tempfile.mkstemp(prefix=".gdbheapx-", dir=os.path.dirname(path) or ".")  # mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def run_fleet(
    cores: Sequence[str],
    directory: str,
    workers: Optional[int],
    distribute: Optional[Callable[..., Looks]],
    share: Optional[Tuple[int, int]],
    max_seconds: Optional[float],
    budget: Budget,
) -> Tuple[List[Document], int]:
    """Make what documents are lacking, then read all of them: the rows, and how many cores were not read since the run was interrupted.
    `distribute`: takes the cores, the options, --max-seconds and the budget, and has others look; `share`: the number of a part of the
    cores, from 0 on, and how many parts there are."""
    if GLOBALS not in os.environ:
        raise HeapxError(
            "fleet starts programs of its own and is not available inside gdb",
            "run it in a shell: gdbheapx fleet CORE... -o DIR",
            code=SHELL_ONLY,
        )
    asked = split_words(unpack_words(os.environ[GLOBALS]))[0]
    prepare_folder(directory)
    by_document = {core_.document: core_ for given in cores for core_ in find_cores(given, directory)}
    mine = list(by_document.values())
    if share is not None:  # the part of a core depends on its path alone, not on the other cores
        mine = [one for one in mine if int(hashlib.sha256(os.fsencode(one.path)).hexdigest()[:12], 16) % share[1] == share[0]]
    replace_private_file(os.path.join(directory, VIEWS), SQL)
    for core_ in mine:
        if core_.error is not None:
            _write_document(core_, None, ChildExit(1, b"", core_.error))
    queue = [core_ for core_ in mine if core_.error is None and not is_whole(core_)]
    kept, made = sum(core_.error is None for core_ in mine) - len(queue), 0
    if distribute is None:
        looks = _look_locally(queue, asked, workers, max_seconds, budget)
    else:
        looks = distribute(queue, asked, max_seconds, budget)
    budget.progress.stage = "%d of %d cores" % (kept, len(mine))
    budget.progress.measure(lambda: made, len(queue))
    with contextlib.closing(looks):
        for core_, state, ended in looks:
            _write_document(core_, state, ended)
            made += 1
            budget.progress.name("%d of %d cores" % (kept + made, len(mine)))
            budget.progress.tick()
    there = [core_ for core_ in mine if os.path.exists(core_.document)]
    rows = [read_document_row(core_.document) for core_ in there if not budget.interrupted or is_whole(core_)]
    return rows, len(queue) - made


def _look_locally(
    queue: Sequence[Core], asked: GlobalOptions, workers: Optional[int], max_seconds: Optional[float], budget: Budget
) -> Looks:
    """Looks by processes of this machine, as they end."""
    words, asks, limit = asked.words(), report_words(max_seconds), compute_time_limit(max_seconds)
    left = list(queue)
    running: List[Tuple[Core, State, Child]] = []
    at_once = max(1, workers or len(os.sched_getaffinity(0)))
    try:
        while (left or running) and not budget.interrupted:
            while left and len(running) < at_once:
                core_ = left.pop(0)
                running.append((core_, read_core_state(core_.path), start_child(words, core_.path, asks)))
            time.sleep(POLL_SECONDS)
            for work in [each for each in running if has_child_ended(each[2], limit)]:
                running.remove(work)
                core_, state, child = work
                yield core_, state, collect_child(child)
            budget.progress.tick()
    finally:
        for _, _, child in running:
            end_child(child)


def find_cores(given: str, directory: str) -> Iterator[Core]:
    """Yield the cores that a word of the command line names; if a pattern of a URL finds nothing, one core with the reason."""
    try:
        for path in container.list_urls(given) if container.is_url(given) else (given,):
            yield make_core(path, directory)
    except HeapxError as error:
        yield make_core(given, directory)._replace(error=error.line())


def make_core(path: str, directory: str) -> Core:
    """The core, and the path of its document: by its name, unique by its real path or URL."""
    whole, name = (path, path.partition("::")[0]) if container.is_url(path) else (os.path.realpath(path),) * 2
    mark = hashlib.sha256(os.fsencode(container.hide_secrets(whole))).hexdigest()[:12]
    return Core(whole, os.path.join(directory, "%s-%s.json" % (NAME.sub("_", os.path.basename(name)[:MOST_NAME]) or "core", mark)))


def prepare_folder(directory: str) -> None:
    """The folder for the documents, readable only by its owner where it is made here. One in which others may put or replace files is not
    taken: their documents would be believed."""
    try:
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:  # also by another share in this moment
            if not os.path.isdir(directory):
                raise
        check_owner(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            raise HeapxError("cannot write to %s" % directory, "choose another folder with -o DIR", code=CANNOT_WRITE)
    except OSError as error:
        raise HeapxError("cannot make the folder %s: %s" % (directory, error.strerror), "choose another with -o DIR", code=CANNOT_WRITE)


def check_owner(directory: str) -> None:
    """HeapxError where another user owns the folder, or the link that leads to it, or may change what is in it. Root and the user's own
    groups may."""
    mine, groups = (0, os.geteuid()), {os.getegid(), *os.getgroups()}
    link, status = os.lstat(directory), os.stat(directory)
    hint = "name a folder that does not exist yet: it is made with mode 0700"
    if link.st_uid not in mine or status.st_uid not in mine:
        raise HeapxError("%s belongs to another user, who could change the documents" % directory, hint, code=UNSAFE_PATH)
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid not in groups):
        what = "%s has mode %o: other users could put documents there" % (directory, stat.S_IMODE(status.st_mode))
        raise HeapxError(what, hint, code=UNSAFE_PATH)


def is_whole(core_: Core) -> bool:
    """An earlier run has made its document, and the core is as it was then. One that failed is looked at again."""
    try:
        source = load_document(core_.document).get(SOURCE)
    except BadDocument:
        return False
    if not isinstance(source, dict) or source.get("exit_code") != WHOLE:
        return False
    state = read_core_state(core_.path)
    return state is not None and state[1] is not None and (source.get("size_bytes"), source.get("modified_ns")) == state


def _write_document(core_: Core, state: State, ended: ChildExit) -> None:
    """Its document, whatever became of it."""
    try:
        written: Any = json.loads(ended.content)
    except (ValueError, RecursionError):
        written = None
    code, error = ended.code, None
    document: Dict[str, Any] = {"schema": SCHEMA, "command": "report", "data": None, "partial": False, "problems": []}
    if code in (WHOLE, PARTIAL) and isinstance(written, dict) and isinstance(written.get("data"), dict):
        document = written
    else:
        code = 1 if code in (WHOLE, PARTIAL) else code
        error = ended.said or ("a signal ended it: %d" % -code if code < 0 else "it ended with %d" % code)
        why = error_of_document(written)
        document.update({"error": why.document()} if why is not None else {})
    size, modified = state if state is not None else (None, None)
    source = {"core": container.hide_secrets(core_.path), "size_bytes": size, "modified_ns": modified, "exit_code": code, "error": error}
    replace_private_file(core_.document, json.dumps({**document, SOURCE: source}) + "\n")
