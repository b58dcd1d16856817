"""A name by which gdb opens one certain file, and the same file when it opens it again.

gdb resolves the symbolic links of a name as text and goes on with the result. /proc/PID/root and /proc/PID/map_files are links that no text can
resolve: the result is a path of the process's own tree, and what this machine has there may be another file. gdb then reads one
file by the other's headers: it dies of SIGBUS or of an internal error, or tells what is wrong.
"""

import os
from typing import Dict, List, Optional

from gdbheapx.files import copy_of


class Openable:
    """Names for gdb. Lives as long as gdb may open one of them again."""

    def __init__(self) -> None:
        self._names: Dict[str, Optional[str]] = {}
        self._copies: List[int] = []
        """Descriptors of files without a name, which /proc/self/fd leads to: their links lead nowhere as text, so gdb keeps the name as it is."""

    def name(self, path: str) -> Optional[str]:
        """The path itself, where its text leads to the same file; else that of a copy. None if it cannot be read, or there is no room for the copy."""
        if path not in self._names:
            self._names[path] = path if resolves(path) else self._copy(path)
        return self._names[path]

    def _copy(self, path: str) -> Optional[str]:
        try:
            self._copies.append(copy_of(path))
        except OSError:
            return None
        return "/proc/self/fd/%d" % self._copies[-1]


def resolves(path: str) -> bool:
    """The path with its links resolved as text is the same file, or none: then gdb keeps the path as it is."""
    try:
        found = os.stat(os.path.realpath(path))
    except OSError:
        return True
    try:
        return os.path.samestat(found, os.stat(path))
    except OSError:
        return False
