"""Find the objects that may hold a jemalloc, by names, packs, texts, the thread-local image, bins or arenas, the cheap ones first.

Nothing is searched in an object that has no room for arenas[]; files are read before memory, and of memory only pages that are present.
For 64-bit little-endian machines; seen in builds of 4.5.0 to HEAD (May 2026), tikv-jemallocator 0.4 to 0.7, pyarrow, polars, duckdb."""

import re
from array import array
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx import kernel as kernels
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.inferior.base import Module, Target
from gdbheapx.kernel.common.library import ADDRESS_MASK
from gdbheapx.layout import pack as packs

PREFIX_MARK = "opt_narenas"
"""A variable that is external in every release: the rest of its name is the private prefix. (arenas_lock is static from 5.3.1 on.)"""
PUBLIC_PREFIXES = ("", "je_", "_rjem_")
"""Usual ones: a release before 5 has too little .bss to be searched for traces, and is known by what it exports alone."""

ARENA_POINTERS = 4095
"""MALLOCX_ARENA_LIMIT: arenas[] is that long and begins as zeros in every release of 5, so that an object with less .bss holds none."""

TEXT = b"<jemalloc>: "
"""Every message of jemalloc's own begins so; a build has 20 to 45 of them."""
LEAST_TEXTS = 8
"""A program that reads logs may have a few."""

VERSION_TAIL = re.compile(rb"-(\d{1,6})-g([0-9a-f]{1,40})\0")
"""The end of JEMALLOC_VERSION. Its start, found from there: a pattern that begins with digits takes ten times as long."""
VERSION_HEAD = re.compile(rb"\d{1,3}\.\d{1,3}\.\d{1,3}\Z")
VERSION_HEAD_BYTES = 11

CONF_VARIABLE = re.compile(rb"MALLOC_CONF\0")
"""The end of the environment variable's name: JEMALLOC_CPREFIX"MALLOC_CONF" (jemalloc.c: obtain_malloc_conf)."""
CONF_HEAD = re.compile(rb"\0([A-Z0-9_]{0,60})\Z")
CONF_HEAD_BYTES = 64

BACKGROUND_NAME = "jemalloc_bg_thd"
"""comm of each background thread (background_thread.c: background_thread_entry), where configure found pthread_setname_np."""
PROFILE = re.compile(rb"heap_v2/%\w{1,3}\n  t\*: ")
"""The head of a heap profile (prof.c, from 5.3.0 prof_data.c): code that only a build with --enable-prof keeps."""

RTREE_CTX = (b"\1" + bytes(15)) * 24
"""tsd_s.rtree_ctx in the thread-local image from 5.3.0 on: 24 entries whose leafkey is RTREE_LEAFKEY_INVALID (rtree_tsd.h)."""
TICKER = (1000).to_bytes(4, "little") * 2
"""arena_decay_ticker there: {tick, nticks}, ARENA_DECAY_NTICKS_PER_UPDATE."""
SMALLEST_CLASS_BYTES = 8
BIN_STRIDES = {4096: 40, 16384: 88, 65536: 88}
"""sizeof(bin_info_t) by the pages that jemalloc is built for: with flat bitmaps, and with trees of them (bitmap.h)."""
LEAST_BINS = 24
MOST_SHARDS = 64
BLOCK_BYTES = 2 << 20
"""Blocks of an arena's metadata begin at a multiple of this and are multiples of it long (base.c: HUGEPAGE)."""
MOST_BLOCK_BYTES = 1 << 40
ARENA_ALIGNMENT = 64
"""Of arena_t: whole cache lines of base memory (base.c)."""
BASE_OFFSETS = {4096: 0xC0, 16384: 0x180, 65536: 0x480}
"""Of base_t from the start of its first block, by page: after base_block_s, which has an extent with the bitmap of a slab."""
ARENA_BYTES = 128 << 10
"""arena_t has up to 100 KB; arena_t.base lies near its end."""
MOST_CANDIDATES = 8
"""Places that may be arenas[] and are looked at; the static a0, which leads to arena 0 as well, is one of them."""
BASE_BYTES = 0x800
"""Length of base_t, roughly, which precedes all that its block gives out."""
PIECE_BYTES = 4096
PAGE_BYTES = 4096
"""The usual page of jemalloc."""
MOST_SEARCHED_BYTES = 16 << 20
"""Of one object's memory; jemalloc's own .bss is 0.3 to 3 MiB."""


TSD_IMAGES = (
    ("5.3.0", 6, (-280, -296, -312, -344, -360)),
    ("5.3.0-196-ga25b9b8b", 6, (-288,)),
    ("5.3.1", 6, (-328, -336, -368, -408, -416)),
    ("after 5.3.1", 5, (-288, -296)),
)
"""Of each release the byte after rtree_ctx in the thread-local image (tsd_state_uninitialized), and where arena_decay_ticker is from
rtree_ctx on, in the builds seen: quantum 16 and 8 with pages of 4 KiB, 16 with 16, 16 and 8 with 64."""


class ObjectTexts(NamedTuple):
    """The texts of one object."""

    texts: int
    """Messages that begin with `<jemalloc>: `."""
    version_text: Optional[str]
    """JEMALLOC_VERSION; for display, and to distinguish a snapshot from a release: layouts follow from the types. None if there is none to
    read."""
    conf_variables: Tuple[str, ...]
    """Names that end in MALLOC_CONF: of the environment variable that options are read from."""
    profiles: Optional[bool]
    """Built with --enable-prof: it has the head of a heap profile. None where no jemalloc's texts can be read."""
    is_known: bool
    """All of them were read, so that no jemalloc is here if none shows; a core without the file has a page of them, or the segment before
    them."""
    names_threads: bool = False
    """It gives its background threads a name of their own, which not every build does."""

    @property
    def is_jemalloc(self) -> bool:
        """Return whether the texts are those of a jemalloc of any release."""
        return self.texts >= LEAST_TEXTS


class BinTable(NamedTuple):
    """bin_infos[] in memory or in constant data."""

    address: int
    page_bytes: int
    nbins: int
    is_sharded: bool
    """It has n_shards: 5.2.0 and later; before, that place is padding."""


class JemallocTraces(NamedTuple):
    """The traces of a jemalloc in an object."""

    constants: ObjectTexts
    bins: Optional[BinTable] = None
    rtree_ctx: Optional[int] = None
    """Offset of tsd_s.rtree_ctx in the object's thread-local block."""
    release: Optional[str] = None
    """Its version text, else the release of the thread-local image."""


class JemallocSuspect(NamedTuple):
    """An object that may hold a jemalloc."""

    module: Module
    prefix: Optional[str]
    """Of its names; None where it has none of them."""
    pack: Optional[packs.Pack]
    """Of this build."""
    traces: Optional[JemallocTraces]
    """None if names or a pack prove it."""


def find_suspects(target: Target) -> List[JemallocSuspect]:
    """List the objects that names or a pack prove, then those that export mallctl or have traces; each in the dynamic linker's order."""
    prefixes: Dict[int, str] = {}
    for name, module in target.names_ending(PREFIX_MARK):
        prefixes.setdefault(module.base, name[: -len(PREFIX_MARK)])
    exporters = [target.dynamic_symbol(prefix + "mallctl") for prefix in PUBLIC_PREFIXES]
    exporting = {symbol.module.base for symbol in exporters if symbol is not None}
    named: List[JemallocSuspect] = []
    nameless: List[JemallocSuspect] = []
    for module in target.modules():
        prefix = prefixes.get(module.base)
        is_complete = prefix is not None and module.has_debug_info
        pack = packs.find_pack(module.build_id, "jemalloc") if module.build_id and not is_complete else None
        if prefix is not None or pack is not None:
            named.append(JemallocSuspect(module, prefix, pack, None))
            continue
        traces = find_traces(target, module)
        if traces is not None or module.base in exporting:
            nameless.append(JemallocSuspect(module, None, None, traces))
    return named + nameless


def find_traces(target: Target, module: Module) -> Optional[JemallocTraces]:
    """The traces of a jemalloc in this object; None if it holds none that could be recognised. 64-bit little-endian targets."""
    if target.word_bytes != 8 or not target.little_endian:
        return None
    has_room = has_room_for_arenas(target, module)
    if not has_room and not module.is_executable:
        return None
    told = read_object_texts(target, module)
    rtree_ctx, release = find_thread_image(target.thread_local_image(module)) if has_room else (None, None)
    is_proven = told.is_jemalloc or rtree_ctx is not None
    if not has_room or (told.is_known and not is_proven):
        return JemallocTraces(told, release=told.version_text) if told.is_jemalloc else None
    tables = (search_bin_table(data, address) for address, data in read_own_memory(target, module))
    bins = next((table for table in tables if table is not None), None)
    is_proven = is_proven or (bins is not None and bins.is_sharded)
    is_proven = is_proven or has_arenas(target, list(read_own_memory(target, module)))
    return JemallocTraces(told, bins, rtree_ctx, told.version_text or release) if is_proven else None


def has_arenas(target: Target, memory: Sequence[Tuple[int, bytes]]) -> bool:
    """Return whether a word of an object's memory leads to an arena, which has a pointer to its own base."""
    for page_bytes in BASE_OFFSETS:
        table, blocks = find_arena_table(target, memory, page_bytes), BaseBlocks(target, page_bytes)
        pointers = table.pointers.values() if table is not None else ()
        if any(find_base_pointers(target, arena, blocks.base_of(arena) or 0) for arena in pointers):
            return True
    return False


def has_room_for_arenas(target: Target, module: Module) -> bool:
    """Its .bss could hold arenas[]."""
    return any(end - file_end >= ARENA_POINTERS * target.word_bytes for _, file_end, end in target.writable_segments(module))


def find_thread_image(image: bytes) -> Tuple[Optional[int], Optional[str]]:
    """Find tsd_s.rtree_ctx in a thread-local image, from 5.3.0 on, and the release whose tsd_s it is, as far as that is known; nothing
    if rtree_ctx is not there exactly once."""
    at = image.find(RTREE_CTX)
    behind = at + len(RTREE_CTX)
    if at < 0 or image.find(RTREE_CTX, at + 1) >= 0:
        return None, None
    state = image[behind] if behind < len(image) else None
    for release, known_state, tickers in TSD_IMAGES:
        if known_state == state and any(image[max(0, at + place) : at + place + 8] == TICKER for place in tickers):
            return at, release
    return at, None


def read_own_memory(target: Target, module: Module) -> Iterator[Tuple[int, bytes]]:
    """(address, bytes) of the object's writable memory, of which only pages that are there are read."""
    left = MOST_SEARCHED_BYTES
    for start, _, end in target.writable_segments(module):
        for low, high in target.present_ranges(start, end):
            size_bytes = min(high - low, left)
            left -= size_bytes
            if size_bytes:
                yield low, target.read_prefix(low, size_bytes)


def search_bin_table(data: bytes, address: int) -> Optional[BinTable]:
    """bin_infos[] in these bytes, which lie at `address`: rows whose sizes, slabs and region counts agree."""
    for page, stride in BIN_STRIDES.items():
        first = SMALLEST_CLASS_BYTES
        head = first.to_bytes(8, "little") + page.to_bytes(8, "little") + (page // first).to_bytes(4, "little")
        at = data.find(head)
        while at >= 0:
            shards = list(_read_shards(data, at, stride, page))
            if len(shards) >= LEAST_BINS:
                return BinTable(address + at, page, len(shards), all(shards))
            at = data.find(head, at + 8)
    return None


def _read_shards(data: bytes, at: int, stride: int, page: int) -> Iterator[int]:
    """n_shards of each row of bin_infos[] from `at` on: {reg_size, slab_size, nregs, n_shards, {nbits, ...}}."""
    before = 0
    while at + stride <= len(data):
        reg, slab, nbits = (int.from_bytes(data[at + place : at + place + 8], "little") for place in (0, 8, 24))
        nregs, shards = (int.from_bytes(data[at + place : at + place + 4], "little") for place in (16, 20))
        if not before < reg <= slab or slab % page or nregs != slab // reg or nbits != nregs or shards > MOST_SHARDS:
            return
        yield shards
        before, at = reg, at + stride


class ArenaTable(NamedTuple):
    """The array arenas[], found by what its words lead to."""

    address: int
    pointers: Dict[int, int]
    """Index -> address, of those whose base says that index."""
    others: int
    """Words there that lead to no such arena: made with extent hooks of the program's own, or damage."""
    page_bytes: int = PAGE_BYTES
    """The page that the blocks of their metadata are aligned to."""


class BaseBlocks:
    """Blocks of arenas' metadata, each read once."""

    def __init__(self, target: Target, page_bytes: int) -> None:
        self._target = target
        self._base_offset = BASE_OFFSETS[page_bytes]
        self._known: Dict[int, Optional[int]] = {}
        self._indexes: Dict[int, int] = {}

    def base_of(self, arena: int) -> Optional[int]:
        """Return the address of the base in whose block an arena would lie that begins here; None if none begins here."""
        block = arena & -BLOCK_BYTES
        if not block or arena & ARENA_ALIGNMENT - 1 or arena == block:
            return None
        if block not in self._known:
            self._known[block] = self._read_size(block)
        size, base = self._known[block], block + self._base_offset
        return base if size is not None and base + BASE_BYTES <= arena < block + size else None

    def index_of(self, arena: int) -> Optional[int]:
        """Return the index that the base says of the arena at this address."""
        base = self.base_of(arena)
        if base is None:
            return None
        if base not in self._indexes:
            self._indexes[base] = int.from_bytes(self._target.read_prefix(base, 4).ljust(4, b"\xff"), "little")
        index = self._indexes[base]
        return index if index < ARENA_POINTERS else None

    def _read_size(self, block: int) -> Optional[int]:
        head = self._target.read_prefix(block, 16)
        size, following = int.from_bytes(head[:8], "little"), int.from_bytes(head[8:], "little")
        is_one = len(head) == 16 and 0 < size <= MOST_BLOCK_BYTES and not size % BLOCK_BYTES
        return size if is_one and not following % PIECE_BYTES else None


def find_arena_table(target: Target, memory: Iterable[Tuple[int, bytes]], page_bytes: int) -> Optional[ArenaTable]:
    """Find arenas[] in these pieces of an object's memory; None if no word there leads to an arena."""
    blocks, votes = BaseBlocks(target, page_bytes), {}  # type: BaseBlocks, Dict[int, int]
    for address, word in kernels.load_native_library().find_addresses(memory, list_writable_ranges(target), ARENA_ALIGNMENT - 1):
        index = blocks.index_of(word)
        if index is not None:
            start = address - 8 * index
            votes[start] = votes.get(start, 0) + 1
    likely = sorted(votes, key=lambda start: (-votes[start], start))[:MOST_CANDIDATES]
    candidates = [read_arena_table(target, start, page_bytes, blocks) for start in likely if not start & 63]
    whole = [candidate for candidate in candidates if candidate.pointers]
    return max(whole, key=lambda one: (len(one.pointers) - one.others, -one.address), default=None)


def read_arena_table(target: Target, address: int, page_bytes: int, blocks: Optional[BaseBlocks] = None) -> ArenaTable:
    """Read arenas[] as if it began here."""
    blocks = blocks or BaseBlocks(target, page_bytes)
    data = target.read_prefix(address, 8 * ARENA_POINTERS)
    words = array("Q", data[: len(data) & -8])
    pointers = {index: word for index, word in enumerate(words) if word and blocks.index_of(word) == index}
    return ArenaTable(address, pointers, sum(1 for word in words if word) - len(pointers), page_bytes)


def find_base_pointers(target: Target, arena: int, base: int) -> Sequence[int]:
    """Find the offsets of pointers to that base in an arena, and past its end where there is more of the block."""
    data, pointer = target.read_prefix(arena, ARENA_BYTES), base.to_bytes(8, "little")
    places, at = [], data.find(pointer)
    while at >= 0:
        if not at & 7:
            places.append(at)
        at = data.find(pointer, at + 1)
    return places


def list_writable_ranges(target: Target) -> List[Tuple[int, int]]:
    """List the ranges where a heap may lie; everything if no mapping is known."""
    writable = unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable])
    return writable or [(BLOCK_BYTES, ADDRESS_MASK)]


def read_object_texts(target: Target, module: Module) -> ObjectTexts:
    """The texts of this object; none where neither its file nor a dump of them is here.

    Twice, if there is a jemalloc: one search for what all its messages begin with is done before the rest is looked for.
    """
    texts, is_known = sum(data.count(TEXT) for data in target.constant_data(module)), target.has_all_constants(module)
    if texts < LEAST_TEXTS:
        return ObjectTexts(texts, None, (), None, is_known)
    versions: Set[str] = set()
    variables: Set[str] = set()
    profiles = names_threads = False
    for data in target.constant_data(module):
        versions.update(_find_names(data, VERSION_TAIL, VERSION_HEAD, VERSION_HEAD_BYTES))
        variables.update(_find_names(data, CONF_VARIABLE, CONF_HEAD, CONF_HEAD_BYTES))
        profiles = profiles or PROFILE.search(data) is not None
        names_threads = names_threads or BACKGROUND_NAME.encode() in data
    told = sorted(versions, key=lambda text: (not text.startswith("5."), text))
    return ObjectTexts(texts, told[0] if told else None, tuple(sorted(variables)), profiles, is_known, names_threads)


def _find_names(data: bytes, tails: "re.Pattern[bytes]", heads: "re.Pattern[bytes]", head_bytes: int) -> Iterator[str]:
    """Find the texts whose end matches `tails`, and whose start before that matches `heads`."""
    for tail in tails.finditer(data):
        head = heads.search(data[max(0, tail.start() - head_bytes) : tail.start()])
        if head is not None:
            yield (head.group(head.re.groups) + tail.group(0)[:-1]).decode("ascii")
