"""BIND's structures, which begin with a number of four letters (lib/isc/include/isc/magic.h; the numbers: BIND 9.16 to 9.18).

BIND's own books, found without symbols: memory contexts and tasks by name, loops (9.16, 9.18, 9.20).

What is believed is a doubly linked list that closes: every element has the magic number and points back to the one before it, and the last
one is the list's tail (lib/isc/mem.c: contexts; task.c: tasks); or an array of which each element points to its owner (loop_p.h: loops).
"""

import functools
import struct
from bisect import bisect_right
from itertools import islice
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.addon_answers import Books, MemoryContext, QueueRow, taken_bytes
from gdbheapx.analysis.census.world import EXACT, Ask, CensusTarget, Recogniser, Signature
from gdbheapx.common.model import TargetAddress
from gdbheapx.kernel.blocks.signatures import IN_SET, Condition, NumberSet, SignatureRow

STRUCTURES: Dict[str, str] = {
    "Buf!": "isc_buffer", "Cntr": "isc_counter", "HEAP": "isc_heap", "HTab": "isc_ht", "MemC": "isc_mem", "MEMp": "isc_mempool",
    "NETM": "isc_nm", "NMHD": "isc_nmhandle", "NMSK": "isc_nmsocket", "NMUR": "isc__nm_uvreq", "RdxT": "isc_radix_tree",
    "IOio": "isc_socket", "Stat": "isc_stats", "SymT": "isc_symtab", "TASK": "isc_task", "TSKM": "isc_taskmgr", "TIMR": "isc_timer",
    "Dacl": "dns_acl", "Dadb": "dns_adb", "adAI": "dns_adbaddrinfo", "adbE": "dns_adbentry", "adF4": "dns_adbfetch",
    "adbH": "dns_adbfind", "adbN": "dns_adbname", "adNH": "dns_adbnamehook", "BdCa": "dns_badcache", "$$$$": "dns_cache",
    "Disp": "dns_dispatch", "Drsp": "dns_dispentry", "Dsoc": "dispsocket", "Ftch": "dns_fetch", "F!!!": "fetchctx",
    "Q!!!": "resquery", "Tabl": "dns_iptable", "KyIO": "dns_keyfileio", "KNod": "dns_keynode", "KTbl": "dns_keytable",
    "MSG@": "dns_message", "DNSn": "dns_name", "Ntfy": "dns_notify", "RBT+": "dns_rbt", "RBD4": "dns_rbtdb", "DNSR": "dns_rdataset",
    "Rqu!": "dns_request", "Res!": "dns_resolver", "Dstt": "dns_stats", "TSIG": "dns_tsigkey", "Val?": "dns_validator",
    "View": "dns_view", "XfrI": "dns_xfrin_ctx", "ZONE": "dns_zone", "DSTK": "dst_key", "NSCc": "ns_client",
}  # fmt: skip
"""What a structure is called whose first word has this number. A release that names one otherwise keeps the number."""

LEAST_BYTES = 24


def magic_number(letters: str) -> int:
    """Return the number that ISC_MAGIC makes of four letters."""
    return int.from_bytes(letters.encode("ascii"), "big")


POOLED = "freed, in an isc_mempool"
"""What lies on a pool's list (lib/isc/mem.c: struct isc_mempool, items; each element's first word is the next one)."""
ITEMS_OFFSET = 0x20

NAMES = {magic_number(letters): "%s ('%s')" % (name, letters) for letters, name in STRUCTURES.items()}


class Bind(Recogniser):
    """The number is written when a structure is made, and zeroed when it ends."""

    module, objects, is_wide = "bind", ("libisc", "named"), False

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        row = SignatureRow([Condition(0, 4, IN_SET, 0)], least_usable=LEAST_BYTES, key=(0, 4, 0xFFFFFFFF))
        yield Ask(row, lambda key: Signature(NAMES[key], self.module, EXACT), sets=[NumberSet(numbers=sorted(NAMES))], order=30)

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        """Return names for the first two elements of each pool's list."""
        if world.word_bytes != 8:
            return {}
        return {(NAMES[magic_number("MEMp")], ITEMS_OFFSET): POOLED, (POOLED, 0): POOLED}


RECOGNISERS: List[Recogniser] = [Bind()]


Offsets = Dict[str, int]
"""By member; `size`: of all that is read."""
STATS_BUCKETS = 513
"""9.18: of struct isc_mem, one for each 32 bytes of size; each is how many blocks there are, and how many there were."""
OF_CONTEXT = {
    "9.20": "magic:i flags:i arena_flags:i arena:i debugging:i lock:L checkfree:b references:R name:n inuse:w "
    "hi_called:b hi_water:w lo_water:w pools:l poolcnt:i",
    "9.18.19": "magic:i flags:i arena_flags:i arena:i lock:L checkfree:b stats:S references:R name:n total:w inuse:w "
    "maxinuse:w malloced:w maxmalloced:w hi_called:b water:w water_arg:w hi_water:w lo_water:w pools:l poolcnt:i",
    "9.18": "magic:i flags:i lock:L checkfree:b stats:S references:R name:n total:w inuse:w maxinuse:w malloced:w maxmalloced:w "
    "hi_called:b water:w water_arg:w hi_water:w lo_water:w pools:l poolcnt:i",
    "9.16": "magic:i api_magic:i methods:w flags:i lock:L memalloc:w memfree:w max_size:w checkfree:b stats_at:w references:R "
    "name:n tag:w total:w inuse:w maxinuse:w malloced:w maxmalloced:w hi_water:w lo_water:w hi_called:b water:w water_arg:w "
    "pools:l poolcnt:i mem_target:w freelists:w basic_blocks:w basic_table:w basic_table_count:i basic_table_size:i "
    "lowest:w highest:w",
}
"""By the first release that has it; ISC_MEM_TRACKLINES adds two words before the link. i: 4 bytes, w: a word, l: a list's two, b: a bool,
n: 16 letters, L: a mutex, R: uint_fast32_t."""
MANAGER = "magic:i references:R mctx:w lock:L tasks_count:R netmgr:w default_quantum:i tasks:l"
OF_MANAGER_AND_TASK = {
    "9.18": (
        MANAGER,
        "magic:i manager:w lock:L threadid:i state:i references:R running:R events:l on_shutdown:l nevents:i quantum:i now:i "
        "tnow:t name:n tag:w bound:b shuttingdown:b privileged:b link:l",
    ),
    "9.16.17": (
        MANAGER,
        "magic:i manager:w lock:L threadid:i state:i pause_cnt:i references:R running:R events:l on_shutdown:l nevents:i "
        "quantum:i now:i tnow:t name:n tag:w bound:b shuttingdown:b privileged:b link:l",
    ),
    "9.16": (
        "magic:i mctx:w lock:L halt_lock:L halt_cond:C workers:i tasks_running:R tasks_ready:R curq:R tasks_count:R queues:w "
        "nm:w default_quantum:i tasks:l",
        "magic:i manager:w lock:L state:i pause_cnt:i references:R events:l on_shutdown:l nevents:i quantum:i now:i tnow:t "
        "name:n tag:w threadid:i bound:b flags:R link:l",
    ),
}
SIZES = {"i": (4, 4), "w": (8, 8), "l": (16, 8), "b": (1, 1), "n": (16, 1), "t": (8, 4), "C": (48, 8), "S": (STATS_BUCKETS * 16, 8)}
FAST_BYTES = 8, 4
"""sizeof(uint_fast32_t) in C libraries, the usual one first."""
LINES = ("", " debuglist:w debuglistcnt:w")


@functools.cache
def of_contexts(mutex_bytes: Tuple[int, ...]) -> Sequence[Offsets]:
    """Return the layouts of isc_mem_t in all builds, the usual ones first."""
    texts = [text + lines + " link:l" for text in OF_CONTEXT.values() for lines in LINES]
    sizes = [(mutex, fast) for fast in FAST_BYTES for mutex in mutex_bytes]
    return [_compute_offsets(text, mutex, fast) for mutex, fast in sizes for text in texts]


@functools.cache
def of_managers(mutex_bytes: Tuple[int, ...]) -> Sequence[Tuple[Offsets, Offsets]]:
    """Return (manager, task) of all managers that builds may have."""
    pairs = OF_MANAGER_AND_TASK.values()
    sizes = [(mutex, fast) for fast in FAST_BYTES for mutex in mutex_bytes]
    return [(_compute_offsets(manager, *size), _compute_offsets(task, *size)) for size in sizes for manager, task in pairs]


def _compute_offsets(text: str, mutex_bytes: int, fast_bytes: int) -> Offsets:
    offsets, at = {}, 0
    for member in text.split():
        name, code = member.split(":")
        size, align = {**SIZES, "L": (mutex_bytes, 8), "R": (fast_bytes, fast_bytes)}[code]
        at = -(-at // align) * align
        offsets[name] = at
        at += size
    return {**offsets, "size": at}


CONTEXT, POOL, TASK, TASKS, LOOP, LOOPS = (magic_number(letters) for letters in ("MemC", "MEMp", "TASK", "TSKM", "LOOP", "LooM"))
MAGIC, LINK = struct.Struct("<I"), struct.Struct("<QQ")
NAME_BYTES = 16
LEAST_CONTEXTS = 2
"""A list of one closes at any two words that are 0."""
MOST_CONTEXTS, MOST_POOLS, MOST_TASKS, MOST_LOOPS = 4096, 2000, 5000, 1024
CONTEXT_OF_POOL = 8, 16
"""Of struct isc_mempool: mctx; 9.16.0 to 9.16.24 have a lock before it. From there on: link 8, size 32, freecount (its low half) 48."""
MOST_SIZES, MOST_REFERENCES, MOST_BYTES = 1 << 16, 1 << 32, 1 << 47
MOST_TRIED = 16
"""Lists and managers that only seem to be some."""
MOST_STATIC_BYTES = 4 << 20
"""Of an object's variables: named's and libisc's are a few KB."""
LOOPS_AT, LOOPMGR_BYTES, MOST_LOOP_BYTES = range(32, 512, 8), 520, 8192
"""Of struct isc_loopmgr (loop_p.h) `loops` follows barriers, whose size depends on the C library; the size of a loop, on libuv."""
MANAGER_OF_LOOP, HANDLES = 24, 40
"""Of struct isc_loop: loopmgr; active_handles of uv_loop_t (uv.h), which lies at 32."""


def find_bind_books(session: Session, used_bytes: int) -> Optional[Books]:
    """Return what BIND counts itself (see read_books()); None, without a read, if no object of the target is BIND's."""
    is_here = any(part in module.file_name for module in session.target.modules() for part in RECOGNISERS[0].objects)
    return read_books(CensusTarget(session), used_bytes) if is_here else None


def read_books(world: CensusTarget, used_bytes: int) -> Optional[Books]:
    """Return the books of a process; None if it has none, or of a release that is not read here."""
    if world.word_bytes != 8 or not world.little_endian:
        return None
    anchors = _Anchors(world)
    if world.session.budget.expired():
        return None
    contexts = _find_contexts(anchors)
    if contexts is None:
        return None
    ordered = sorted(contexts, key=lambda context: (-taken_bytes(context), context.name, context.address))
    total = sum(map(taken_bytes, contexts))
    return Books("BIND", ordered, [*_find_task_rows(anchors), *_find_loop_rows(anchors)], total, used_bytes)


class _Anchors:
    """The words of BIND's static variables that point to what was allocated."""

    def __init__(self, world: CensusTarget) -> None:
        self.world = world
        self._files = world.target.file_ranges()
        self._starts = [start for start, _ in self._files]
        self._magics: Dict[int, Optional[int]] = {}
        self.words: List[List[int]] = []
        """By segment; 0: no pointer."""
        for module in world.modules():
            if any(part in module.file_name for part in RECOGNISERS[0].objects):
                for start, _, end in world.target.writable_segments(module):
                    first = -(-start // 8) * 8
                    data = world.read(first, min(end - first, MOST_STATIC_BYTES))
                    words = _split_words(data)
                    self.words.append(
                        [word if 4096 <= word < MOST_BYTES and not word % 8 and self._is_anonymous(word) else 0 for word in words]
                    )

    def _is_anonymous(self, word: int) -> bool:
        place = bisect_right(self._starts, word) - 1
        return place < 0 or word >= self._files[place][1]

    def magic(self, address: int) -> Optional[int]:
        """Return the first four bytes at the address."""
        if address not in self._magics:
            data = self.world.read(address, 4)
            self._magics[address] = int.from_bytes(data, "little") if len(data) == 4 else None
        return self._magics[address]

    def pointers(self, magic: int) -> List[int]:
        return list(dict.fromkeys(word for words in self.words for word in words if word and self.magic(word) == magic))

    def lists(self, magic: int) -> Iterator[Tuple[int, int]]:
        """Yield head and tail of possible lists of such structures."""
        for words in self.words:
            for head, tail in zip(words, words[1:]):
                if head and tail and self.magic(head) == magic and self.magic(tail) == magic:
                    yield head, tail


def _split_words(data: bytes) -> Sequence[int]:
    return struct.unpack_from("<%dQ" % (len(data) // 8), data)


def _read_word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _walk_list(world: CensusTarget, ends: Tuple[int, int], layout: Offsets, magic: int, most: int) -> Optional[List[Tuple[int, bytes]]]:
    """Return (address, bytes) of each element, or None if the list does not close. A list longer than `most` is read up to that length."""
    (at, tail), before, size, link = ends, 0, layout["size"], layout["link"]
    seen: Dict[int, bytes] = {}
    while at:
        data = world.read(at, size)
        if len(data) < size or at in seen or MAGIC.unpack_from(data)[0] != magic:
            return None
        prev, following = LINK.unpack_from(data, link)
        if prev != before:
            return None
        seen[at] = data
        if len(seen) == most:
            break
        before, at = at, following
    return list(seen.items()) if at or before == tail else None


def _read_name(data: bytes, at: int) -> Optional[str]:
    text = data[at : at + NAME_BYTES]
    return text.split(b"\0")[0].decode("utf-8", "backslashreplace") if 0 in text else None


def _find_contexts(anchors: _Anchors) -> Optional[List[MemoryContext]]:
    # the list `contexts` of mem.c
    for ends in islice(anchors.lists(CONTEXT), MOST_TRIED):
        for layout in of_contexts(anchors.world.target.arch.mutex_bytes):
            walked = _walk_list(anchors.world, ends, layout, CONTEXT, MOST_CONTEXTS) if ends[0] != ends[1] else None
            if walked is None or len(walked) < LEAST_CONTEXTS:
                continue
            may_walk = sum(_read_word(data, layout["poolcnt"], 4) for _, data in walked) <= MOST_POOLS
            made = [_read_context(anchors.world, address, data, layout, may_walk) for address, data in walked]
            told = [context for context in made if context is not None]
            if len(told) == len(made) and any(context.name for context in told):
                return told
    return None


def _read_context(world: CensusTarget, address: int, data: bytes, layout: Offsets, may_walk: bool) -> Optional[MemoryContext]:
    name, references = _read_name(data, layout["name"]), _read_word(data, layout["references"], layout["name"] - layout["references"])
    inuse, hi_water = _read_word(data, layout["inuse"]), _read_word(data, layout["hi_water"])
    if name is None or not 0 < references < MOST_REFERENCES or inuse >= MOST_BYTES or hi_water < _read_word(data, layout["lo_water"]):
        return None
    malloced = _read_word(data, layout["malloced"]) if "malloced" in layout else None
    most = _read_word(data, layout["maxmalloced"]) if "maxmalloced" in layout else None
    if malloced is not None and malloced >= MOST_BYTES:
        return None
    blocks, pools, pooled = _count_blocks(world, data, layout, inuse), _read_word(data, layout["poolcnt"], 4), None
    if may_walk or not pools:
        pooled = _sum_pools(world, address, _read_word(data, layout["pools"]), _read_word(data, layout["pools"] + 8), pools)
    return MemoryContext(TargetAddress(address), name, inuse, malloced, most, hi_water, blocks, pools, references, pooled)


def _sum_pools(world: CensusTarget, context: int, head: int, tail: int, count: int) -> Optional[int]:
    if not count:
        return 0
    for at in CONTEXT_OF_POOL:
        pools = _walk_list(world, (head, tail), {"link": at + 8, "size": at + 52}, POOL, count + 1)
        if pools is not None and len(pools) == count and all(_read_word(pool, at) == context for _, pool in pools):
            pooled = sum(_read_word(pool, at + 32) * _read_word(pool, at + 48, 4) for _, pool in pools)
            return pooled if pooled < MOST_BYTES else None
    return None


def _count_blocks(world: CensusTarget, data: bytes, layout: Offsets, inuse_bytes: int) -> Optional[int]:
    # each size has its count: 9.18 in the context, 9.16 in a block of its own (struct stats: gets, totalgets, blocks, freefrags)
    if "stats" in layout:
        stats, step = data[layout["stats"] : layout["stats"] + STATS_BUCKETS * 16], 2
    elif "stats_at" in layout and not inuse_bytes:
        return 0
    elif "stats_at" in layout:
        count, step = _read_word(data, layout["max_size"]) + 1, 4
        stats = world.read(_read_word(data, layout["stats_at"]), count * 32) if count <= MOST_SIZES else b""
        if len(stats) < count * 32:
            return None
    else:
        return None
    blocks = sum(_split_words(stats)[::step])
    return blocks if blocks < MOST_BYTES else None


def _find_task_rows(anchors: _Anchors) -> List[QueueRow]:
    for manager in anchors.pointers(TASKS)[:MOST_TRIED]:
        for layout, of_task in of_managers(anchors.world.target.arch.mutex_bytes):
            data = anchors.world.read(manager, layout["size"])
            rows = _of_manager(anchors.world, manager, data, layout, of_task) if len(data) == layout["size"] else None
            if rows is not None:
                return rows
    return []


def _of_manager(world: CensusTarget, manager: int, data: bytes, layout: Offsets, of_task: Offsets) -> Optional[List[QueueRow]]:
    """Return the manager's tasks: the list has as many tasks as the manager counts, and each points back."""
    head, tail, count = _read_word(data, layout["tasks"]), _read_word(data, layout["tasks"] + 8), _read_word(data, layout["tasks_count"])
    if not 0 < count < MOST_REFERENCES or head % 8 or not head:
        return None
    walked = _walk_list(world, (head, tail), of_task, TASK, MOST_TASKS)
    if walked is None or (len(walked) < MOST_TASKS and len(walked) != count):
        return None
    sums: Dict[str, List[int]] = {}
    for _, task in walked:
        if _read_word(task, of_task["manager"]) != manager:
            return None
        row = sums.setdefault(_read_name(task, of_task["name"]) or "", [0, 0])
        row[0] += 1
        row[1] += _read_word(task, of_task["nevents"], 4)
    rows = sorted((QueueRow("task", name, *row) for name, row in sums.items()), key=lambda row: (-row.entries, row.name))
    return rows if count <= len(walked) else [*rows, QueueRow("task", "more, not looked at", count - len(walked), None)]


def _find_loop_rows(anchors: _Anchors) -> List[QueueRow]:
    # 9.20's loop manager has an array of loops, each with the number and a pointer back
    world = anchors.world
    for manager in anchors.pointers(LOOPS)[:MOST_TRIED]:
        data = world.read(manager, LOOPMGR_BYTES)
        count = _read_word(data, 16)
        if not 0 < count <= MOST_LOOPS:
            continue
        for at in LOOPS_AT:
            first = _read_word(data, at)
            rows = _of_loops(world, manager, first, count) if first and anchors.magic(first) == LOOP else None
            if rows is not None:
                return rows
    return []


def _of_loops(world: CensusTarget, manager: int, first: int, count: int) -> Optional[List[QueueRow]]:
    data = world.read(first, 2 * MOST_LOOP_BYTES)
    for step in range(HANDLES + 8, MOST_LOOP_BYTES, 8) if count > 1 else (0,):
        if _read_word(data, step, 4) == LOOP and _read_word(data, step + MANAGER_OF_LOOP) == manager:
            heads = [world.read(first + place * step, HANDLES + 4) for place in range(count)]
            if all(_read_word(head, 0, 4) == LOOP and _read_word(head, MANAGER_OF_LOOP) == manager for head in heads):
                return [QueueRow("loop", "loop %d" % place, _read_word(head, HANDLES, 4), None) for place, head in enumerate(heads)]
    return None
