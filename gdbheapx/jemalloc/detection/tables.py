"""jemalloc's structs by release, quantum, page and mutex, as data: for builds that bring no layout of their own. Which of them fits, memory
tells."""

import functools
import json
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Member, StructType, TypeSet
from gdbheapx.jemalloc.detection.layouts import Version
from gdbheapx.layout import pack

FILE = "jemalloc.structs"
BASES = ("base", "pa_shard.base", "pa_shard.edata_cache.base", "pa_shard.pac.base")
"""Members of arena_s that point to the arena's own base."""
BASES_WITH_HPA = ("pa_shard.hpa_shard.base", "pa_shard.hpa.base")
"""Others that do where opt.hpa is on."""
PAGE_BYTES = 4096
"""The usual page of jemalloc, which what can be told of a page is reckoned from."""
NBINS = {16: 36, 8: 39}
"""SC_NBINS by quantum, with pages of that size: small classes end below four pages, and there are four to a doubling (sc.h)."""
NSIZES = {16: 232, 8: 235}
"""SC_NSIZES by quantum; size classes end below 8 EiB."""


class Table(NamedTuple):
    """The structs of one kind of build."""

    name: str
    """Such as `5.3.1 neither`: built with neither profiling nor statistics."""
    version: Version
    nbins: int
    types: TypeSet
    page_bytes: int = PAGE_BYTES
    """PAGE."""
    mutex_bytes: int = 40
    """sizeof(pthread_mutex_t), which the machine and its C library tell."""

    @property
    def quantum_bytes(self) -> int:
        """QUANTUM."""
        return quantum_of(self.nbins, self.page_bytes) or 0

    @property
    def arena_bytes(self) -> int:
        """sizeof(arena_s)."""
        return self.types.size_bytes("arena_s")

    @property
    def tsd_bytes(self) -> int:
        """sizeof(tsd_s)."""
        return self.types.size_bytes("tsd_s")

    def fits(self, places: Sequence[int]) -> bool:
        """An arena whose base pointer stands at these places has this layout."""
        own = {place for place in places if place < self.arena_bytes}
        needed, allowed = _offsets(self.types, BASES), _offsets(self.types, BASES_WITH_HPA)
        return needed <= own <= needed | allowed


def _offsets(types: TypeSet, paths: Sequence[str]) -> "set[int]":
    return {place.offset for place in (types.place("arena_s", path) for path in paths) if place is not None}


@functools.cache
def every() -> Sequence[Table]:
    """All tables, in the order of releases."""
    tree = json.loads(pack.shipped_text(FILE))
    names: List[str] = list(tree["releases"])
    structs: List[Dict[str, StructType]] = [{} for _ in names]
    for struct, variants in tree["structs"].items():
        for users, (size_bytes, members) in variants:
            made = StructType(size_bytes, {name: Member(*place) for name, place in members.items()})
            for number in users:
                structs[number][struct] = made
    rows: List[Dict[str, Any]] = list(tree["releases"].values())
    return [
        Table(name, _version(row["version"]), row["bins"], TypeSet(own), row["page"], row["mutex"])
        for name, row, own in zip(names, rows, structs)
    ]


def of(page_bytes: int, mutex_bytes: Sequence[int]) -> Sequence[Table]:
    """Those of builds with this page, of machines with one of these mutexes."""
    return [table for table in every() if table.page_bytes == page_bytes and table.mutex_bytes in mutex_bytes]


def _version(parts: Sequence[int]) -> Version:
    return parts[0], parts[1], parts[2]


def with_variables(table: Table) -> TypeSet:
    """The types with the enums and variables of a shipped pack of that release: for builds whose symbol table has the variables."""
    types = TypeSet(dict(table.types.structs))
    release = "%d.%d.%d-" % table.version
    for shipped in pack.shipped():
        if shipped.allocator == "jemalloc" and (shipped.version_text or "").startswith(release):
            types.update(TypeSet({}, shipped.types.enums, shipped.types.variables))
            break
    return types


@functools.cache
def size_classes(quantum_bytes: int) -> Tuple[int, ...]:
    """sz_index2size_tab: 8, multiples of the quantum up to 64 or 128, then four steps per doubling (sc.c)."""
    sizes = [8, *range(quantum_bytes, 4 * quantum_bytes + 1, quantum_bytes)] if quantum_bytes > 8 else [8, 16, 24, 32]
    step = sizes[-1] // 4
    while len(sizes) < NSIZES[quantum_bytes]:
        sizes += [sizes[-1] + step * number for number in (1, 2, 3, 4)]
        step *= 2
    return tuple(sizes[: NSIZES[quantum_bytes]])


def quantum_of(nbins: int, page_bytes: int) -> Optional[int]:
    """QUANTUM of a build with that many bins; None where no build has them."""
    more = 4 * (page_bytes.bit_length() - PAGE_BYTES.bit_length())
    return next((quantum for quantum, least in NBINS.items() if least + more == nbins), None)


def page_classes(sizes: Sequence[int], page_bytes: int) -> Tuple[int, ...]:
    """sz_pind2sz_tab without the entry behind its end: classes that are whole pages."""
    return tuple(size for size in sizes if size % page_bytes == 0)


def slab_bytes(size: int, page_bytes: int) -> int:
    """A slab is as many pages as hold a whole number of regions (bin_info.c, before it bin.c and arena.c)."""
    slab = page_bytes
    while slab % size:
        slab += page_bytes
    return slab
