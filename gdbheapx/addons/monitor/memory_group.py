"""A memory cgroup of this machine, by its path, the id of a pod or container, or a process: its counters, and its processes as they run."""

import difflib
import math
import os
import re
from typing import Annotated, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.columns import BYTES, IF_ANY, IF_KNOWN, PLAIN, TEXT, Column
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_GROUP, NO_PROCESS
from gdbheapx.common.units import list_names
from gdbheapx.inferior.base import MappingUse
from gdbheapx.inferior.live import headroom, procfs, usage

MOST_GROUPS, MOST_PROCESSES, MOST_TOLD, MOST_DESCRIPTORS = 100_000, 20_000, 10, 4096
"""Bounds: of folders that are searched, of processes that are read, of names in an error, of descriptors of one process."""
BATCH_PAGES = 64
"""MEMCG_CHARGE_BATCH (include/linux/memcontrol.h): a CPU charges so many pages at once, and counts so many before it
adds them up."""
USED = {headroom.V1: "memory.usage_in_bytes", headroom.V2: "memory.current"}
LIMIT = {headroom.V1: "memory.limit_in_bytes", headroom.V2: "memory.max"}
OF_V1 = {
    "anon": "total_rss",
    "file": "total_cache",
    "shmem": "total_shmem",
    "file_mapped": "total_mapped_file",
    "file_dirty": "total_dirty",
    "file_writeback": "total_writeback",
    "swapcached": "total_swapcached",
    "inactive_file": "total_inactive_file",
    "active_file": "total_active_file",
    "unevictable": "total_unevictable",
    "anon_thp": "total_rss_huge",
}
"""Keys of memory.stat of version 2, and what version 1 calls them; of the kernel's memory that has only the sum, in a file of its own."""
UNIT = re.compile(r"^(.*?)(?:\.scope|\.slice|\.service)?$")
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./\n]|$)")
"""`/kubepods/burstable/podUID`, or `kubepods-burstable-podUID.slice`, where systemd has _ for each dash; of a static pod 32 digits."""
CONTAINER = re.compile(r"(?:/|(?<!-conmon)-)([0-9a-f]{64})(?=[./\n]|$)")
"""`/ID`, or `cri-containerd-ID.scope`, `crio-ID.scope`, `docker-ID.scope`, `libpod-ID.scope`. Beside a container the group of the process
that watches it has the same id: `crio-conmon-ID.scope`."""
GPU_FILES = "/dev/dri/"
GPU_LINE = re.compile(r"drm-(resident|memory)-([\w.-]+):\s*(\d+)\s*(KiB|MiB)?$", re.MULTILINE)
GPU_CLIENT = re.compile(r"drm-(?:client-id|pdev):\s*(\S+)")
"""Documentation/gpu/drm-usage-stats.rst; `memory` is what drivers before Linux 6.7 call it."""


class GroupMemory(NamedTuple):
    """Counters of a memory cgroup with those below it."""

    path: str
    """As /proc/PID/cgroup has it."""
    cgroup_version: int
    """Of cgroups: 1 or 2."""
    current_bytes: int
    """memory.current; memory.usage_in_bytes of version 1."""
    stat: Mapping[str, int]
    """memory.stat by the keys of version 2, in bytes; a key that this kernel or version does not have is not there."""
    limit_bytes: Optional[int]
    """The lowest memory.max of the group and of those above it; None: there is no limit."""
    limit_of: Optional[str]
    """Path of the group that has that limit."""
    high_bytes: Optional[int]
    """The lowest memory.high of them; None: none."""
    swapped_bytes: Optional[int]
    """In swap; None: this kernel does not count it."""
    swap_max_bytes: Optional[int]
    """memory.swap.max; None: no limit of its own."""
    swap_free_bytes: int
    """Of the machine's swap."""
    events: Mapping[str, int]
    """How often since it was made: `high`, `max`, `oom`, `oom_kill`."""
    is_cut_above: bool
    """Limits of groups above it cannot be seen from here, in a container."""
    thread_stack_bytes: Optional[int]
    """Of the kernel's memory what one thread's stack takes on this machine, for a kernel that does not count them by group."""
    batch_bytes: int
    """So much may be missing or too much in its counters: each CPU keeps some pages back before it counts them."""


class GroupBelow(NamedTuple):
    """A memory cgroup right below another one, such as a container of a pod."""

    path: Annotated[str, Column("group below", TEXT)]
    current_bytes: Annotated[int, Column("bytes", BYTES)]
    """Part of the other's."""
    limit_bytes: Annotated[Optional[int], Column("limit", BYTES, None, IF_KNOWN)]
    """Its own; None: none."""
    kills: Annotated[Optional[int], Column("killed for memory", PLAIN, None, IF_ANY)]
    """Processes that were killed for memory in it (oom_kill)."""


class GroupProcess(NamedTuple):
    """A process of a memory cgroup, read while it runs."""

    pid: int
    name: str
    anonymous_bytes: int
    """RssAnon of /proc/PID/status."""
    swapped_bytes: Optional[int]
    threads: Optional[int]
    page_tables_bytes: Optional[int]
    locked_bytes: Optional[int]
    """VmLck: mlock; the kernel cannot take it."""
    pinned_bytes: Optional[int]
    """VmPin: pinned for a device."""
    uses: Optional[Sequence[MappingUse]]
    """Of every mapping; None: this user may not read it."""
    gpu_bytes: Mapping[str, int]
    """By region what drivers of GPUs say in /proc/PID/fdinfo, such as `vram0` or `gtt`."""


class InContainer(NamedTuple):
    """Names of the control groups that a process runs in, as Kubernetes labels them; None: in none, or not recognised."""

    container_id: Optional[str] = None
    pod_uid: Optional[str] = None


def find_memory_group(which: str, files: Optional[headroom.HeadroomFiles] = None) -> "LiveGroup":
    """The group of this path, of this pod or container, or of the process with this number; HeapxError where there is none, or several."""
    files = files or headroom.HeadroomFiles()
    places = [*headroom.iterate_cgroup_mounts(files, headroom.V1), *headroom.iterate_cgroup_mounts(files, headroom.V2)]
    tops = [mount for mount in places if files.text(os.path.join(mount.folder, "memory.stat")) is not None]
    for mount in places:
        controllers = (files.text(os.path.join(mount.folder, "cgroup.controllers")) or "").split()
        tops += [mount] if mount not in tops and mount.kind == headroom.V2 and "memory" in controllers else []
    if not tops:
        raise HeapxError("no file system of memory cgroups is mounted here", "run it on the host, or mount /sys/fs/cgroup", code=NO_GROUP)
    if which.isascii() and which.isdigit():
        return _of_process(int(which), tops, files)
    return _find_group_at(which, tops, files) if which.startswith("/") else _find_named_group(which, tops, files)


def _of_process(pid: int, tops: Sequence[headroom.Mount], files: headroom.HeadroomFiles) -> "LiveGroup":
    if files.text("%s/%d/cgroup" % (files.proc, pid)) is None:
        raise HeapxError("no such process: %d" % pid, "list processes with: ps -e", code=NO_PROCESS)
    try:
        found = next(iter(headroom.iterate_memory_cgroups(pid, files)), None)
    except headroom.Hidden as hidden:
        raise HeapxError(str(hidden), "run it on the host, with the pid seen there", code=NO_GROUP)
    if found is None:
        raise HeapxError("process %d is in no memory cgroup" % pid, "give the path of a group", code=NO_GROUP)
    mount = next((top for top in tops if found[0] == top.folder or found[0].startswith(top.folder + "/")), None)
    return LiveGroup(mount or headroom.Mount(found[2], found[0], found[1]), found[0], files)


def _find_group_at(path: str, tops: Sequence[headroom.Mount], files: headroom.HeadroomFiles) -> "LiveGroup":
    """`path`: as /proc/PID/cgroup has it, or in the file system."""
    path = os.path.normpath(path)
    for top in tops:
        inner = path
        for start in (top.folder, top.root):
            if path == start or path.startswith(start.rstrip("/") + "/"):
                inner = path[len(start.rstrip("/")) :]
                break
        folder = os.path.join(top.folder, inner.strip("/")).rstrip("/")
        if os.path.isdir(folder):
            return LiveGroup(top, folder, files)
    known = [place.path for place in _iterate_groups(tops, files)]
    raise HeapxError("no memory cgroup has the path %s" % path, _resolve_word(path, known), code=NO_GROUP)


def _resolve_word(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known[:MOST_GROUPS], 1)
    return "did you mean %s?" % near[0] if near else "list groups with: systemd-cgls, or find /sys/fs/cgroup -type d"


def names_of(folder: str) -> List[str]:
    """Return the names that a group may be called: its folder, the folder without the unit's suffix, the id of its container, the uid of
    its pod.
    """
    base = os.path.basename(folder)
    unit = UNIT.match(base)
    plain = unit.group(1) if unit is not None else base
    found = [base, plain]
    for pattern in (CONTAINER, POD):
        match = pattern.search("/" + base)
        if match is not None:
            found += [match.group(1), match.group(1).replace("_", "-")]
    return found


def container_of(groups: str) -> InContainer:
    """Return the container and pod named by the text of /proc/PID/cgroup. If a container runs others, the outer one is returned: the
    cluster knows no other.
    """
    pods = list(POD.finditer(groups))
    container = CONTAINER.search(groups, pods[-1].end() if pods else 0)
    uid = pods[-1].group(1).replace("_", "-") if pods else None
    return InContainer(container.group(1) if container is not None else None, uid)


def _find_named_group(which: str, tops: Sequence[headroom.Mount], files: headroom.HeadroomFiles) -> "LiveGroup":
    """Find the group by a name, or by the beginning of an id or name that only one group has. HeapxError if there is none, or several."""
    places = list(_iterate_groups(tops, files))
    names = [(place, names_of(place.folder)) for place in places]
    exact = [place for place, known in names if which in known]
    found = exact or [place for place, known in names if any(name.startswith(which) for name in known)]
    if len(found) == 1:
        return found[0]
    if not found:
        known = sorted({name for _, some in names for name in some})
        raise HeapxError("no memory cgroup, pod or container is called %s" % which, _resolve_word(which, known), code=NO_GROUP)
    what = "%d memory cgroups are called %s: %s" % (len(found), which, list_names("group", [place.path for place in found], MOST_TOLD))
    raise HeapxError(what, "give more of the id, or the path", code=NO_GROUP)


def _iterate_groups(tops: Sequence[headroom.Mount], files: headroom.HeadroomFiles) -> Iterator["LiveGroup"]:
    count = 0
    for top in tops:
        for folder, _, _ in os.walk(top.folder):
            count += 1
            if count > MOST_GROUPS:
                return
            yield LiveGroup(top, folder, files)


class LiveGroup:
    """Memory cgroup of this machine."""

    def __init__(self, mount: headroom.Mount, folder: str, files: headroom.HeadroomFiles) -> None:
        self._mount, self.folder, self._files, self._kind = mount, folder, files, mount.kind

    @property
    def path(self) -> str:
        """Return the path as in /proc/PID/cgroup."""
        inner = os.path.relpath(self.folder, self._mount.folder)
        return os.path.normpath(os.path.join(self._mount.root, inner))

    def _read_number(self, folder: str, name: str) -> Optional[int]:
        return self._files.number(os.path.join(folder, name))

    def memory(self) -> GroupMemory:
        """Its counters now; HeapxError where the group has none, or is gone."""
        folder, files = self.folder, self._files
        used = self._read_number(folder, USED[self._kind])
        if folder == self._mount.folder and headroom.is_uppermost(self._mount, files):
            what = "the uppermost memory cgroup is the whole machine: the kernel counts no sum for it"
            raise HeapxError(what, "give a group below it, a pod, a container or a process", code=NO_GROUP)
        if used is None:
            what = "memory cgroup %s has no %s" % (self.path, USED[self._kind])
            raise HeapxError(what, "it is gone, or the group above it does not pass the memory controller on", code=NO_GROUP)
        stat, above = self._read_stat(folder), [self]  # and the groups above it that can be seen
        while above[-1].folder != self._mount.folder and above[-1].folder.startswith(self._mount.folder):
            above.append(LiveGroup(self._mount, os.path.dirname(above[-1].folder), files))
        limits = [
            (value, place.path) for place in above for value in [self._read_number(place.folder, LIMIT[self._kind])] if value is not None
        ]
        limit = min(limits, default=(headroom.NO_LIMIT_BYTES, ""), key=lambda pair: pair[0])
        highs = [self._read_number(place.folder, "memory.high") for place in above] if self._kind == headroom.V2 else []
        high = min((value for value in highs if value is not None), default=headroom.NO_LIMIT_BYTES)
        swap_max = self._read_number(folder, "memory.swap.max") if self._kind == headroom.V2 else None
        machine = files.fields("%s/meminfo" % files.proc)
        # a power of two: what all threads of the machine have, by their number
        counted = re.search(r"/(\d+) ", files.text("%s/loadavg" % files.proc) or "")
        all_bytes, threads = machine.get("KernelStack"), int(counted.group(1)) if counted is not None else 0
        swapped = self._read_number(folder, "memory.swap.current") if self._kind == headroom.V2 else stat.pop("swap", None)
        return GroupMemory(
            self.path,
            1 if self._kind == headroom.V1 else 2,
            used,
            stat,
            None if limit[0] >= headroom.NO_LIMIT_BYTES else limit[0],
            None if limit[0] >= headroom.NO_LIMIT_BYTES else limit[1],
            None if high >= headroom.NO_LIMIT_BYTES else high,
            swapped,
            None if swap_max is None or swap_max >= headroom.NO_LIMIT_BYTES else swap_max,
            machine.get("SwapFree", 0),
            self._read_events(folder),
            not headroom.is_uppermost(self._mount, files),
            1 << round(math.log2(all_bytes / threads)) if all_bytes and threads else None,
            2 * BATCH_PAGES * (os.cpu_count() or 1) * os.sysconf("SC_PAGESIZE"),
        )

    def _read_stat(self, folder: str) -> Dict[str, int]:
        told = self._files.fields(os.path.join(folder, "memory.stat"))
        if self._kind == headroom.V2:
            return told
        stat = {key: told[old] for key, old in OF_V1.items() if old in told}
        kernel = self._read_number(folder, "memory.kmem.usage_in_bytes")
        if kernel is not None:
            stat["kernel"] = kernel
        if "total_swap" in told:
            stat["swap"] = told["total_swap"]
        return stat

    def _read_events(self, folder: str) -> Dict[str, int]:
        if self._kind == headroom.V2:
            return self._files.fields(os.path.join(folder, "memory.events"))
        told = self._files.fields(os.path.join(folder, "memory.oom_control"))
        failed = self._read_number(folder, "memory.failcnt")
        return {**{key: told[key] for key in (headroom.KILLS,) if key in told}, **({"max": failed} if failed is not None else {})}

    def below(self) -> Sequence[GroupBelow]:
        """Return the groups directly below it, largest first."""
        found = []
        for name in sorted(next(os.walk(self.folder), ("", [], []))[1])[:MOST_GROUPS]:
            place = LiveGroup(self._mount, os.path.join(self.folder, name), self._files)
            used, limit = self._read_number(place.folder, USED[self._kind]), self._read_number(place.folder, LIMIT[self._kind])
            if used is not None:
                known = None if limit is None or limit >= headroom.NO_LIMIT_BYTES else limit
                found.append(GroupBelow(place.path, used, known, self._read_events(place.folder).get(headroom.KILLS)))
        return sorted(found, key=lambda group: -group.current_bytes)

    def processes(self) -> Tuple[Sequence[GroupProcess], int]:
        """Return the processes in the group and below it, and the number of those that could not be read at all, or ended meanwhile."""
        pids: Dict[int, None] = {}
        for number, (folder, _, _) in enumerate(os.walk(self.folder)):
            for word in (self._files.text(os.path.join(folder, "cgroup.procs")) or "").split():
                pids[int(word)] = None  # 0: of another pid namespace
            if number > MOST_GROUPS or len(pids) > MOST_PROCESSES:
                break
        processes = [read_process(pid, self._files) for pid in pids]
        return [process for process in processes if process is not None], processes.count(None)


def read_process(pid: int, files: headroom.HeadroomFiles) -> Optional[GroupProcess]:
    """Read one process as it runs, or return None if it has ended, or is of another pid namespace. Takes its mmap lock for as long as
    smaps does.
    """
    fields = files.fields("%s/%d/status" % (files.proc, pid)) if pid else {}
    if "VmSize" not in fields:  # a zombie has none
        return None
    if files.proc == "/proc":
        use = usage.make_smaps_usage(*usage.read_smaps_texts(pid))
    else:
        use = usage.make_smaps_usage(procfs.slurp_file("%s/%d/smaps" % (files.proc, pid)) or b"", b"", {})
    if use is None and "VmSize" not in files.fields("%s/%d/status" % (files.proc, pid)):
        return None
    name = (procfs.slurp_file("%s/%d/comm" % (files.proc, pid)) or b"?").decode("utf-8", "replace").rstrip("\n")
    return GroupProcess(
        pid,
        name,
        fields.get("RssAnon", 0),
        fields.get("VmSwap"),
        fields.get("Threads"),
        fields.get("VmPTE"),
        fields.get("VmLck"),
        fields.get("VmPin"),
        use.mappings if use is not None else None,
        gpu_memory(pid, files),
    )


def gpu_memory(pid: int, files: headroom.HeadroomFiles) -> Dict[str, int]:
    """Return bytes by region, as the drivers of its GPUs count them for the process: each client once, however many descriptors it has."""
    folder = "%s/%d/fd" % (files.proc, pid)
    clients: Dict[Tuple[str, ...], Dict[str, int]] = {}
    try:
        numbers = os.listdir(folder)[:MOST_DESCRIPTORS]
    except OSError:
        return {}
    for number in numbers:
        try:
            if not os.readlink(os.path.join(folder, number)).startswith(GPU_FILES):
                continue
        except OSError:
            continue
        text = files.text("%s/%d/fdinfo/%s" % (files.proc, pid, number)) or ""
        told: Dict[str, Dict[str, int]] = {"resident": {}, "memory": {}}
        for kind, region, size, unit in GPU_LINE.findall(text):
            told[kind][region] = int(size) << {"KiB": 10, "MiB": 20}.get(unit, 0)
        clients[tuple(GPU_CLIENT.findall(text)) or (number,)] = {**told["memory"], **told["resident"]}
    sums: Dict[str, int] = {}
    for regions in clients.values():
        for region, size_bytes in regions.items():
            sums[region] = sums.get(region, 0) + size_bytes
    return {region: size_bytes for region, size_bytes in sums.items() if size_bytes}
