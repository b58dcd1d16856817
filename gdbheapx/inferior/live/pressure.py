"""Whether the kernel lacks memory for a process: memory.events of its cgroups, and how long tasks waited (PSI)."""

import os
import re
from typing import Dict, List, Optional

from gdbheapx.inferior.live.headroom import Files, Hidden, groups

EVENTS = ("high", "max", "oom")
"""Counters of memory.events that rise where a limit is felt."""
PSI = re.compile(r"some avg10=([0-9.]+)")


class Pressure:
    """Of one process's memory cgroups, or of the machine where it is in none that can be seen."""

    def __init__(self, pid: int, files: Optional[Files] = None) -> None:
        self._files = files or Files()
        self._folders: List[str] = []
        try:
            self._folders += [folder for folder, _, _ in groups(pid, self._files)]
        except Hidden:  # those that can be seen count
            pass
        self._events = self._count()

    def _count(self) -> Dict[str, int]:
        counted: Dict[str, int] = {}
        for folder in self._folders:
            events = self._files.fields(os.path.join(folder, "memory.events"))
            counted.update({"%s/%s" % (folder, key): events[key] for key in EVENTS if key in events})
        return counted

    def felt(self, percent: float) -> Optional[str]:
        """What was felt since it was asked last, in words; None: nothing."""
        before, self._events = self._events, self._count()
        for key, count in self._events.items():
            if count > before.get(key, count):
                folder, name = os.path.split(key)
                return "%s of %s rose by %d" % (name, os.path.join(folder, "memory.events"), count - before[key])
        own = [os.path.join(folder, "memory.pressure") for folder in self._folders[:1]]
        for path in (*own, os.path.join(self._files.proc, "pressure", "memory")):
            found = PSI.match(self._files.text(path) or "")
            if found is not None:
                waited = float(found.group(1))
                return "tasks waited for memory in %g %% of the last ten seconds (%s)" % (waited, path) if waited >= percent else None
        return None
