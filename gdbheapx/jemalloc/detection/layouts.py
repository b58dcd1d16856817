"""What differs between jemalloc's releases and no type tells: the fields of e_bits, enum values, the marks of each release."""

import re
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc.records import PrintForm

Version = Tuple[int, int, int]

NEWEST_KNOWN: Version = (5, 3, 1)
UNRELEASED: Version = (5, 3, 99)
"""A build after 5.3.1, told by its fields."""
TRIED_COMMITS = 47
"""Of those the one that was tried: so many commits after 5.3.1 (295e4894 of May 2026)."""

STRUCTS = (
    "arena_s",
    "edata_s",
    "extent_s",
    "bin_s",
    "arena_bin_s",
    "bins_s",
    "bin_info_s",
    "arena_bin_info_s",
    "tsd_s",
    "tcache_s",
    "tcache_slow_s",
    "tcache_bin_s",
    "tcaches_s",
    "cache_bin_s",
    "cache_bin_info_s",
    "cache_bin_array_descriptor_s",
    "base_s",
    "base_block_s",
    "rtree_s",
    "rtree_node_elm_s",
    "rtree_leaf_elm_s",
    "rtree_level_s",
    "emap_s",
    "background_thread_info_s",
    "arena_tdata_s",
    "ticker_s",
    "ticker_geom_s",
    "pac_stats_s",
    "arena_stats_s",
    "decay_s",
    "arena_decay_s",
    "ctl_arenas_s",
    "ctl_stats_s",
    "ctl_arena_s",
    "ctl_arena_stats_s",
    "malloc_mutex_s",
    "sec_shard_s",
    "sec_bin_s",
    "hpdata_s",
    "prof_tdata_s",
    "prof_tctx_s",
    "prof_gctx_s",
    "prof_bt_s",
    "ckh_t",
    "ckhc_t",
)
"""What readers may ask for, over all releases; a build has some of them."""

UNITS = {
    "background_thread_create": ("background_thread_info_s",),
    "tcaches_create": ("tcaches_s",),
    "prof_lookup": ("prof_tctx_s", "prof_gctx_s", "prof_bt_s"),
    "ctl_boot": ("ctl_arenas_s", "ctl_stats_s", "ctl_arena_s", "ctl_arena_stats_s"),
}
"""External functions in whose units stand the structs that jemalloc.c does not use; the last two only after 5.3.1."""
ELSEWHERE = tuple(name for names in UNITS.values() for name in names)

ENUMERATORS = ("tsd_state_nominal", "extent_state_active", "malloc_init_initialized", "percpu_arena_disabled")
"""One of each enum that readers look values up in."""

_SLAB_DATA = ("e_slab_data.bitmap", "slab_data.bitmap", "e_slab_data")


class Field(NamedTuple):
    """One bit field."""

    shift: int
    width: int

    def of(self, word: int) -> int:
        """Its value in `word`."""
        return word >> self.shift & (1 << self.width) - 1


def version_of(types: TypeSet, has_confirm_conf: bool) -> Optional[Version]:
    """The release that a build's types belong to; the string it was built with may say anything.

    Marks: 5.0.0 has no minimal tsd state; bin_s came with 5.1.0 (before: arena_bin_s), bins_s with 5.2.0, opt.confirm_conf with 5.2.1,
    edata_s with 5.3.0, tsd_s.te_data with 5.3.1; tsd_s.tsd_link went after it.
    """
    tsd = types.structs.get("tsd_s")
    if tsd is None or "arena_s" not in types.structs:
        return None
    if "edata_s" in types.structs:
        if "tsd_link" not in tsd.members:
            return UNRELEASED
        return (5, 3, 1) if "te_data" in tsd.members else (5, 3, 0)
    if "extent_s" not in types.structs:
        return None
    if types.place("arena_s", "bins[0].bin_shards") is not None:
        return (5, 2, 1) if has_confirm_conf else (5, 2, 0)
    if "bin_s" in types.structs:
        return (5, 1, 0)
    states = [values for values in types.enums.values() if "tsd_state_nominal" in values]
    return (5, 0, 0) if states and "tsd_state_minimal_initialized" not in states[0] else (5, 0, 1)


def e_bits(version: Version, nsizes: int, slab_maxregs: int) -> Dict[str, Field]:
    """The fields of extent_t's or edata_t's e_bits (extent_structs.h to 5.2, edata.h from 5.3).

    nsizes: SC_NSIZES. slab_maxregs: regions a slab may have at most; the width of nfree follows from it.
    """
    szind, nfree = (nsizes - 1).bit_length(), slab_maxregs.bit_length()
    widths: List[Tuple[str, int]] = [("arena", 12), ("slab", 1), ("committed", 1)]
    if version >= (5, 3, 0):
        widths += [("pai", 1), ("zeroed", 1), ("guarded", 1), ("state", 3)]
    elif version >= (5, 1, 0):
        widths += [("dumpable", 1), ("zeroed", 1), ("state", 2)]
    else:
        widths += [("zeroed", 1), ("state", 2)]
    widths += [("szind", szind), ("nfree", nfree)]
    if version >= (5, 2, 0):
        widths += [("binshard", 6)]
    if version >= (5, 2, 1):
        widths += [("is_head", 1)]
    fields, shift = {}, 0
    for name, width in widths:
        fields[name] = Field(shift, width)
        shift += width
    return fields


def slab_maxregs(types: TypeSet, struct: str) -> Optional[int]:
    """Regions a slab may have at most, by the size of its bitmap: flat bitmaps have a bit for each."""
    for path in _SLAB_DATA:
        place = types.place(struct, path)
        if place is not None:
            return place.size_bytes * place.count * 8
    return None


class States(NamedTuple):
    """extent_state_t."""

    active: int
    dirty: int
    muzzy: int
    retained: int
    highest: int
    """extent_state_max, or the highest value there is."""
    pinned: Optional[int] = None
    """None in builds up to 5.3.1, which have no such state."""


def states(types: TypeSet, version: Version) -> States:
    """By the build's own enum where its types have it, else by the release (extent_structs.h, edata.h)."""
    highest = types.enumerator("extent_state_max")
    if highest is None:
        highest = 6 if version > NEWEST_KNOWN else 5 if version >= (5, 3, 0) else 3
    named = [types.enumerator("extent_state_" + name) for name in ("active", "dirty", "muzzy", "retained")]
    numbers = [place if value is None else value for place, value in enumerate(named)]
    pinned = types.enumerator("extent_state_pinned")
    if pinned is None and named[0] is None and version > NEWEST_KNOWN:
        pinned = 4
    return States(numbers[0], numbers[1], numbers[2], numbers[3], highest, pinned)


TSD_STATES = ("nominal", "nominal_slow", "nominal_recompute", "minimal_initialized", "purgatory", "reincarnated", "uninitialized")


def tsd_states(types: TypeSet, version: Version) -> Dict[int, str]:
    """Value of tsd.state -> its name without `tsd_state_`: by the build's own enum, else by the release (tsd.h).

    nominal_recompute exists from 5.2.0 to 5.3.1.
    """
    named = {types.enumerator("tsd_state_" + name): name for name in TSD_STATES}
    if None not in named and types.enumerator("tsd_state_uninitialized") is not None:
        return {value: name for value, name in named.items() if value is not None}
    known = {value: name for value, name in named.items() if value is not None}
    if "nominal" in known.values() and "uninitialized" in known.values():
        return known
    has_recompute = (5, 2, 0) <= version <= NEWEST_KNOWN
    return dict(enumerate(name for name in TSD_STATES if has_recompute or name != "nominal_recompute"))


def has_extent_sizes(version: Version) -> bool:
    """Large allocations may have any size (opt.disable_large_size_classes, from 5.3.1, on by default): the extent's, less sz_large_pad."""
    return version >= (5, 3, 1)


def changes_bins(version: Version) -> bool:
    """bin_infos[] is written at the start, by opt.slab_sizes and opt.bin_shards (from 5.2.0); before, it is a constant."""
    return version >= (5, 2, 0)


def of_first_threads(version: Version, types: TypeSet, image: bytes) -> Tuple[Version, TypeSet]:
    """5.0.0 has the structs of 5.0.1; its threads begin in state 4, those of 5.0.1 in state 5 (tsd.h: tsd_state_uninitialized), as the
    thread-local image says."""
    if version != (5, 0, 1) or 4 not in image or 5 in image:
        return version, types
    names = [name for name in TSD_STATES if name not in ("nominal_recompute", "minimal_initialized")]
    return (5, 0, 0), TypeSet(types.structs, {"": {"tsd_state_" + name: number for number, name in enumerate(names)}})


def has_ticker_bug(types: TypeSet, version: Version) -> bool:
    """A thread whose first call is free() never gets tickers: releases with arenas_tdata_bypass and a minimal tsd state.

    tsd.c, tsd_data_init_nocleanup sets the bypass, nobody resets it: 5.0.1 to 5.2.1; gone with 5.3.0's arena_decay_ticker.
    """
    return types.place("tsd_s", "arenas_tdata_bypass") is not None and version >= (5, 0, 1)


VERSION_TEXT = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-(\d+)-g|$)")
"""JEMALLOC_VERSION: release, commits after it, hash (configure.ac: git describe --long)."""
PROVEN_COMMITS = {(5, 2, 1): 2, (5, 3, 0): 1}
"""Commits after a release whose builds were seen to have its layout: tikv-jemallocator's 5.2.1-2-g172143a and 5.3.0-1-ge13ca993. Others:
none."""


def release_of(text: Optional[str]) -> Optional[Version]:
    """The release that a version text begins with; None for 0.0.0, which a build without git's data has, and where there is none."""
    match = VERSION_TEXT.match(text or "")
    release = (int(match.group(1)), int(match.group(2)), int(match.group(3))) if match is not None else (0, 0, 0)
    return release if release != (0, 0, 0) else None


def commits_after(text: Optional[str]) -> int:
    """How many commits after its release a build was made; 0 where the text does not tell."""
    match = VERSION_TEXT.match(text or "")
    return int(match.group(4) or 0) if match is not None else 0


def may_differ(text: Optional[str]) -> bool:
    """A build with this version text may have another layout than any release: a snapshot between two, or one that does not say what it
    is."""
    release = release_of(text)
    return release is None or commits_after(text) > PROVEN_COMMITS.get(release, 0)


def was_tried(version: Version, text: Optional[str]) -> bool:
    """Builds whose types belong to this release were tried, if they are what the version text says."""
    return version <= NEWEST_KNOWN or (release_of(text) == NEWEST_KNOWN and commits_after(text) == TRIED_COMMITS)


def is_read(text: Optional[str]) -> bool:
    """Not known to be of a release before 5, whose arenas are made another way."""
    release = release_of(text)
    return release is None or release >= (5, 0, 0)


def text_has_ticker_bug(text: Optional[str]) -> Optional[bool]:
    """has_ticker_bug by the version text alone, for builds that are not read; None where it does not tell."""
    release = release_of(text)
    if release is None or release < (5, 0, 0):
        return None
    if release >= (5, 3, 0):
        return False
    return None if may_differ(text) else release >= (5, 0, 1)


def takes_cache_oblivious(version: Version) -> bool:
    """MALLOC_CONF may have cache_oblivious: 5.3.0 has the option and refuses it."""
    return version >= (5, 3, 1)


def resident_counts_muzzy(version: Version) -> bool:
    """arena_stats_merge (arena.c) counts muzzy pages as resident up to 5.2.1; pa_shard_stats_merge does not."""
    return version < (5, 3, 0)


def omits_large_tcache_bins(version: Version) -> bool:
    """tcache_bytes lacks large bins: arena_stats_merge reads them at the wrong index (arena.c, 5.1.0 to 5.2.1)."""
    return (5, 1, 0) <= version < (5, 3, 0)


def merges_no_large_flushes(version: Version) -> bool:
    """ctl_arena_stats_sdmerge (ctl.c) forgets nflushes of large allocations in the sum over arenas; from 5.3.0 it adds them."""
    return version < (5, 3, 0)


def shards_bins(version: Version) -> bool:
    """malloc_stats_print shows arenas.bin.<i>.nshards."""
    return version >= (5, 2, 0)


def shows_system(version: Version) -> bool:
    """malloc_stats_print shows `system` and arenas.hugepage."""
    return version >= (5, 3, 1)


def print_form(version: Version) -> PrintForm:
    """That of a release: bins without slabs are left out and rates got wider with 5.3.0, counts of bins with 5.3.1."""
    return PrintForm(14 if version >= (5, 3, 1) else 13, 10 if version >= (5, 3, 0) else 8, version >= (5, 3, 0))


def config_names(version: Version) -> Sequence[str]:
    """The build-time switches that malloc_stats_print shows, in its order (stats.c: stats_general_print)."""
    names = ["cache_oblivious", "debug", "fill", "lazy_lock", "prof", "prof_libgcc", "prof_libunwind", "stats", "utrace", "xmalloc"]
    if version >= (5, 2, 1):
        names.insert(4, "opt_safety_checks")
    if version >= (5, 3, 1):
        names.insert(names.index("prof_libunwind") + 1, "prof_frameptr")
    return names


def keeps_profile_text(version: Version) -> bool:
    """Builds without --enable-prof may have the text of a profile's head too: up to 5.2.1 a variable points to the function (prof.c:
    prof_dump_header)."""
    return version < (5, 3, 0)


def has_short_ncached_max(types: TypeSet) -> bool:
    """tcache_bin_info[] has elements of two bytes (cache_bin_sz_t is uint16_t, from 5.3.0); before, of four."""
    place = types.place("cache_bin_info_s", "ncached_max")
    return place is not None and place.size_bytes == 2


SWITCHES = tuple("config_" + name for name in (*config_names(NEWEST_KNOWN), "enable_cxx"))
"""The constants behind them (jemalloc_preamble.h): no memory holds them, packs do."""
