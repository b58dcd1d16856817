"""Registry of recognisers, those of tables that compilers and the core write, and memory that runtimes cut up themselves."""

import functools
from bisect import bisect_right
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import cplusplus, rust
from gdbheapx.analysis.census.images import Images, list_constant_ranges
from gdbheapx.analysis.census.world import PLACE, SHAPE, Ask, CensusTarget, Inner, Recogniser, Signature
from gdbheapx.analysis.memory import attribute
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.common import addon_loader, problems
from gdbheapx.common.model import TargetAddress
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks.signatures import ALL, AT_LEAST, AT_MOST, IN_RANGES, Condition, NumberSet, SignatureRow, Signed, split_sized_key

LEAST_MAGIC_BYTES = 40
"""A text of four letters lies in a smaller block."""
LEAST_MAGIC_BLOCKS = 4
MAGIC_SLACK_BYTES = 32
MOST_MAGIC_WORDS = 32
"""In which a pointer is looked for."""
MAGIC_ORDER = 200
"""After rows of pointers to constants, whose lower half may be four letters: a block of those that is no magic in the end had no name."""


class Magic(Recogniser):
    """Structures of C programs that begin with four letters (BIND: ISC_MAGIC('T', 'a', 's', 'k'); SQLite, PostgreSQL and others)."""

    def is_here(self, world: CensusTarget) -> bool:
        """Return True: any C program may have them."""
        return True

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the row of magic numbers: four bytes that are letters, digits or signs, and four that are none, so that no text
        continues.
        """
        letters = [condition for at in range(4) for condition in (Condition(at, 1, AT_LEAST, 0x21), Condition(at, 1, AT_MOST, 0x7E))]
        row = SignatureRow([Condition(4, 4, AT_MOST, 0xFFFF), *letters], least_usable=LEAST_MAGIC_BYTES, key=(0, 4, 0xFFFFFFFF))
        accepts = functools.partial(self._is_accepted, world)
        yield Ask(row, self._name_magic, accepts=accepts, order=MAGIC_ORDER, least_blocks=LEAST_MAGIC_BLOCKS)

    def _is_accepted(self, world: CensusTarget, signed: Signed) -> bool:
        if signed.most_bytes - signed.least_bytes > MAGIC_SLACK_BYTES:
            return False
        words = world.words(signed.sample, min(MOST_MAGIC_WORDS, signed.least_bytes // world.word_bytes))
        images = world.once(Images)
        if words is None or images.mapping_at(words[0]) is not None:
            return False
        return any(images.mapping_at(word) is not None for word in words[1:])

    def _name_magic(self, key: int) -> Optional[Signature]:
        return Signature("magic '%s'" % key.to_bytes(4, "big").decode("ascii"), "", SHAPE)


def find_leading_to_all(session: Session) -> Optional[str]:
    """Return the name of a runtime in the target whose arenas lead to all of its objects; None without one, and of a snapshot."""
    if not session.target.has_memory:
        return None
    world = CensusTarget.of(session)
    leading = (recogniser for recogniser in list_recognisers() if recogniser.leads_to_all and recogniser.is_here(world))
    return next((recogniser.table.name for recogniser in leading if recogniser.table is not None), None)


FIRST_WORD, WORDS = 1, 8
"""Of a block: from FIRST_WORD to before WORDS."""
LEAST_BLOCKS, LEAST_SHARE = 4, 0.9
"""Of one size, that share a table; and of all blocks that do."""
OF_MALLOC = ("libc.so", "libc-", "ld-linux", "ld-", "linux-vdso", "[vdso]")
"""Objects that malloc itself leaves pointers to, in memory that was free before."""


def find_constant_ranges(world: CensusTarget) -> List[Tuple[int, int]]:
    """Return the ranges of constants of all objects except the C library, the dynamic linker and the vDSO."""
    images = world.once(Images)
    spans = ((part, images.span_at(part[0])) for part in list_constant_ranges(world, images))
    return [part for part, span in spans if span is not None and not span[2].file_name.startswith(OF_MALLOC)]


class ConstantTables(Recogniser):
    """Blocks of one size with the same constant at the same place."""

    def is_here(self, world: CensusTarget) -> bool:
        """Return True for programs of this word size without C++ and Rust: any C program may have them."""
        return world.word_bytes == 8 and not cplusplus.has_cpp(world) and not rust.has_rust(world)

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        constants = world.constant(find_constant_ranges)
        names = functools.lru_cache(None)(functools.partial(_list_constants, world))
        for number in range(FIRST_WORD, WORDS) if constants else ():
            table = ConstantTable(world, names, 8 * number)
            row = SignatureRow([Condition(8 * number, 8, IN_RANGES, 0)], 8 * number + 8, key=(8 * number, 8, ALL), sized=True)
            yield Ask(row, table.name, [NumberSet(ranges=constants)], 90 + number, table.settle, least_blocks=LEAST_BLOCKS)


def _list_constants(world: CensusTarget, module: Module) -> List[Tuple[int, int, str]]:
    """Return (address, size, name) of the constants and variables of an object, sorted."""
    rows = [(module.base + value, size, name) for name, value, size, is_local in world.target.variables(module) if size and not is_local]
    return sorted(rows)


class ConstantTable:
    """Constants that blocks have at one offset."""

    def __init__(self, world: CensusTarget, names: Callable[[Module], List[Tuple[int, int, str]]], offset: int) -> None:
        self._world, self._names, self._offset = world, names, offset
        self._images = world.once(Images)
        self._told: Dict[int, Signature] = {}

    def settle(self, matches: Sequence[Signed]) -> None:
        """Name constants that many blocks of one size share, and hardly any of another; a text is none."""
        for number, sizes in cplusplus.by_number(matches).items():
            usual, span = max(sizes.values()), self._images.span_at(number)
            if span is None or number % 8 or usual < LEAST_BLOCKS or usual < LEAST_SHARE * sum(sizes.values()) or self._world.text(number):
                continue
            names, module = self._names(span[2]), span[2].shown_name
            place = bisect_right(names, (number, 1 << 64, "")) - 1
            start, size, name = names[place] if place >= 0 else (0, 0, "")
            what = "%s+0x%x" % (module, number - span[0])
            if start <= number < start + size:
                what = "%s%s in %s" % (name, "+0x%x" % (number - start) if number > start else "", module)
            self._told[number] = Signature("points at %s (+0x%x)" % (what, self._offset), module, PLACE)

    def name(self, key: int) -> Optional[Signature]:
        return self._told.get(split_sized_key(key)[0])


OF_CORE: Sequence[Recogniser] = (*cplusplus.RECOGNISERS, *rust.RECOGNISERS, Magic(), ConstantTables())


@functools.cache
def list_recognisers() -> Sequence[Recogniser]:
    """Return all; where two rows of one order fit a block, the earlier one counts."""
    addon = addon_loader.find_capability("recognisers")
    return (*(addon.RECOGNISERS if addon is not None else ()), *OF_CORE)


def find_cutting(world: CensusTarget) -> List[Recogniser]:
    """Return those in this process that cut memory up themselves."""
    return [recogniser for recogniser in list_recognisers() if type(recogniser).inner is not Recogniser.inner and recogniser.is_here(world)]


def find_naming(world: CensusTarget) -> List[Recogniser]:
    """Return those in this process that cut memory up themselves, or give their objects paths."""
    named = [recogniser for recogniser in list_recognisers() if type(recogniser).namer is not Recogniser.namer]
    cutting = [recogniser for recogniser in find_cutting(world) if recogniser not in named]
    return [*cutting, *(recogniser for recogniser in named if recogniser.is_here(world))]


def find_present(world: CensusTarget) -> List[Recogniser]:
    """Return those of which the process has something."""
    return [recogniser for recogniser in list_recognisers() if recogniser.is_here(world)]


def has_typed_objects(module: str) -> bool:
    """Return whether objects of this recogniser's module lead to a type that has the function that allocates them."""
    return any(recogniser.module == module and recogniser.object_heads for recogniser in list_recognisers())


def object_heads() -> Sequence[int]:
    """Return how many bytes may be before an object that has a type."""
    return next((recogniser.object_heads for recogniser in list_recognisers() if recogniser.object_heads), (0,))


def allocator_in_type() -> int:
    """Return the offset in a type of the function that allocates its objects."""
    return next((recogniser.allocator_in_type for recogniser in list_recognisers() if recogniser.object_heads), 0)


def shown_name(module: str) -> str:
    """Return what tables call a recogniser's module: `CPython` for `python`."""
    return next((one.table.name for one in list_recognisers() if one.module == module and one.table is not None), module)


def report_missing(session: Session) -> None:
    """Say which runtimes of this process are not looked into, because the add-on for them is not installed."""
    present = () if addon_loader.has_capability("recognisers") else attribute.find_present_runtimes(session.target)
    if present:
        names = " and ".join(dict.fromkeys(runtime.name for runtime in present))
        what = "objects of %s have no names here: they are read by the add-on runtimes, which is not installed" % names
        session.problem(problems.RUNTIME_UNREAD, None, what, addon_loader.hint_to_install("runtimes"), partial=False)


UNIT_BYTES = 16


class RuntimePiece(NamedTuple):
    """Block of a runtime's own memory."""

    module: str
    name: str
    """What it calls such blocks."""
    address: Optional[TargetAddress]
    """Of the block; None where it has handed none out there."""
    offset: Optional[int]
    """Of the address that was asked for."""
    usable_bytes: Optional[int]


def find_runtime_memory(session: Session) -> List[Inner]:
    """Return memory that runtimes manage themselves. Memory is read: the process must be stopped."""
    world = CensusTarget.of(session)
    memories: List[Inner] = []
    for recogniser in find_cutting(world):
        list(recogniser.asks(world))  # which finds its types and its memory
        memories += recogniser.inner(world)
    return memories


def find_further(session: Session, garbage: bool = True) -> heap_graph.RuntimePools:
    """Return memory of runtimes for a graph, or nothing if the graph exists. `garbage`: with memory of collectors, whose unreached blocks
    are no leak."""
    if session.shared(heap_graph.REACH) is not None:
        return heap_graph.NO_POOLS
    return combine_memory([memory for memory in find_runtime_memory(session) if garbage or not memory.is_collected])


def combine_memory(memories: Sequence[Inner]) -> heap_graph.RuntimePools:
    """Return memory of runtimes for a graph: malloc's blocks that a runtime cut are left out, their pieces come instead."""
    unit = min((memory.unit_bytes for memory in memories), default=UNIT_BYTES)
    gone = sorted(address for memory in memories for address in memory.instead)
    taken = [part for memory in memories if memory.is_told_apart for part in memory.taken]
    managed = [memory.managed for memory in memories if memory.managed is not None]
    return heap_graph.RuntimePools([memory.blocks for memory in memories], taken, unit, gone, managed)


def find_piece_at(session: Session, address: int) -> Optional[RuntimePiece]:
    """Return the runtime's block at an address, or None outside of such memory."""
    for memory in find_runtime_memory(session):
        if not any(start <= address < end for start, end in memory.taken):
            continue
        for blocks in memory.blocks:
            place = bisect_right(blocks.addresses, address) - 1
            start, usable = (blocks.addresses[place], blocks.usable_bytes[place]) if place >= 0 else (0, 0)
            if start <= address < start + usable:
                return RuntimePiece(memory.module, memory.name, TargetAddress(start), address - start, usable)
            if len(blocks.addresses) and blocks.addresses[0] > address:
                break
        return RuntimePiece(memory.module, memory.name, None, None, None)
    return None
