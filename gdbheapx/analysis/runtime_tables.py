"""Tables of a runtime's process in which every byte of RSS, or of the core, stands once: RSS minus what the runtime counts itself = what?

The split says what each owner has in RAM. What the census says of blocks is in use, which need not be in RAM: of blocks so large that whole
pages lie in them the difference is a line of its own, below 0, and what is left of malloc's memory is what it keeps.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.find import CensusLook
from gdbheapx.analysis.census.world import Inner, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.kinds import MemoryOwner
from gdbheapx.analysis.split import Split, count_taken
from gdbheapx.model import GUESS, MemoryPart
from gdbheapx.ranges import Range

USED, FREE, OVERHEAD, ABSENT = "runtime-used", "runtime-free", "runtime-overhead", "not-in-ram"
OWNED, OTHER, KEPT, REMAINDER = "malloc-owned", "malloc-other", "malloc-free", "remainder"
UNNAMED = (kinds.ANONYMOUS, kinds.BRK)


class RuntimeRow(NamedTuple):
    """Row of a runtime's table."""

    kind: str
    """`runtime-used`, `runtime-free`, `runtime-overhead` (what the runtime cut up itself), `malloc-owned` (blocks that its objects are or
    own, or that have its header), `malloc-other`, `malloc-free` (what the allocator keeps), `not-in-ram` (below 0: part of the lines above
    it), `remainder`; else the kind of a part of the split."""
    name: str
    bytes: int


class RuntimeTable(NamedTuple):
    """The whole memory of the process, by what one runtime in it has."""

    name: str
    """`CPython`, `JVM`, `V8`, `PostgreSQL`, `Perl`, `Ruby`, `PHP`."""
    rows: Sequence[RuntimeRow]
    sum_bytes: int
    """Of all rows: memory.total_bytes."""
    remainder_bytes: int
    """Anonymous memory of which nothing tells what it is: one of the rows."""


class Watch:
    """Reader of data that is only available while the process is stopped, with the census: it is called when all is read."""

    def __init__(self, split: Split, page_bytes: int) -> None:
        self._split, self._page = split, page_bytes
        self.pools: Dict[str, Dict[MemoryOwner, int]] = {}
        """By module: what of its pieces is in RAM, by whose it is in the split."""
        self.absent_bytes = 0
        """Of large blocks in use."""

    def __call__(self, inner: Sequence[Inner], large: Sequence[Tuple[int, int]]) -> None:
        """`large`: (address, size) of blocks in use that are large."""
        for module in {memory.module for memory in inner}:
            self.pools[module] = self._split.held([part for memory in inner if memory.module == module for part in memory.taken])
        whole: List[Range] = []
        for address, size in large:
            start, end = -(-address // self._page) * self._page, (address + size) & -self._page
            if start < end:
                whole.append((start, end))
        held_bytes = self._split.in_ram(whole)
        if held_bytes is not None:
            self.absent_bytes = max(0, sum(end - start for start, end in whole) - held_bytes)


def make_runtime_tables(recognisers: Sequence[Recogniser], split: Split, looked: CensusLook, watch: Watch) -> List[RuntimeTable]:
    """Make one table for each recogniser."""
    return [_make_table(recogniser, split, looked, watch) for recogniser in recognisers]


def _make_table(recogniser: Recogniser, split: Split, looked: CensusLook, watch: Watch) -> RuntimeTable:
    module, words, live = recogniser.module, recogniser.table, split.memory.measure == "resident"
    assert words is not None
    held = watch.pools.get(module, {})
    absent = "not in RAM" if live else "not in the core (never touched, or zeros)"
    pools = _make_pool_rows(module, words, looked, sum(held.values()), absent)
    allocators = {part.name: count_taken(part) for part in split.parts if part.kind == kinds.ALLOCATOR}
    for owner, size in held.items():
        if owner.kind == kinds.ALLOCATOR:
            allocators[owner.name] -= size
    malloc = _make_malloc_rows(recogniser, words, looked.outside, sum(allocators.values()), watch.absent_bytes, absent)
    own: List[RuntimeRow] = []
    others: List[RuntimeRow] = []
    remainder, guesses = 0, []
    for part in split.parts:
        size = count_taken(part) - sum(size for owner, size in held.items() if (owner.kind, owner.name) == (part.kind, part.name))
        if part.kind == kinds.ALLOCATOR or not count_taken(part):
            continue
        if part.kind in UNNAMED or part.sure == GUESS or (_is_own(part, words) and _has_pieces(part, held)):
            remainder += size
            guesses += [part.name] if part.sure == GUESS else []
        else:
            (own if part.program == words.name else others).append(RuntimeRow(part.kind, part.name, size))
    may_be = ", maybe %s" % ", ".join(guesses) if guesses else ""
    rows = [*pools, *own, *malloc, *others]
    rows.append(RuntimeRow(REMAINDER, "remainder: anonymous memory that nothing names%s" % may_be, remainder))
    return RuntimeTable(words.name, rows, sum(row.bytes for row in rows), remainder)


def _is_own(part: MemoryPart, words: RuntimeLabels) -> bool:
    """Mappings of its pieces, of which the pieces themselves were told."""
    return part.kind == kinds.RUNTIME and part.program == words.name


def _has_pieces(part: MemoryPart, held: Dict[MemoryOwner, int]) -> bool:
    return any((owner.kind, owner.name) == (part.kind, part.name) for owner in held)


def _make_pool_rows(module: str, words: RuntimeLabels, looked: CensusLook, held_bytes: int, absent: str) -> List[RuntimeRow]:
    """Make the rows for the memory that the runtime cut up itself."""
    managed = [memory for memory in looked.census.managed if memory.module == module]
    if not managed:
        return []
    rows = [
        RuntimeRow(USED, "%s: blocks in use" % words.pools, sum(memory.used_bytes for memory in managed)),
        RuntimeRow(FREE, "%s: free blocks and pools" % words.pools, sum(memory.free_bytes for memory in managed)),
        RuntimeRow(OVERHEAD, "%s: headers, and rest of pools" % words.pools, sum(memory.overhead_bytes for memory in managed)),
    ]
    missing = sum(memory.taken_bytes for memory in managed) - held_bytes
    return [*rows, RuntimeRow(ABSENT, "%s: of the above, %s" % (words.pools, absent), -missing)] if missing else rows


def _make_malloc_rows(
    recogniser: Recogniser, words: RuntimeLabels, outside: Dict[Optional[Signature], int], held_bytes: int, absent_bytes: int, absent: str
) -> List[RuntimeRow]:
    """Make the rows for the allocators' memory: the blocks by owner, and the rest by difference."""
    own: Dict[str, int] = {}
    libraries = registry.lines_of_libraries()
    for signature, size in outside.items():
        line = libraries.get(signature.module) or recogniser.line_in_tables(signature) if signature is not None and size else None
        if line is not None:
            own[line] = own.get(line, 0) + size
    rows = [RuntimeRow(OWNED, name, size) for name, size in sorted(own.items(), key=lambda pair: -pair[1])]
    used = sum(outside.values())
    rows.append(RuntimeRow(OTHER, words.other if own.keys() - set(libraries.values()) else words.none, used - sum(own.values())))
    kept = held_bytes - used + absent_bytes
    rows.append(RuntimeRow(KEPT, "malloc: free and overhead", max(0, kept)))
    missing = absent_bytes - min(0, kept)
    return [*rows, RuntimeRow(ABSENT, "malloc: of the blocks above, %s" % absent, -missing)] if missing else rows
