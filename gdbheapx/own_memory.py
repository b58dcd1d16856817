"""Memory that this process may use, as its control group, its own limit and the machine leave it."""

import os
import resource
from functools import lru_cache
from typing import Iterator, Optional

SHARE = 0.7
"""Of what may be used: the page cache of a core needs some, too."""
VARIABLE = "GDBHEAPX_MEMORY"
GROUPS = "/sys/fs/cgroup"
LIMITED = "GDBHEAPX_LIMITED"
"""The variable with the limit that this tool has set itself: processes that it starts have it, too. The C kernel's is higher by what it has
only reserved (kernel/common/memory.c)."""
FIRST_TO_GO = b"1000"
"""The highest oom_score_adj (proc(5))."""


def allowed_bytes() -> int:
    """Return the bytes that this process may use, or the environment variable's number."""
    named = os.environ.get(VARIABLE, "")
    return int(named) if named.isdigit() else _allowed_bytes()


@lru_cache(maxsize=1)
def _allowed_bytes() -> int:
    """Asked once: the files that tell it are read before a process is stopped."""
    return int(SHARE * min([*_of_groups(), *_of_process(), *_of_machine()], default=1 << 62))


def _read_number(path: str) -> Optional[int]:
    try:
        with open(path) as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _read_group_usage(folder: str, name: str, prefix: str) -> int:
    """Return the bytes that a group's processes use now, without the page cache, which the kernel takes back: the target process is often
    in the same group, and is as likely to be ended by the kernel as this one.
    """
    try:
        with open(folder + "/memory.stat") as file:
            stats = dict(line.split(" ", 1) for line in file if " " in line)
    except OSError:
        stats = {}
    cache = sum(int(stats.get(prefix + kind, 0)) for kind in ("inactive_file", "active_file"))
    return max((_read_number(folder + "/" + name) or 0) - cache, 0)


def _of_groups() -> Iterator[int]:
    """Yield the bytes left of the limits of the groups that this process is in, and of those above them (cgroups(7); both versions)."""
    try:
        with open("/proc/self/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers and "memory" not in controllers.split(","):
            continue
        root = GROUPS + "/memory" if controllers else GROUPS
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_") if controllers else ("memory.max", "memory.current", "")
        while True:
            folder = root + path.rstrip("/")
            limit = _read_number(folder + "/" + names[0])
            if limit is not None:
                yield max(limit - _read_group_usage(folder, *names[1:]), 0)
            if path in ("/", ""):
                break
            path = os.path.dirname(path)


def _of_process() -> Iterator[int]:
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(limit)[0]
        own = os.environ.get(LIMITED, "")
        if soft != resource.RLIM_INFINITY and not (own.isdigit() and limit == resource.RLIMIT_DATA and soft >= int(own)):
            yield soft


def limit_look() -> None:
    """Have this process, which only looks, get no more memory than it may use, unless somebody has limited it; and have the kernel end it
    first where memory is scarce."""
    goes_first()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        with open("/proc/self/statm") as file:
            has = int(file.read().split()[5]) * resource.getpagesize()
        limit = has + _allowed_bytes()
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
        os.environ[LIMITED] = str(resource.getrlimit(resource.RLIMIT_DATA)[0])


def goes_first() -> None:
    """Have the kernel end this process and its children, not a service, when memory is scarce."""
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(FIRST_TO_GO)
    except OSError:
        pass


def _of_machine() -> Iterator[int]:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    yield int(line.split()[1]) * 1024
    except OSError:
        return
