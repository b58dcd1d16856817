"""Detect that memory runs out for a process: events and limits of its memory cgroups, and how long tasks waited for memory (PSI). Version
1 of cgroups has no memory.events. There memory.failcnt counts how often the limit was met.
"""

import os
import re
import time
from typing import Dict, List, Optional, Tuple

from gdbheapx.inferior.live.headroom import V1, V2, Headroom, HeadroomFiles, Hidden, iterate_memory_cgroups, of_group
from gdbheapx.units import SentenceSize, make_sentence

EVENTS = ("high", "max", "oom")
"""Counters of memory.events that rise where a limit is felt."""
FAILURES = "memory.failcnt"
PSI = re.compile(r"some avg10=([0-9.]+)")
LITTLE = 10
"""A limit of which one tenth is left is close."""
SOON_S = 5.0
"""So is one that the group meets within this time, or two looks, at the rate since the last look, where a quarter of it is in use."""


class Pressure:
    """State of one process's memory cgroups, or of the machine if it is in none that can be seen."""

    def __init__(self, pid: int, files: Optional[HeadroomFiles] = None) -> None:
        self._files = files or HeadroomFiles()
        self._groups = list_visible_groups(pid, self._files)
        self._events = self._count_events()
        self._left: Dict[str, Tuple[float, int]] = {}
        """By limit when it was looked at last, and what was left."""

    def _count_events(self) -> Dict[str, int]:
        counted: Dict[str, int] = {}
        for folder, _, kind in self._groups:
            if kind == V1:
                failed = self._files.number(os.path.join(folder, FAILURES))
                counted.update({os.path.join(folder, FAILURES): failed} if failed is not None else {})
                continue
            path = os.path.join(folder, "memory.events")
            events = self._files.fields(path)
            counted.update({"%s of %s" % (key, path): events[key] for key in EVENTS if key in events})
        return counted

    def felt(self, percent: float, now_s: Optional[float] = None) -> Optional[str]:
        """Return the sign of memory shortage since the last call, in words, or None. `percent`: of the last ten seconds in which tasks
        waited.
        """
        before, self._events = self._events, self._count_events()
        close = self._describe_close_limit(time.monotonic() if now_s is None else now_s)
        for key, count in self._events.items():
            if count > before.get(key, count):
                return "%s rose by %d" % (key, count - before[key])
        return close or self._describe_waiting(percent)

    def _describe_close_limit(self, now_s: float) -> Optional[str]:
        """Return the limit that is close, or will be met soon, in words, or None."""
        told: Optional[str] = None
        for bound in list_group_limits(self._groups, self._files):
            key, left, limit = bound.limit or "", bound.left_bytes, bound.limit_bytes or 0
            before_s, before = self._left.get(key, (now_s, left))
            self._left[key] = now_s, left
            passed_s = now_s - before_s
            soon_s = left * passed_s / (before - left) if before > left else float("inf")
            if left * LITTLE <= limit:
                told = told or make_sentence("%s", bound.by)
            elif left * 4 <= limit * 3 and soon_s <= max(SOON_S, 2 * passed_s):
                told = told or make_sentence("%s, which last for %.1f s as it grows now", bound.by, soon_s)
        return told

    def _describe_waiting(self, percent: float) -> Optional[str]:
        own = [os.path.join(folder, "memory.pressure") for folder, _, kind in self._groups[:1] if kind == V2]
        for path in (*own, os.path.join(self._files.proc, "pressure", "memory")):
            found = PSI.match(self._files.text(path) or "")
            if found is not None:
                waited = float(found.group(1))
                return "tasks waited for memory in %g %% of the last ten seconds (%s)" % (waited, path) if waited >= percent else None
        return None


def list_visible_groups(pid: int, files: HeadroomFiles) -> List[Tuple[str, str, str]]:
    """See headroom.groups: those that can be seen."""
    found: List[Tuple[str, str, str]] = []
    try:
        for group in iterate_memory_cgroups(pid, files):
            found.append(group)
    except Hidden:
        pass
    return found


def list_group_limits(of: List[Tuple[str, str, str]], files: HeadroomFiles) -> List[Headroom]:
    """Return the headroom below the limits of these groups; those that cannot be read are left out."""
    found: List[Headroom] = []
    for folder, shown, kind in of:
        try:
            found += of_group(folder, shown, kind, files)
        except Hidden:
            pass
    return found


def lacking_here(pid: int, needed_bytes: int, files: Optional[HeadroomFiles] = None) -> Optional[str]:
    """Return why this program must not take so much memory (a limit that holds for the process and for it has less left), or None if it
    may.
    """
    files = files or HeadroomFiles()
    own = {folder for folder, _, _ in list_visible_groups(os.getpid(), files)}
    common = list_group_limits([group for group in list_visible_groups(pid, files) if group[0] in own], files)
    nearest = min(common, key=lambda bound: bound.left_bytes, default=None)
    if nearest is None or nearest.left_bytes >= needed_bytes:
        return None
    return make_sentence(
        "it may take %s, and %s, which is that of the watch as well: start the watch outside of it", SentenceSize(needed_bytes), nearest.by
    )
