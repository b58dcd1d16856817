"""Detection of musl mallocs in the target: the context of mallocng, found by its secret (src/malloc/mallocng/meta.h, struct
malloc_context). Every area of metas begins with the random word that the context begins with, and the context points to the first area.
Nothing else has this form, so no symbol is needed.
"""

from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.gates import GATES, MUSL_LIBRARY, MUSL_STATIC, REPLACING
from gdbheapx.addons.allocators.musl.records import AREA_BYTES, MUSL_CLASSES, MuslLayout
from gdbheapx.allocators.fingerprints import match_fingerprints
from gdbheapx.allocators.records import Instances, NotRead
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.inferior.base import Module, Target

CONTEXT = "__malloc_context"
BUMP = "__simple_malloc"
"""src/malloc/lite_malloc.c: in static programs that never free."""
FIRST_RELEASE = (1, 2, 1)
"""That has mallocng."""
PIECE_BYTES = 1 << 20
MOST_BYTES = 256 << 20
"""Of an object's writable data that is searched."""
OLD_MALLOC = "its malloc is the one of musl up to 1.2.0, which keeps no list of its memory"
OLD_HINT = "update musl to 1.2.1 or later (Alpine 3.13), or use the allocator's statistics of the program"
BUMP_HINT = "all memory that it has allocated is in use; report shows how much that is"


class ContextOffsets(NamedTuple):
    """Offsets of the members of a context."""

    init_done: int
    first_area: int
    usage: int


class Musl(NamedTuple):
    """A mallocng in the target; its fields are constant."""

    id: str
    module: Module
    context: int
    """Address of __malloc_context."""
    offsets: ContextOffsets
    secret: int
    version: Optional[str]
    """Of the shared libc; a static program has none to read."""
    owns_malloc: Optional[bool]
    unlisted: Optional[str] = None

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        name, build_id = self.module.file_name, self.module.build_id
        return AllocatorInfo(self.id, "musl", self.version, name, build_id, "table", "probe", self.owns_malloc)

    def layout(self, target: Target) -> MuslLayout:
        """Describe it for the native walk, with the list of areas as it is now."""
        memory = sum(mapping.size_bytes for mapping in target.mappings())
        return MuslLayout(
            word_bytes=target.word_bytes,
            little_endian=target.little_endian,
            secret=self.secret,
            first_area=read_first_area(target, self.context, self.offsets) or 0,
            most_areas=memory // AREA_BYTES + 1,
            page_bytes=max(target.page_bytes, AREA_BYTES),
        )


def find_offsets(word_bytes: int, has_page_size: bool) -> ContextOffsets:
    """Return the offsets of a context's members. Where the page size is no constant of the machine, a member has it, and later members
    move.
    """
    more = word_bytes if has_page_size else 0
    active = 8 + more + 8 + 8 * word_bytes  # init_done, mmap_counter; free_meta_head to avail_meta_areas
    return ContextOffsets(8 + more, 16 + more + 5 * word_bytes, active + MUSL_CLASSES * word_bytes)


def read_first_area(target: Target, context: int, where: ContextOffsets) -> Optional[int]:
    """The first area of metas; None if it cannot be read."""
    data = target.read_prefix(context + where.first_area, target.word_bytes)
    return int.from_bytes(data, target.byte_order) if len(data) == target.word_bytes else None


def prove_context(target: Target, context: int, where: ContextOffsets) -> Optional[int]:
    """The secret, if a context in use begins here."""
    head = target.read_prefix(context, where.init_done + 4)
    area = read_first_area(target, context, where)
    if len(head) < where.init_done + 4 or not area or area % AREA_BYTES:
        return None
    mapping = next((mapping for mapping in target.mappings() if mapping.start <= area < mapping.end), None)
    # anonymous memory that the process has touched: to read any other page would bring one of a file in
    if mapping is None or not mapping.writable or mapping.is_file:
        return None
    if target.kind != "remote" and not target.touched_ranges(area, area + AREA_BYTES):
        return None
    secret, is_done = int.from_bytes(head[:8], target.byte_order), int.from_bytes(head[-4:], target.byte_order)
    word = target.word_bytes
    meta_bytes, first = 4 * word + 8, 8 + 2 * word
    data = target.read_prefix(area, first)
    slots = int.from_bytes(data[8 + word : 12 + word], target.byte_order)
    is_area = len(data) == first and int.from_bytes(data[:8], target.byte_order) == secret
    return secret if secret and is_done == 1 and is_area and slots == (AREA_BYTES - first) // meta_bytes else None


def find_musls(target: Target) -> Instances:
    """Every copy, and those that are there and cannot be read."""
    located: List[Musl] = []
    unread: List[NotRead] = []
    unused: List[NotRead] = []
    files, modules = GATES["gdbheapx.addons.allocators.musl.entry"].files, target.modules()
    is_static = len(modules) == 1 and modules[0].is_executable
    for module in modules:
        if not is_static and not files.match(module.file_name):
            continue
        found = next(_find_contexts(target, module, is_static), None)
        if found is not None:
            ident = "musl" if not located else "musl#%d" % (len(located) + 1)
            version = None if is_static else read_musl_release(target, module)
            owner = target.dynamic_symbol("malloc")
            owns_malloc = owner.module == module if owner is not None else None
            if owner is None and module.is_executable and target.knows_objects():
                owns_malloc = True
            located.append(Musl(ident, module, *found, version, owns_malloc))
        else:
            _explain_missing(target, module, is_static, unread, unused)
    return Instances(located, unread, unused=unused)


def read_musl_release(target: Target, module: Module) -> Optional[str]:
    """The release of a shared libc, by its text."""
    match = next(iter(match_fingerprints(target, module, (MUSL_LIBRARY,))), None)
    return match.version if match is not None else None


def _explain_missing(target: Target, module: Module, is_static: bool, unread: List[NotRead], unused: List[NotRead]) -> None:
    """Describe an object that has no context in use; a static program of another libc is ignored."""
    name = module.file_name
    never = NotRead(module, "musl's malloc in %s was never used" % name, "look again once the program has allocated memory")
    if is_static:
        if target.module_symbol(module, CONTEXT) is not None:
            unused.append(never)
        elif target.module_symbol(module, BUMP) is not None:
            what = "%s contains musl's bump allocator, which never frees and keeps no list of blocks" % name
            unread.append(NotRead(module, what, BUMP_HINT))
        elif match_fingerprints(target, module, (MUSL_STATIC,)):
            for other in match_fingerprints(target, module, REPLACING)[:1]:
                what = "musl in %s has its malloc replaced by %s's, and its own was never used" % (name, other.known.name)
                unused.append(NotRead(module, what, "%s has the program's blocks" % other.known.name))
                return
            what = "%s contains musl, and its malloc was not used yet, or is the bump allocator, which never frees" % name
            unread.append(NotRead(module, what, BUMP_HINT))
        return
    version = read_musl_release(target, module)
    if version is None:
        return
    if tuple(int(part) for part in version.split(".")) < FIRST_RELEASE:
        unread.append(NotRead(module, "musl %s in %s cannot be read: %s" % (version, name, OLD_MALLOC), OLD_HINT))
    else:
        unused.append(never)


def _find_contexts(target: Target, module: Module, is_static: bool) -> Iterator[Tuple[int, ContextOffsets, int]]:
    """Address, members and secret of each context in an object's writable data."""
    symbol = target.module_symbol(module, CONTEXT) if is_static else None
    both = [find_offsets(target.word_bytes, has_page_size) for has_page_size in (False, True)]
    address = symbol.address if symbol is not None else 0
    for where in both if address else ():
        secret = prove_context(target, address, where)
        if secret is not None:
            yield address, where, secret
            return
    left = MOST_BYTES
    for start, _, end in target.writable_segments(module):
        for first, last in target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]:
            for at in range(first, min(last, first + left), PIECE_BYTES):
                data = target.read_prefix(at, min(PIECE_BYTES, last - at))
                yield from _search_piece(target, at, data, both)
            left -= min(left, last - first)


def _search_piece(target: Target, start: int, data: bytes, both: Sequence[ContextOffsets]) -> Iterator[Tuple[int, ContextOffsets, int]]:
    done, word = (1).to_bytes(4, target.byte_order), target.word_bytes
    place = data.find(done)
    while place >= 0:
        for where in both:
            context = start + place - where.init_done
            at = place - where.init_done + where.first_area
            area = data[at : at + word]  # a multiple of its size, as far as the piece has it
            number = int.from_bytes(area, target.byte_order)
            may_be = len(area) < word or (number != 0 and number % AREA_BYTES == 0)
            secret = prove_context(target, context, where) if may_be and (start + place) % 4 == 0 and context % word == 0 else None
            if secret is not None:
                yield context, where, secret
        place = data.find(done, place + 1)
