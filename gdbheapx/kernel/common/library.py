"""The native library: how it is loaded and refused, its functions' types, a source in its form, and what knows no allocator."""

import base64
import ctypes
import os
import zlib
from array import array
from contextlib import contextmanager
from itertools import islice
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.common.ranges import subtract_ranges
from gdbheapx.inferior.base import BulkSource, BytesSource, FileSource, PageTable, ProcessSource
from gdbheapx.kernel import build

ADDRESS_MASK = 0xFFFFFFFFFFFFFFFF

STOP_TOP = 0
"""The walk ended on the top chunk: whole."""
STOP_END = 1
"""The walk ended exactly at the region's end: whole."""
STOP_FENCE = 2
"""`at` is the first fencepost (size field 2*word with or without P) or the terminator (size field 1 or 0)."""
STOP_SMALL = 3
"""Damage: the size field at `at` is below the minimum chunk size (and no fencepost)."""
STOP_MISALIGNED = 4
"""Damage: the size at `at` is no multiple of the alignment."""
STOP_MMAPPED_BIT = 5
"""Damage: the size field at `at` has IS_MMAPPED set inside an arena."""
STOP_OVERRUN = 6
"""Damage: the chunk at `at` reaches beyond the region's end, or past the top chunk."""
STOP_UNREADABLE = 7
"""The header at `at` cannot be read."""
STOP_TIME = 8
"""The caller's bound in time was reached, or Ctrl-C; `at` is the next chunk."""
STOPS = 9


class Residency(NamedTuple):
    """Resident part of some page ranges of a live process, by its page table. A page is one of this machine's."""

    resident_bytes: int
    """In RAM and counted in the process's RSS: what giving the pages back lowers RSS by. The zero page, which reading an untouched page
    maps, is in no one's RSS; pages shared with a forked process are in the RSS of both."""
    exclusive_bytes: int
    """Those of them that no other process has mapped: what the machine gets back at once. Of a huge page only if the range holds all of
    it."""
    swapped_bytes: int
    huge_bytes: int
    """Those resident that are part of a huge page; 0 also where the page table does not show (PageTable.scans)."""
    unsure_bytes: int
    """Present, and either shared with a forked process or the zero page: neither this kernel nor our rights show which. In no other sum."""


class Written(NamedTuple):
    """The pages of some ranges that hold anything but zeros."""

    bounds: Sequence[int]
    """array('Q'): first address and end of each run of such pages, sorted."""
    until: Optional[int]
    """Where the search was cut: what lies from here on is not known and in no run; None: everything was looked at."""


HISTOGRAM_EXACT_BYTES = 1024
"""Chunk sizes up to this have a histogram class of their own."""


def histogram_class(size_bytes: int, alignment_bytes: int) -> int:
    """The class of a chunk size: exact to 1,024 bytes, above that four steps per power of two, upper bound included."""
    if size_bytes <= HISTOGRAM_EXACT_BYTES:
        return size_bytes // alignment_bytes
    power = (size_bytes - 1).bit_length() - 1
    step = ((size_bytes - 1) >> (power - 2)) & 3
    return HISTOGRAM_EXACT_BYTES // alignment_bytes + 1 + (power - 10) * 4 + step


def histogram_bounds(index: int, alignment_bytes: int) -> Tuple[int, int]:
    """(smallest, largest) chunk size of a class."""
    exact = HISTOGRAM_EXACT_BYTES // alignment_bytes
    if index <= exact:
        return index * alignment_bytes, index * alignment_bytes
    power, step = divmod(index - exact - 1, 4)
    quarter = 1 << (power + 8)
    lower = (4 + step) * quarter
    return lower + alignment_bytes, lower + quarter


HEAPX_ABI = 37
"""Raised when the meaning of what crosses changes: a library without its C files next to it is known by it."""
STALE = "stale: built from other sources; rebuild it with: python3 -m gdbheapx.kernel.build"

LIBRARY = os.path.join(build.native_folder(), build.LIBRARY)

FIRST_SLICE_SECONDS = 0.02
SLICE_SECONDS = 0.1
"""How long a kernel works before it asks the budget again: short at first, for small bounds."""

INTERRUPTED = -1
"""What a slice of work returns when a read raised."""

NO_MEMORY = -2
"""What it returns when this machine has no memory left."""

MOST_OFFSET = 0x7FFFFFFFFFFFF000
"""/proc/PID/mem is one segment up to here: file offsets are signed."""

_STOP = ctypes.CFUNCTYPE(ctypes.c_int)
_READ = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)

_TYPES = {
    "void": None,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "double": ctypes.c_double,
    "read_call": ctypes.c_void_p,
    "stop_call": ctypes.c_void_p,
}
"""Types in the prototypes of exported functions, besides pointers."""


class Unusable(Exception):
    """The C kernel cannot be used; the message says why and what to type."""


def open_library(path: str) -> Any:
    """The library at `path`; Unusable if it is missing, does not load, or is not the one that belongs to these files."""
    if not os.path.exists(path):
        raise Unusable(why_missing())
    library, checksum = load_library_at(path), build.source_id()
    if checksum is not None and checksum != library.heapx_source_id():
        raise Unusable(STALE)
    return library


def load_library_at(path: str) -> Any:
    """The library at `path` with the types of its functions, by the prototypes that were compiled into it: those of its headers. Unusable
    if it does not load or is another one."""
    try:
        library: Any = ctypes.CDLL(path)
        if library.heapx_abi() != HEAPX_ABI:
            raise Unusable(STALE)
        library.heapx_prototypes.restype = ctypes.c_char_p
        for prototype in library.heapx_prototypes().decode("ascii").splitlines():
            result, _, rest = prototype.partition("heapx_")
            name, _, arguments = rest.rstrip(")").partition("(")
            function = getattr(library, "heapx_" + name)
            function.restype = _parse_type(result)
            function.argtypes = [_parse_type(argument) for argument in arguments.split(",") if argument != "void"]
    except (OSError, AttributeError) as error:
        raise Unusable("cannot load it: %s" % error) from None
    return library


def _parse_type(text: str) -> Any:
    return ctypes.c_void_p if "*" in text else _TYPES[text.split()[0]]


def why_missing() -> str:
    """Return the reason why there is no library, and the command that gets it; only compilers that were searched for are mentioned."""
    if build.source_id() is None:
        return "not built at install time, and its C files are not here; run: pip install --force-reinstall --no-binary gdbheapx gdbheapx"
    words = build.find_compiler()
    if words is None:
        lacking = "not built, and no C compiler found here (looked for $CC, cc, gcc, clang)"
        return lacking + "; install one, then run: python3 -m gdbheapx.kernel.build"
    return "not built; build it with: python3 -m gdbheapx.kernel.build (compiler: %s)" % words[0]


def usable_cpus() -> int:
    """Return the number of CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) or 1


def address_of(numbers: Any) -> Optional[int]:
    """Return the address of an array's numbers, or None for an empty one."""
    return numbers.buffer_info()[0] if len(numbers) else None


def as_array(numbers: Sequence[int]) -> Any:
    """Return the numbers as array('Q')."""
    return numbers if isinstance(numbers, array) and numbers.typecode == "Q" else array("Q", numbers)


def flatten_pairs(pairs: Iterable[Sequence[int]]) -> "array[int]":
    """The numbers of many rows, such as (start, end), as C has them."""
    return array("Q", [number for pair in pairs for number in pair])


def flatten_record(record: Any) -> "array[int]":
    """The numbers of a record, or of many, as C has them."""
    return array("Q", _iterate_numbers(record))


def _iterate_numbers(record: Any) -> Iterator[int]:
    for member in record:
        if isinstance(member, int):
            yield member
        else:
            yield from _iterate_numbers(member)


def require_memory(handle: Any) -> Any:
    """Return what the native library has made. MemoryError if that is nothing: there was no room."""
    if not handle:
        raise MemoryError()
    return handle


def take_rows(give: Callable[[Optional[int], int], int], width: int, letter: str = "Q") -> "array[int]":
    """Return all rows, of `width` numbers each, that a function of the native library gives: it takes where they go and for how many there
    is room, and returns how many there are. MemoryError if that is below 0."""
    count = give(None, 0)
    out = array(letter, bytes(array(letter).itemsize * width * max(count, 0)))
    require_memory(count >= 0 and give(address_of(out), count) >= 0)
    return out


@contextmanager
def native_job(handle: Any, free: Callable[[Any], object]) -> Iterator[Any]:
    """Give what the native library has made for the time of a block. MemoryError if there was no room for it."""
    require_memory(handle)
    try:
        yield handle
    finally:
        free(handle)


@contextmanager
def finish_job(library: Any, name: str, opened: "OpenSource", budget: Budget, *arguments: Any) -> Iterator[Any]:
    """Give a job of heapx_NAME_new() once heapx_NAME_slice() has done all there is, or time is up; then heapx_NAME_free() it."""
    new, work, free = (getattr(library, "heapx_%s_%s" % (name, verb)) for verb in ("new", "slice", "free"))
    with native_job(new(*arguments), free) as job:
        run_resumable(lambda seconds: work(job, seconds), opened, budget)
        yield job


class NativeObject:
    """Owner of what the native library has made, which is freed with this. MemoryError if there was no room for it."""

    handle: Any = None

    def __init__(self, handle: Any, free: Callable[[Any], object]) -> None:
        self.handle, self._free = require_memory(handle), free

    def __del__(self) -> None:
        if self.handle:
            self._free(self.handle)
            self.handle = None


class NativeRows:
    """Room for so many records of a kind whose members are numbers, or such records."""

    def __init__(self, kind: Any, count: int) -> None:
        self._kind, self._inner = kind, [_record_in(text) for text in kind.__annotations__.values()]
        self._width = sum(len(inner._fields) if inner else 1 for inner in self._inner)
        self.numbers = array("Q", bytes(8 * self._width * count))

    def records(self, count: int) -> List[Any]:
        """The first ones."""
        rest, rows = iter(self.numbers), range(count)
        if not any(self._inner):
            return [self._kind._make(islice(rest, self._width)) for _ in rows]
        return [
            self._kind._make([inner._make(islice(rest, len(inner._fields))) if inner else next(rest) for inner in self._inner])
            for _ in rows
        ]


def _record_in(annotation: Any) -> Any:
    """The record that a member is, which may be None; None: it is a number."""
    kinds = [kind for kind in getattr(annotation, "__args__", (annotation,)) if hasattr(kind, "_fields")]
    return kinds[0] if kinds else None


class OpenSource:
    """A bulk source in the C kernel's form, and what must live as long as it. `swapped_in`: one number to which it adds the bytes that it
    brings in from swap."""

    def __init__(self, library: Any, source: BulkSource, swapped_in: Any = None) -> None:
        self.handle: Optional[int] = None
        self.source = source
        self.error: Optional[BaseException] = None
        self._fd = self._pagemap = -1
        self._library = library
        self._swapped_in = array("Q", [0]) if swapped_in is None else swapped_in
        kind, call, segments = 0, None, array("Q")
        if isinstance(source, FileSource):
            self._fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            for segment in source.segments:
                segments.extend((segment.address, segment.size_bytes, segment.file_offset))
        elif isinstance(source, ProcessSource):
            try:
                self._fd = os.open("/proc/%d/mem" % source.pid, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # the process is gone, or may not be read: nothing of it is readable
                pass
            if self._fd >= 0 and (source.untouched_zero or source.swap is not None):
                try:
                    self._pagemap = os.open("/proc/%d/pagemap" % source.pid, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:  # not in this kernel, or the process is gone
                    pass
            is_copied = source.copy is not None  # also once the process is gone
            if is_copied or (self._fd >= 0 and (self._pagemap >= 0 or source.swap is None or source.swap.has_room_for_all())):
                spans = [(0, MOST_OFFSET)] if self._pagemap >= 0 or is_copied else subtract_ranges([(0, MOST_OFFSET)], source.unanswered)
                for start, end in spans:  # without a page table nothing tells whose a page is
                    segments.extend((start, end - start, start))
        elif callable(source):
            kind = 1
            self._call = _READ(self._read_for_c)
            call = ctypes.cast(self._call, ctypes.c_void_p)
        elif isinstance(source, BytesSource):
            kind = 2
            for address, data in source.pieces:
                segments.extend((address, len(data), ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0))
        else:
            raise TypeError("no bulk source: %r" % (source,))
        self.handle = require_memory(library.heapx_source_new(kind, self._fd, call, address_of(segments), len(segments) // 3))
        self.swap = source.swap if isinstance(source, ProcessSource) else None
        if isinstance(source, ProcessSource):  # what it has not touched is not read, nor what is in swap and has no room
            until = None if source.still is None else address_of(source.still.until)
            copy = None if source.copy is None else source.copy.handle
            room = None if source.swap is None else address_of(source.swap.cells)
            self._kept = [flatten_pairs(pairs) for pairs in (source.untouched_zero, source.brought_in, source.unanswered)]
            zero, brought_in, unanswered = ((address_of(bounds), len(bounds) // 2) for bounds in self._kept)
            numbers = (self._pagemap, int(source.scans), address_of(self._swapped_in), room)
            library.heapx_source_process(self.handle, until, copy, *numbers, *zero, *brought_in, *unanswered)

    def _read_for_c(self, address: int, to: int, size_bytes: int) -> int:
        """Read for C, which calls this for a CallSource. An exception cannot cross C: it waits in `error`."""
        try:
            data = self.source(address, size_bytes)  # type: ignore[operator]
            length = min(len(data), size_bytes)
            ctypes.memmove(to, bytes(data[:length]), length)
            return length
        except BaseException as error:
            self.error = error
            return INTERRUPTED

    def raise_error(self) -> None:
        """Raises what a read raised, if anything."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is bound early: when the interpreter ends, this module's own names may be gone before the object is
        if self.handle:
            self._library.heapx_source_free(self.handle)
            self.handle = None
        for descriptor in (self._fd, self._pagemap):
            if descriptor >= 0:
                close(descriptor)
        self._fd = self._pagemap = -1


class OpenPages:
    """A process's page table in the C kernel's form; its handle is None where there is none or it cannot be opened."""

    def __init__(self, library: Any, table: Optional[PageTable]) -> None:
        self.handle: Optional[int] = None
        self._library, self._fd = library, -1
        if table is None:
            return
        try:
            self._fd = os.open("/proc/%d/pagemap" % table.pid, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            if table.copy is None:
                return
        self._outside = flatten_pairs(table.outside_rss)
        outside, knows = (address_of(self._outside), len(table.outside_rss)), (int(table.scans), int(table.knows_huge_zero))
        copy = None if table.copy is None else table.copy.handle
        self.handle = require_memory(library.heapx_pages_new(self._fd, table.flags_fd, *knows, *outside, copy))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.handle:
            self._library.heapx_pages_free(self.handle)
            self.handle = None
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1


def run_resumable(work: Any, opened: OpenSource, budget: Budget) -> None:
    """Calls `work(seconds)` until nothing is left, the budget expires or Ctrl-C is pressed. Work is resumable, so that is safe anywhere."""
    seconds = FIRST_SLICE_SECONDS
    try:
        while not budget.expired():
            if opened.swap is not None:
                opened.swap.renew()
            left = work(budget.slice_s(seconds))
            if left == NO_MEMORY:
                raise MemoryError()
            if left == INTERRUPTED:
                opened.raise_error()
            elif not left:
                return
            seconds = min(2 * seconds, SLICE_SECONDS)
    except KeyboardInterrupt:
        budget.interrupt()


def make_stop_call(budget: Budget) -> Any:
    """A stop_call for work in one call, which asks the budget, and hears Ctrl-C. The caller that hands it over keeps it until the call
    returns."""

    def is_over() -> int:
        try:
            return int(budget.expired())
        except KeyboardInterrupt:
            budget.interrupt()
            return 1

    return _STOP(is_over)


class Kernel:
    """The native library's functions that know no allocator, and what the walkers of each allocator take."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self._opened: Optional[OpenSource] = None
        self._swapped_in = array("Q", [0])
        self._pages: Tuple[Optional[PageTable], OpenPages] = (None, OpenPages(library, None))

    def open(self, source: BulkSource) -> OpenSource:
        """The source opened, kept while the same one is asked for: lists are collected by thousands of calls."""
        if self._opened is None or self._opened.source is not source:
            self._opened = OpenSource(self.library, source, self._swapped_in)
        return self._opened

    def open_apart(self, source: BulkSource) -> OpenSource:
        """A source next to the one that is kept."""
        return OpenSource(self.library, source, self._swapped_in)

    def open_pages(self, pages: Optional[PageTable]) -> OpenPages:
        """A page table opened, kept while the same one is asked of: each of hundreds of arenas asks."""
        if self._pages[0] is not pages:
            self._pages = (pages, OpenPages(self.library, pages))
        return self._pages[1]

    @property
    def swapped_in_bytes(self) -> int:
        """Bytes of live processes that were in swap when they were read, since this kernel was loaded: they are in RAM now."""
        return int(self._swapped_in[0])

    def in_order(self, numbers: "array[int]") -> "array[int]":
        """array('Q') sorted in place."""
        require_memory(self.library.heapx_sort(address_of(numbers), len(numbers)))
        return numbers

    searched_words = 0
    """How many words find_addresses has looked at since this kernel was loaded."""

    def find_addresses(self, memory: Iterable[Tuple[int, bytes]], ranges: Sequence[Tuple[int, int]], mask: int) -> List[Tuple[int, int]]:
        """(where it is, word) of each aligned 64-bit word of these pieces of memory, as this machine orders bytes, that lies in a range and
        has no bit of `mask`. `memory`: (address, bytes) of each; `ranges`: sorted, without overlap."""
        flat, found = flatten_pairs(ranges), []  # type: array[int], List[Tuple[int, int]]
        bounds = (address_of(flat), len(ranges))
        for start, data in memory:
            first = -start & 7
            words = array("Q", data[first : first + (len(data) - first & -8)])
            places = array("Q", bytes(8 * len(words)))
            self.searched_words += len(words)
            count = self.library.heapx_words_into(address_of(words), len(words), *bounds, mask, address_of(places))
            found += [(start + first + 8 * place, words[place]) for place in places[:count]]
        return found

    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """Find the pages of the sorted ranges, without overlap, that hold anything but zeros; unreadable ones count as such. Pages begin
        at multiples of page_bytes; ranges may begin and end anywhere. When the budget expires, or at Ctrl-C, the result shows how far it
        came.
        """
        library, opened = self.library, self.open(source)
        flat, until = flatten_pairs(ranges), array("Q", [0])
        with finish_job(library, "written", opened, budget, opened.handle, address_of(flat), len(ranges), page_bytes) as job:
            out = take_rows(lambda where, room: library.heapx_written_result(job, room, where, address_of(until)), 2)
        return Written(out, None if until[0] == ADDRESS_MASK else until[0])

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]], with_exclusive: bool = True) -> Optional[Residency]:
        """Return the residency of the page-aligned, ascending ranges, all together; None if the process's page table cannot be opened.
        Finding pages that no other process has mapped takes four times as long: exclusive_bytes is 0 if it is not requested.
        """
        table = self.open_pages(pages)
        if table.handle is None:
            return None
        flat, out = flatten_pairs(ranges), array("Q", bytes(8 * len(Residency._fields)))
        self.library.heapx_residency(table.handle, address_of(flat), len(ranges), with_exclusive, address_of(out))
        return Residency(*out)

    def page_kinds(self, pages: PageTable, start: int, end: int) -> Optional[bytes]:
        """KIND_ bits (copy.py) of each page of a page-aligned range, fewer where the table ends; None if it cannot be opened."""
        table = self.open_pages(pages)
        if table.handle is None:
            return None
        page = os.sysconf("SC_PAGESIZE")
        count = (end - start) // page
        entries, kinds = array("Q", bytes(8 * count)), array("B", bytes(count))
        return kinds[: self.library.heapx_pages_look(table.handle, start // page, count, address_of(entries), address_of(kinds))].tobytes()


PACKED: Dict[str, str] = {}
"""Libraries by machine, C_FILES, and SOURCE_ID, as text: what the single file has. Empty in any other installation."""
C_FILES, SOURCE_ID = "C files", "source id"
"""The first is a JSON object of texts by path."""


def pack_bytes(data: bytes) -> str:
    """Bytes as PACKED has them."""
    return base64.b85encode(zlib.compress(data, 9)).decode("ascii")


def unpack_bytes(name: str) -> bytes:
    """The bytes of that name; Unusable if there are none."""
    if name not in PACKED:
        raise Unusable("this single file has no native library for %s" % name)
    return zlib.decompress(base64.b85decode(PACKED[name]))


def open_included(load: Callable[[str], Any]) -> Any:
    """The library of this machine, or one that is made of the C files, which `load` loads from a path; Unusable says what is in the way."""
    reasons: List[str] = []
    makers: Sequence[Callable[[], bytes]] = (lambda: unpack_bytes(os.uname().machine), compile_own_library)
    for make in makers:
        try:
            return _load_from_memory(make(), load)
        except Unusable as reason:
            reasons.append(str(reason))
    raise Unusable("; ".join(reasons))


def compile_own_library() -> bytes:
    """A library made of the C files, with whatever compiler there is."""
    import json
    import tempfile

    words = build.find_compiler()
    if words is None:
        raise Unusable("no C compiler found here (looked for $CC, cc, gcc, clang)")
    with tempfile.TemporaryDirectory(prefix="gdbheapx") as folder:
        target = os.path.join(folder, build.LIBRARY)
        if build.compile_into(target, words, json.loads(unpack_bytes(C_FILES)), int(PACKED[SOURCE_ID])).returncode != 0:
            raise Unusable("%s cannot compile it" % words[0])
        with open(target, "rb") as library:
            return library.read()


def _load_from_memory(data: bytes, load: Callable[[str], Any]) -> Any:
    """Load the library from memory, or, if that cannot be executed, from a file that no other process can open and that is removed at
    once.
    """
    reasons = []
    for place in (_in_memory, _in_private_file):
        try:
            with place(data) as path:
                library = load(path)
            if str(library.heapx_source_id()) == PACKED[SOURCE_ID]:
                return library
            reasons.append("another gdbheapx is loaded in this process")  # from a descriptor of the same number
        except (OSError, AttributeError, Unusable) as error:  # a Python or libc without memfd_create, too
            reasons.append(str(error))
    raise Unusable("; ".join(dict.fromkeys(reasons)))


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("gdbheapx", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield "/proc/self/fd/%d" % descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _in_private_file(data: bytes) -> Iterator[str]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gdbheapx") as folder:
        path = os.path.join(folder, build.LIBRARY)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        yield path
