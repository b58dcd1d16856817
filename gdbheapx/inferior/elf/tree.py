"""The file tree that the target ran in, as it lies here: paths in it, the release it is of, and where debug files for it come from."""

import os
import re
from typing import Dict, List, Optional

from gdbheapx.files import open_regular
from gdbheapx.inferior.base import Packages

MAX_PACKAGE_DEPTH = 3
"""How deep a library lies in its package."""
MAX_LINKS = 40
"""As many symbolic links as the kernel follows."""


def resolve(root: str, path: str) -> str:
    """Where `path` of the tree below `root` lies here. An absolute symbolic link in the tree means a place in the tree, never one here."""
    root = root.rstrip("/")
    parts = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    at: List[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            del at[-1:]
            continue
        here = "%s/%s" % (root, "/".join(at + [part]))
        try:
            target = os.readlink(here)
        except OSError:
            at.append(part)
            continue
        links += 1
        if links > MAX_LINKS:
            break
        if target.startswith("/"):
            at = []
        parts += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    return "%s/%s" % (root, "/".join(at))


def os_release(root: str) -> Dict[str, str]:
    """What /etc/os-release of the tree says; empty if it says nothing."""
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        try:
            with open(open_regular(resolve(root, path)), encoding="utf-8", errors="replace") as file:
                text = file.read(1 << 16)
        except OSError:
            continue
        return {key: value.strip("\"'") for key, value in re.findall(r"^([A-Z_]+)=(.*)$", text, re.MULTILINE)}
    return {}


def release_name(root: str) -> str:
    """The distribution, such as `Debian GNU/Linux 12 (bookworm)`; empty if the tree does not tell."""
    return os_release(root).get("PRETTY_NAME", "")


def package(root: str, packages: Packages) -> Optional[str]:
    """The command that installs debug information in the tree's distribution; None if that is not known."""
    fields = os_release(root)
    kinds = [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]
    return next((command for names, command in packages if any(name in names for name in kinds)), None)


def from_wheel(path: str) -> bool:
    """The file was installed by pip: into a place of its own, or beside the metadata that wheels bring. Distributions keep theirs below
    /usr/lib."""
    if re.search(r"/site-packages/|^/usr/local/lib/python[^/]*/dist-packages/", path):
        return True
    folder = os.path.dirname(path)
    for _ in range(MAX_PACKAGE_DEPTH if not path.startswith("/usr/") else 0):
        if any(name.endswith(".dist-info") for name in _names(folder)):
            return True
        folder = os.path.dirname(folder)
    return False


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder) if folder not in ("", "/") else []
    except OSError:
        return []


def downloaded(build_id: str) -> Optional[str]:
    """The debug file that debuginfod-find, or gdb, has fetched before; None if there is none."""
    cache = os.environ.get("DEBUGINFOD_CACHE_PATH")
    if not cache:
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "debuginfod_client")
    path = os.path.join(cache, build_id, "debuginfo")
    return path if os.path.isfile(path) else None
