"""Effects of the settings of glibc's malloc: the number of arenas, its thresholds, its thread caches."""

from typing import Collection, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import findings as codes
from gdbheapx.allocators.answers import BOUNDED, Effect, Requests, effect_of_restart, in_force
from gdbheapx.allocators.measured import ARENA_ONE, HUGETLB_ON, MMAP_THRESHOLD, MXFAST, TCACHE_COUNT, TRIM_THRESHOLD, Setting
from gdbheapx.columns import add_values
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.layout.view import LayoutView
from gdbheapx.model import HistogramRow
from gdbheapx.units import count_noun

FIXED_BYTES = 128 << 10
"""DEFAULT_MMAP_THRESHOLD_MIN, DEFAULT_TRIM_THRESHOLD, DEFAULT_TOP_PAD."""
LEFT_AT_TOP_BYTES = 3 * FIXED_BYTES
"""A free() leaves less than the trim threshold at the top, and top_pad; small blocks freed since may add to it, as merging is asked for in
steps of FASTBIN_CONSOLIDATION_THRESHOLD (64 KiB)."""
MOST_CHUNKS = 1 << 18
"""Of more free chunks it is not asked which of their pages are in RAM: all of them count as if they were."""
TUNABLES, ARENA_MAX = MXFAST.variable, ARENA_ONE.variable
FIXING = (TRIM_THRESHOLD.variable, MMAP_THRESHOLD.variable, "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")
"""Each of them keeps both thresholds where they are."""
VARIABLES = (TUNABLES, ARENA_MAX, *FIXING)
BY_CALL = "; the program calls mallopt() itself, which no variable changes"
FREE = ("free_bytes", "fast_bytes", "tcache_bytes", "top_bytes")
"""What no program uses in an arena."""


def sum_glibc_free(arenas: Sequence[ArenaTotals]) -> Optional[int]:
    """Return all free bytes in these arenas, in RAM or not. None where a part is unknown."""
    total = 0
    for arena in arenas:
        for name in FREE:
            value = getattr(arena, name)
            if value is None:
                return None
            total += value
    return total


def beside_largest_bytes(arenas: Sequence[ArenaTotals]) -> int:
    """Return the bytes that all arenas but the largest hold."""
    held = [arena.held_bytes for arena in arenas]
    return sum(held) - max(held, default=0)


def kept_apart_bytes(arenas: Sequence[ArenaTotals]) -> Optional[int]:
    """Return the bytes of chunks in thread caches and of the free memory on both sides of them, if that is as much as elsewhere. None if
    unknown, also where the caches of threads that ended filled an arena.
    """
    if not all(arena.attached_threads for arena in arenas):
        return None
    totals = [
        add_values(getattr(arena, name) for arena in arenas) for name in ("tcache_bytes", "tcache_chunks", "free_bytes", "free_chunks")
    ]
    cached_bytes, cached, free, chunks = totals
    if cached_bytes is None or cached is None or free is None or chunks is None:
        return None
    return cached_bytes + 2 * cached * free // max(1, chunks)


class GlibcSettingFigures(NamedTuple):
    """Figures that the effects of settings are computed from."""

    arenas: int
    free_bytes: Optional[int]
    """What is free, without whole pages that are known not to be in RAM: no setting can save more."""
    beside_largest_bytes: int
    kept_apart_bytes: Optional[int]
    others_bytes: Optional[int]
    """What of free memory lies in thread arenas, in RAM or not."""
    cached_bytes: Optional[int]
    """In thread caches."""
    top_bytes: Optional[int]
    """What of the main top is in RAM."""
    huge_page_bytes: Optional[int]
    """What the arenas would have more where huge pages come whole."""
    large_chunks: int
    """Of FIXED_BYTES or more."""
    large_free_bytes: int = 0
    """In free chunks and tops of FIXED_BYTES or more, and in RAM as far as is known."""
    unmerged_bytes: int = 0
    """Below the tops of thread arenas, not merged with them for chunks in fastbins."""
    fast_bytes: int = 0
    no_fastbins: str = ""
    """What keeps none."""


def list_glibc_effects(mp: LayoutView, has: GlibcSettingFigures, page_bytes: int, variables: Optional[Collection[str]]) -> List[Effect]:
    """Return the effect of each setting once. `variables`: the names in VARIABLES that the process was started with; None if unknown."""
    more = " (added to its present value)" if variables is not None and TUNABLES in variables else ""

    def by_call(*names: str) -> str:
        return "" if variables is None or {TUNABLES, *names}.intersection(variables) else BY_CALL

    return [
        _predict_arenas(mp, has, by_call(ARENA_MAX)),
        *_predict_thresholds(mp, has, page_bytes, by_call(*FIXING)),
        *_predict_fastbins(has, more),
        *_predict_caches(mp, has, more),
        *_huge_pages(mp, has, more),
        effect_of_restart(has.free_bytes),
    ]


def _has_moved(mp: LayoutView) -> bool:
    """A mapped block was freed, which raised the thresholds. All threads share them: in another run their order may be another."""
    return not mp["no_dyn_threshold"] and (mp["mmap_threshold"], mp["trim_threshold"]) != (FIXED_BYTES, FIXED_BYTES)


def _in_order(mp: LayoutView, has: GlibcSettingFigures, bytes_: Optional[int]) -> Optional[int]:
    """The most that a setting saves, if threads do the same in another run; where they may not, all that is free."""
    if bytes_ is None or has.free_bytes is None or (has.arenas > 1 and _has_moved(mp)):
        return has.free_bytes
    return min(bytes_, has.free_bytes)


def _predict_arenas(mp: LayoutView, has: GlibcSettingFigures, by_call: str) -> Effect:
    setting, limit = ARENA_ONE.text, mp["arena_max"]
    if limit == 1 or has.arenas == 1:
        return in_force("arenas", setting, "arena_max is 1" if limit == 1 else "no thread made an arena of its own")
    why = "at most the free memory of %s, and all memory of all but the largest; at worst one keeps all that was ever in RAM"
    why %= count_noun(has.arenas, "arena")
    if limit and by_call:
        setting, why = "mallopt(M_ARENA_MAX, 1)", why + by_call
    cost, most = "threads wait for one lock: how long is not known", _in_order(mp, has, has.beside_largest_bytes)
    least, acts_on = -(mp.get("thp_pagesize") or 0), has.others_bytes
    if acts_on is not None and most is not None:  # the rest is kept in one arena as in several
        kept = has.unmerged_bytes + (has.cached_bytes or 0) + (has.large_free_bytes if _has_moved(mp) else 0)
        acts_on = min(most, max(0, acts_on - kept))
    causes = (codes.MANY_ARENAS, codes.ARENAS_LEFT)
    return Effect("arenas", setting, BOUNDED, least, most, why, cost, may_peak=True, acts_on_bytes=acts_on, by=ARENA_ONE, causes=causes)


def _predict_thresholds(mp: LayoutView, has: GlibcSettingFigures, page_bytes: int, by_call: str) -> List[Effect]:
    rows: Sequence[Tuple[str, str, Setting, str]] = (
        ("trim-threshold", "trim_threshold", TRIM_THRESHOLD, "more calls of brk, and page faults when the top grows again"),
        ("mmap-threshold", "mmap_threshold", MMAP_THRESHOLD, "a system call and page faults for each block of 128 KiB or more"),
    )
    slack = page_bytes * has.large_chunks
    beyond = None if has.top_bytes is None else max(0, has.top_bytes - LEFT_AT_TOP_BYTES)
    made = []
    for code, name, by, cost in rows:
        setting = by.text
        if mp["no_dyn_threshold"] and mp[name] == FIXED_BYTES:
            made.append(in_force(code, setting, "%s is fixed at 128 KiB" % name))
            continue
        if not mp["no_dyn_threshold"] and not _has_moved(mp):
            made.append(in_force(code, setting, "%s never moved from 128 KiB: no mapped block was freed" % name))
            continue
        least = None if beyond is None else beyond - slack
        why = "what of the main top is in RAM beyond the threshold, unless a block comes to lie above it; at most all that is free"
        if mp["no_dyn_threshold"] and by_call:
            setting, why = "mallopt(M_%s, %d)" % (name.upper(), FIXED_BYTES), why + by_call
        else:
            why += "; one of the two fixes both"
        acts_on = has.large_free_bytes if beyond is None else max(beyond, has.large_free_bytes)
        causes = (codes.MAIN_TOP if acts_on == beyond else codes.THREAD_TOPS,)
        one = Effect(code, setting, BOUNDED, least, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=acts_on)
        made.append(one._replace(by=by, causes=causes))
    return made


def _predict_fastbins(has: GlibcSettingFigures, more: str) -> List[Effect]:
    if not has.fast_bytes:
        return []
    setting = has.no_fastbins + (more if has.no_fastbins.startswith(TUNABLES) else "")
    why = "what free() would merge into tops at once, unless a block comes to lie above it; at most all that is free"
    cost, by, causes = "each free() of a small block merges it with its neighbours", MXFAST, (codes.UNMERGED,)
    acts_on = has.unmerged_bytes
    return [Effect("fastbins", setting, BOUNDED, 0, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=acts_on, by=by, causes=causes)]


def _predict_caches(mp: LayoutView, has: GlibcSettingFigures, more: str) -> List[Effect]:
    count = mp.get("tcache_count")
    if count is None:  # as releases before 2.26, which have no tunables either
        return []
    setting = TCACHE_COUNT.text + more
    if count == 0:
        return [in_force("thread-caches", setting, "tcache_count is 0")]
    most = _in_order(mp, has, has.kept_apart_bytes)
    why = "at most the chunks in caches and the free chunks next to them" if most != has.free_bytes else "at most all that is free"
    why += "; a lower tcache_max saves no more"
    cost = "each malloc and free takes the lock of its arena"
    one = Effect("thread-caches", setting, BOUNDED, 0, most, why, cost, may_peak=True, acts_on_bytes=has.cached_bytes)
    return [one._replace(by=TCACHE_COUNT, causes=(codes.THREAD_CACHES,))]


def _huge_pages(mp: LayoutView, has: GlibcSettingFigures, more: str) -> List[Effect]:
    size = mp.get("thp_pagesize")
    if size is None:  # before 2.35
        return []
    setting = HUGETLB_ON.text + more
    if size:
        return [in_force("malloc-huge-pages", setting, "malloc asks for huge pages")]
    least = None if has.huge_page_bytes is None else -has.huge_page_bytes
    why = "it costs at most the missing parts of the huge pages where arenas lie now; nothing where the kernel has no huge page at hand"
    most = _in_order(mp, has, 0)
    if most != 0:
        why += "; threads in several arenas come in another order, which alone can save free memory"
    return [Effect("malloc-huge-pages", setting, BOUNDED, least, most, why, "RAM, for fewer misses of the TLB", may_peak=True)]


def make_glibc_requests(sizes: Sequence[HistogramRow], word_bytes: int, page_bytes: int) -> List[Requests]:
    """Return the possible sizes of the requests for chunks in use. A request is known from its chunk to two words less a byte; a large
    chunk may be mmapped, in whole pages.
    """
    return [
        Requests(
            row.used_chunks,
            row.used_bytes,
            row.used_bytes - row.used_chunks * (3 * word_bytes if row.max_size_bytes < FIXED_BYTES else page_bytes),
            max(1, row.size_bytes - 3 * word_bytes + 1),
            row.max_size_bytes - word_bytes,
        )
        for row in sizes
        if row.used_chunks
    ]
