"""What `doctor` says of one copy of glibc's malloc."""

from typing import List

from gdbheapx.glibc.detect import Glibc
from gdbheapx.inferior.base import Target
from gdbheapx.model import Check


def checks(target: Target, glibc: Glibc) -> List[Check]:
    """Whether thread caches are found."""
    if glibc.tcache is None:
        return []
    threads, local = target.threads(), glibc.thread_local(target, "tcache")
    if local is None:
        hint = "chunks in thread caches count as used"
        return [Check("thread caches", False, "thread-local storage of %s not found" % glibc.module.name, hint)]
    known = sum(1 for address in local.addresses.values() if address is not None)
    return [
        Check(
            "thread caches",
            known == len(threads),
            "glibc's tcache found for %d of %d threads, by %s" % (known, len(threads), local.way),
            None,
        )
    ]
