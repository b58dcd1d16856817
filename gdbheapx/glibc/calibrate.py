"""Whether a layout fits the bytes: every rule that malloc itself keeps must hold where no version can be read, enough of them for a
pack."""

from typing import List, Optional, Sequence, Set, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import layouts
from gdbheapx.inferior.base import Symbol, Target
from gdbheapx.inferior.types import TypeSet
from gdbheapx.layout.struct import Shape, place
from gdbheapx.layout.view import View, read_view

MAX_RING = 65536
MOST_WRONG_BINS = 12
"""Of 127, in a main_arena that is one: with another build's layout hardly any holds."""
MAX_TCACHE_COUNT = 65535


def fitting_version(target: Target, arena: Symbol, mp: Symbol, shape: Shape, tcaches: Sequence[int]) -> Optional[Tuple[int, int]]:
    """The newest release whose malloc_state, malloc_par and tcache_perthread_struct all fit; None if none does.

    `tcaches`: addresses of tcache_perthread_structs, if any are known: the size of their chunks tells 2.42 from 2.41 and so on.
    """
    for version in layouts.ROWS:
        rows = (layouts.MALLOC_STATE, layouts.MALLOC_PAR, layouts.TCACHE)
        if _fits(target, TypeSet({one.name: place(one, version, shape) for one in rows}), arena, mp, shape, tcaches):
            return version
    return None


def _fits(target: Target, types: TypeSet, arena: Symbol, mp: Symbol, shape: Shape, tcaches: Sequence[int]) -> bool:
    """Every rule holds where these types are laid over memory."""
    try:
        state = read_view(target, types, layouts.MALLOC_STATE.name, arena.address)
        par = read_view(target, types, layouts.MALLOC_PAR.name, mp.address)
        return _state_fits(target, state, shape) and _par_fits(target, par, state) and _tcache_fits(target, types, shape, tcaches)
    except Unreadable:
        return False


def contradiction(target: Target, types: TypeSet, arena: Symbol, mp: Symbol) -> Optional[str]:
    """What in memory says that types and addresses are those of another build; None if nothing does.

    Not as strict as fitting_version: where the heap is damaged, or its process runs meanwhile, some bins do not hold.
    """
    try:
        state = read_view(target, types, layouts.MALLOC_STATE.name, arena.address)
        par = read_view(target, types, layouts.MALLOC_PAR.name, mp.address)
    except Unreadable as problem:
        return problem.message
    is_one = state["mutex"] in (0, 1, 2) and not state["flags"] & ~7 and state["system_mem"] <= state["max_system_mem"]
    if not is_one or not state["next"]:  # of a program that never called malloc, `next` is all that is not 0
        return "there is no malloc_state at 0x%x" % arena.address
    wrong = _bins_that_do_not_fit(target, state, target.word_bytes)
    if wrong > MOST_WRONG_BINS or (wrong and not any(state.array("bins"))):
        return "%d bins of main_arena at 0x%x do not lead back to it" % (wrong, arena.address)
    settings = [par.get(name) for name in ("trim_threshold", "mmap_threshold", "n_mmaps_max", "arena_test")]
    is_main_used = state["system_mem"] != 0 and not state["flags"] & 2
    if not any(settings) or par["n_mmaps"] < 0 or (par["n_mmaps"] == 0) != (par["mmapped_mem"] == 0):
        return "there is no malloc_par at 0x%x" % mp.address
    if is_main_used and not par["sbrk_base"] <= state["top"] <= par["sbrk_base"] + state["system_mem"]:
        return "main_arena at 0x%x and mp_ at 0x%x do not belong together" % (arena.address, mp.address)
    return None


def _state_fits(target: Target, state: View, shape: Shape) -> bool:
    """Bins point to themselves or are linked both ways, the ring of arenas comes back, sizes are in order."""
    if not state["system_mem"] <= state["max_system_mem"] or state["flags"] & ~7 or state["mutex"] not in (0, 1, 2):
        return False
    return _bins_fit(target, state, shape.word_bytes) and _ring_comes_back(target, state)


def _bins_fit(target: Target, state: View, word: int) -> bool:
    return _bins_that_do_not_fit(target, state, word) == 0


def _bins_that_do_not_fit(target: Target, state: View, word: int) -> int:
    """How many bins are neither empty nor linked both ways; where the arena was never used, 1 if it has a top."""
    words = state.array("bins")
    if not any(words):
        return int(state["top"] != 0)
    wrong = 0
    for index in range(0, len(words), 2):
        header = state.address_of("bins") + index * word - 2 * word
        forward, back = words[index], words[index + 1]
        try:
            held = (forward == header) == (back == header)
            if held and forward != header:
                held = target.read_word(forward + 3 * word) == header and target.read_word(back + 2 * word) == header
        except Unreadable:
            held = False
        wrong += not held
    return wrong


def _ring_comes_back(target: Target, state: View) -> bool:
    offset = state.address_of("next") - state.address
    address = state["next"]
    seen: Set[int] = set()
    while address != state.address:
        if address in seen or len(seen) > MAX_RING:
            return False
        seen.add(address)
        address = target.read_word(address + offset)
    return True


def _par_fits(target: Target, par: View, state: View) -> bool:
    """Counters are in order, and sbrk_base is where the arena's bytes begin."""
    if (
        not 0 <= par["n_mmaps"] <= par["max_n_mmaps"]
        or not par["mmapped_mem"] <= par["max_mmapped_mem"]
        or par["no_dyn_threshold"] not in (0, 1)
    ):
        return False
    if (par["n_mmaps"] == 0) != (par["mmapped_mem"] == 0) or par["n_mmaps_max"] < 0:
        return False
    if (par.get("tcache_count") or 0) > MAX_TCACHE_COUNT or (par.get("tcache_bins") or par.get("tcache_small_bins") or 0) > 76:
        return False
    if state["system_mem"] == 0 or state["flags"] & 2:
        return True
    word = target.word_bytes
    top_end = state["top"] + (target.read_word(state["top"] + word) & ~7)
    return par["sbrk_base"] == top_end - state["system_mem"]


def _tcache_fits(target: Target, types: TypeSet, shape: Shape, tcaches: Sequence[int]) -> bool:
    """The chunk of each tcache struct has the size that a request of sizeof(tcache_perthread_struct) gets, or one unit more."""
    wanted = types.size_bytes(layouts.TCACHE.name) if layouts.TCACHE.name in types.structs else 0
    align, word = shape.alignment_bytes, shape.word_bytes
    chunk = (wanted + word + align - 1) // align * align
    sizes: List[int] = [target.read_word(address - word) & ~7 for address in tcaches if address]
    return all(size in (chunk, chunk + align) for size in sizes)
