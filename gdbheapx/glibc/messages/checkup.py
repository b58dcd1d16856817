"""What `doctor` says of one copy of glibc's malloc."""

from typing import List

from gdbheapx.glibc.arenas import Glibc
from gdbheapx.inferior.base import Target
from gdbheapx.model import Check
from gdbheapx.units import number, plural


def checks(target: Target, glibc: Glibc) -> List[Check]:
    """What proves a copy that was found by structure; whether thread caches are found."""
    return [*_proof(glibc), *_caches(target, glibc)]


def _proof(glibc: Glibc) -> List[Check]:
    place = glibc.place
    if place is None:
        return []
    release = "" if glibc.version_text else "; its layouts are those of glibc %s" % place.releases
    if not place.bins:
        text = "main_arena as its file has it, next to mp_: malloc was never used%s" % release
        return [Check("by structure", None, text, None)]
    text = "main_arena by %d of 127 bins and a ring of %s%s, next to mp_%s"
    ring = " that comes back" if place.is_closed else ", damaged there"
    return [
        Check(
            "by structure",
            (place.bins == 127 and place.is_closed) or None,
            text % (place.bins, plural(place.arenas, "arena"), ring, release),
            None,
        )
    ]


def _way(glibc: Glibc, way: str) -> str:
    if glibc.is_untouched:
        return "its main arena: malloc was never used"
    return "structure, as the relocations that point there are not at hand" if glibc.locals is not None else way


def _caches(target: Target, glibc: Glibc) -> List[Check]:
    if glibc.tcache is None:
        return []
    threads, local = target.threads(), glibc.thread_local(target, "tcache")
    if local is None:
        hint = "chunks in thread caches count as used"
        return [Check("thread caches", False, "thread-local storage of %s not found" % glibc.module.name, hint)]
    known = len(threads) if glibc.is_untouched else sum(1 for address in local.addresses.values() if address is not None)
    return [
        Check(
            "thread caches",
            known == len(threads),
            "glibc's tcache found for %s of %s, by %s" % (number(known), plural(len(threads), "thread"), _way(glibc, local.way)),
            None,
        )
    ]
