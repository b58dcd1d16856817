"""What `doctor` says of one jemalloc that can be read: how its build was recognised, and what that build cannot tell."""

from typing import List, Optional

from gdbheapx.jemalloc.records import JemallocBuild
from gdbheapx.model import Check
from gdbheapx.units import number, plural

WAYS = {
    "static-tls": "a constant offset from the thread pointer",
    "dtv": "the thread's vector of TLS blocks",
    "libthread_db": "libthread_db",
}


def checks(build: JemallocBuild, threads: int, owns_malloc: Optional[bool]) -> List[Check]:
    """Proof, constants, switches, thread-local storage."""
    return [*_structure(build), _names(build, owns_malloc), _proof(build), _constants(build), _switches(build), _tsd(build, threads)]


def _structure(build: JemallocBuild) -> List[Check]:
    """That no name was there, and what that costs."""
    if not build.by_structure:
        return [Check("", None, "the layout of %s fits its arenas" % build.fitting, None)] if build.fitting else []
    without = "no names: global locks, the heap profile, background threads' counters and some options are unknown"
    arenas = "1 arena names its own index" if build.named_arenas == 1 else "%s arenas name their own index" % number(build.named_arenas)
    sure = "%s confirm it" % _slabs(build) if build.calibrated_slabs else "no slab confirms it yet: figures may be incomplete"
    text = "found by structure: the layout of %s fits, %s, %s" % (build.fitting, arenas, sure)
    if build.fitting is None:
        text = "found by structure: no known layout fits, %s, %s confirmed by the radix tree" % (arenas, _slabs(build))
        without = "only its extents are read: counters, threads, caches and decay are unknown"
        return [Check("", None, text, None), Check("", None, without, build.debug_hint)]
    return [Check("", bool(build.calibrated_slabs), text, None), Check("", None, without, build.debug_hint)]


def _slabs(build: JemallocBuild) -> str:
    return plural(build.calibrated_slabs, "slab")


def _names(build: JemallocBuild, owns_malloc: Optional[bool]) -> Check:
    text = "built as %s" % (build.version_text or "an unreadable version")
    if not build.by_structure:
        text += ", private names begin with `%s`" % build.prefix
    prefix = build.names.prefix
    if prefix is None:
        return Check("", None, text + ", the prefix of its public names is unknown", None)
    text += ", public names with `%s`" % prefix if prefix else ", public names have no prefix"
    if prefix and owns_malloc is False:
        text += ": code that calls %smalloc gets its memory here, code that calls malloc does not" % prefix
    if prefix:
        text += "; it reads options from %s" % build.names.conf_variable
    unread = build.unread_variables
    if unread:
        text += "; it does not read %s, which %s in the environment" % (" and ".join(unread), "is" if len(unread) == 1 else "are")
    return Check("", None, text, None)


def _proof(build: JemallocBuild) -> Check:
    if build.is_initialized is False:
        return Check("", False, "jemalloc is still being initialised: its figures may be incomplete", "retry")
    if not build.calibrated_slabs:
        count = "1 arena has its" if build.named_arenas == 1 else "%s arenas have their" % number(build.named_arenas)
        named = ", but %s own index where these types expect it" % count
        text = "not yet verified on any slab: no bin has one" + (named if build.named_arenas else "")
        return Check("", None, text, "retry when the program has allocated memory")
    return Check("", True, "types and constants verified on %s" % _slabs(build), None)


def _constants(build: JemallocBuild) -> Check:
    levels = "+".join(map(str, build.rtree_levels))
    leaves = "one word" if build.compact_leaves else "two words"
    text = "pages of %d bytes, quantum %d, %d bins of %d size classes, "
    text += "radix tree of %d levels (%s bits of %d, leaf elements of %s), narenas %s"
    sizes = (build.page_bytes, build.quantum_bytes, build.nbins, build.nsizes)
    tree = (len(build.rtree_levels), levels, build.lg_vaddr, leaves)
    return Check("", None, text % (*sizes, *tree, "unknown" if build.by_structure else build.narenas), None)


def _switches(build: JemallocBuild) -> Check:
    words = {True: "yes", False: "no", None: "unknown"}
    text = "built with statistics: %s, with heap profiling: %s" % (words[build.has_stats], words[build.has_prof])
    if build.has_stats is False:
        return Check("", None, text, "counters (sweeps, requests, mapped, metadata) are null; the walk counts extents and regions")
    return Check("", None, text, None)


def _tsd(build: JemallocBuild, threads: int) -> Check:
    if build.threads_with_tsd is None:
        unknown = "cached blocks count as used if their cache is not on the arenas' lists, and blind threads may go undetected"
        return Check("thread caches", False, "thread-local storage of this jemalloc not found", unknown)
    way = WAYS.get(build.tsd_way or "", "an unknown way")
    text = "tsd read for %s of %s, by %s" % (number(build.threads_with_tsd), plural(threads, "thread"), way)
    whole = build.threads_with_tsd >= threads
    hint = None if whole else "caches and tickers of the other threads are unknown; see the problems below"
    return Check("thread caches", whole, text, hint)
