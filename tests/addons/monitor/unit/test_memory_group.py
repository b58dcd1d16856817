"""A memory cgroup by path, by the id of a pod or container, by a process: found, or refused with a next step; its counters of both versions.

Files: addons/monitor/memory_group.py.
"""

import os
from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from gdbheapx.addons.monitor import memory_group
from gdbheapx.common.errors import HeapxError
from tests.support.cgroup_files import PID, V1_MOUNT, V2_MOUNT, Machine, v2

MIB = 1 << 20
BOX = "ab" * 32
OTHER = "ab" * 31 + "cd"
CRIO = "c0" * 32
UID = "0123abcd_1111_2222_3333_444455556666"
DASHED = UID.replace("_", "-")
ID, INNER = BOX, "cd" * 32
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%s.slice" % UID
STAT = {"anon": 60 * MIB, "file": 30 * MIB, "kernel": 5 * MIB, "shmem": 0}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A node with a pod of two containers, a container of Docker and a service, of version 2."""
    made = Machine(tmp_path)
    made.process("0::%s/cri-containerd-%s.scope\n" % (POD, BOX), V2_MOUNT % ("/", made.top))
    made.group("/", {"cgroup.controllers": "memory", "memory.stat": "anon 1"})
    made.group(POD, v2(200 * MIB, 150 * MIB, 180 * MIB), STAT)
    files = {**v2("max", 100 * MIB), "memory.events": "low 0\nhigh 3\nmax 7\noom 1\noom_kill 2", "memory.swap.current": 8 * MIB, "memory.swap.max": 16 * MIB}
    made.group(POD + "/cri-containerd-%s.scope" % BOX, files, STAT)
    made.group(POD + "/cri-containerd-%s.scope" % OTHER, v2(50 * MIB, 40 * MIB), STAT)
    made.group("/system.slice/docker-%s.scope" % ("77" * 32), v2("max", 10 * MIB), STAT)
    made.group("/machine.slice/crio-%s.scope" % CRIO, v2("max", 20 * MIB), STAT)
    made.group("/machine.slice/crio-conmon-%s.scope" % CRIO, v2("max", 20 * MIB), STAT)
    made.group("/system.slice/redis.service", v2("max", 20 * MIB), STAT)
    return made


@pytest.mark.parametrize(
    "which, path",
    [
        (str(PID), POD + "/cri-containerd-%s.scope" % BOX),
        (BOX, POD + "/cri-containerd-%s.scope" % BOX),
        (OTHER[:63], POD + "/cri-containerd-%s.scope" % OTHER),
        (UID.replace("_", "-"), POD),
        ("0123abcd-1111", POD),
        ("7777", None),
        ("77777777777a", None),
        (CRIO[:12], "/machine.slice/crio-%s.scope" % CRIO),
        ("crio-conmon-" + CRIO, "/machine.slice/crio-conmon-%s.scope" % CRIO),
        ("redis", "/system.slice/redis.service"),
        ("redis.service", "/system.slice/redis.service"),
        ("/system.slice/redis.service", "/system.slice/redis.service"),
        ("/system.slice/redis.service/", "/system.slice/redis.service"),
    ],
)
def test_which_group_it_is(machine: Machine, which: str, path: "str | None") -> None:
    """By pid, by id or its beginning, by the name of a service, by path; digits alone are a pid."""
    if path is None:
        with pytest.raises(HeapxError) as raised:
            memory_group.find_memory_group(which, machine.files)
        assert raised.value.hint
    else:
        assert memory_group.find_memory_group(which, machine.files).memory().path == path


def test_a_path_of_the_file_system(machine: Machine) -> None:
    """As a shell completes it."""
    assert memory_group.find_memory_group(str(machine.top / "system.slice" / "redis.service"), machine.files).memory().path == "/system.slice/redis.service"


@pytest.mark.parametrize(
    "which, code, told",
    [
        ("ab" * 10, "no-group", "give more of the id"),
        ("redsi", "no-group", "did you mean redis?"),
        ("/system.slice/redis.servic", "no-group", "did you mean /system.slice/redis.service?"),
        ("../../etc", "no-group", ""),
        ("/../../../etc", "no-group", ""),
        ("999999999", "no-process", "ps -e"),
        ("/", "no-group", "give a group below it"),
    ],
)
def test_what_is_no_group(machine: Machine, which: str, code: str, told: str) -> None:
    """Refused in one line with a next step: several, none with one that is near, none at all, the whole machine."""
    with pytest.raises(HeapxError) as raised:
        memory_group.find_memory_group(which, machine.files).memory()
    assert raised.value.code == code and told in (raised.value.hint or ""), raised.value.line()


def test_counters_of_version_2(machine: Machine) -> None:
    """The nearest limit is the pod's, which stands above the container; swap and events are the container's own."""
    memory = memory_group.find_memory_group(BOX, machine.files).memory()
    assert (memory.cgroup_version, memory.current_bytes, memory.stat["anon"]) == (2, 100 * MIB, 60 * MIB)
    assert (memory.limit_bytes, memory.limit_of, memory.high_bytes) == (200 * MIB, POD, 180 * MIB)
    assert (memory.swapped_bytes, memory.swap_max_bytes, memory.events["oom_kill"]) == (8 * MIB, 16 * MIB, 2)
    own = memory_group.find_memory_group(OTHER, machine.files).memory()
    assert (own.limit_bytes, own.limit_of, own.swapped_bytes) == (50 * MIB, "%s/cri-containerd-%s.scope" % (POD, OTHER), None)


def test_groups_below(machine: Machine) -> None:
    """The containers of a pod, largest first; a container has none."""
    pod = memory_group.find_memory_group(UID.replace("_", "-"), machine.files).below()
    assert [(below.current_bytes, below.limit_bytes, below.kills) for below in pod] == [(100 * MIB, None, 2), (40 * MIB, 50 * MIB, None)]
    assert pod[0].path == "%s/cri-containerd-%s.scope" % (POD, BOX) and memory_group.find_memory_group(BOX, machine.files).below() == []


def test_counters_of_version_1(tmp_path: Path) -> None:
    """Keys are those of version 2; the kernel's memory has a file of its own; what is below the group counts (total_)."""
    machine = Machine(tmp_path)
    machine.process("4:memory:/a/b\n", V1_MOUNT % ("/", machine.top))
    machine.group("/", {"cgroup.sane_behavior": "0", "memory.stat": "total_rss 1"})
    files = {"memory.limit_in_bytes": 0x7FFFFFFFFFFFF000, "memory.usage_in_bytes": 90 * MIB, "memory.kmem.usage_in_bytes": 4 * MIB, "memory.failcnt": 5}
    stat = {"rss": 1, "total_rss": 50 * MIB, "total_cache": 30 * MIB, "total_mapped_file": 3 * MIB, "total_swap": MIB}
    machine.group("/a", {"memory.limit_in_bytes": 100 * MIB}, stat)
    machine.group("/a/b", {**files, "memory.oom_control": "oom_kill_disable 0\noom_kill 6"}, stat)
    memory = memory_group.find_memory_group(str(PID), machine.files).memory()
    assert (memory.cgroup_version, memory.path, memory.limit_of, memory.limit_bytes) == (1, "/a/b", "/a", 100 * MIB)
    assert memory.stat == {"anon": 50 * MIB, "file": 30 * MIB, "file_mapped": 3 * MIB, "kernel": 4 * MIB} and memory.swapped_bytes == MIB
    assert memory.events == {"oom_kill": 6, "max": 5} and not memory.is_cut_above


def test_no_group_at_all(tmp_path: Path) -> None:
    """Where nothing is mounted."""
    machine = Machine(tmp_path)
    machine.process("0::/\n")
    with pytest.raises(HeapxError, match="no file system of memory cgroups"):
        memory_group.find_memory_group("x", machine.files)


SMAPS = "00400000-00500000 rw-p 00000000 00:00 0 \nSize: 1024 kB\nRss: 512 kB\nPss: 512 kB\nAnonymous: 512 kB\n"


def add(machine: Machine, pid: int, **files: str) -> None:
    """A process with these files."""
    for name, text in files.items():
        machine.write(machine.proc / str(pid) / name, text)


def test_processes(machine: Machine) -> None:
    """Those of the group and below it, each once; a zombie, one of another pid namespace (0) and one that is gone count as lost; smaps
    that cannot be read is unknown."""
    add(machine, 20, status="Name:\tx\nVmSize:\t9 kB\nRssAnon:\t512 kB\nVmPTE:\t8 kB\nVmLck:\t4 kB\nVmPin:\t2 kB\nThreads:\t3\n", comm="a\n", smaps=SMAPS)
    add(machine, 21, status="Name:\ty\nVmSize:\t9 kB\nRssAnon:\t64 kB\n", comm="b\n")
    add(machine, 22, status="Name:\tz\nState:\tZ\n")
    machine.group(POD, {"cgroup.procs": "20\n21"})
    machine.group(POD + "/cri-containerd-%s.scope" % BOX, {"cgroup.procs": "20\n22\n0\n23"})
    found, lost = memory_group.find_memory_group("0123abcd-1111", machine.files).processes()
    assert lost == 3 and [(process.pid, process.name) for process in found] == [(20, "a"), (21, "b")]
    first, second = found
    assert (first.threads, first.page_tables_bytes, first.locked_bytes, first.pinned_bytes) == (3, 8 << 10, 4 << 10, 2 << 10)
    assert first.uses is not None and first.uses[0].anonymous_bytes == 512 << 10 and second.uses is None and second.anonymous_bytes == 64 << 10


def gpu(machine: Machine, files: Dict[str, Tuple[str, str]]) -> Dict[str, int]:
    """What these descriptors give."""
    for number, (link, text) in files.items():
        machine.write(machine.proc / "30" / "fdinfo" / number, text)
        (machine.proc / "30" / "fd").mkdir(exist_ok=True)
        os.symlink(link, machine.proc / "30" / "fd" / number)
    return memory_group.gpu_memory(30, machine.files)


def test_memory_of_gpus(machine: Machine) -> None:
    """By region; a client with two descriptors counts once, two clients add up; other files are not asked; old and new keys."""
    first = "drm-driver:\tamdgpu\ndrm-client-id:\t5\ndrm-pdev:\t0000:01\ndrm-memory-vram:\t1024 KiB\ndrm-resident-vram:\t2048 KiB\ndrm-resident-gtt:\t3 MiB\n"
    second = "drm-client-id:\t6\ndrm-pdev:\t0000:01\ndrm-memory-gtt:\t1 MiB\ndrm-memory-cpu:\t0\n"
    files = {"3": ("/dev/dri/renderD128", first), "4": ("/dev/dri/renderD128", first), "5": ("/dev/dri/card0", second), "6": ("/etc/passwd", first)}
    assert gpu(machine, files) == {"vram": 2 * MIB, "gtt": 4 * MIB}
    assert memory_group.gpu_memory(31, machine.files) == {}


@pytest.mark.parametrize(
    "groups, place",
    [
        ("0::/system.slice/redis.service", (None, None)),
        ("0::/", (None, None)),
        ("0::/system.slice/docker-%s.scope" % ID, (ID, None)),
        ("0::/docker/%s" % ID, (ID, None)),
        ("0::/kubepods.slice/kubepods-pod%s.slice/cri-containerd-%s.scope" % (UID, ID), (ID, DASHED)),
        ("0::/../../kubepods-burstable-pod%s.slice/crio-%s.scope/container" % (UID, ID), (ID, DASHED)),
        ("12:memory:/kubepods/burstable/pod%s/%s\n1:name=systemd:/kubepods/burstable/pod%s/%s" % (DASHED, ID, DASHED, ID), (ID, DASHED)),
        ("0::/kubepods/pod%s/%s" % ("a1" * 16, ID), (ID, "a1" * 16)),
        ("0::/docker/%s/kubepods/pod%s/%s" % (INNER, DASHED, ID), (ID, DASHED)),
        ("0::/kubepods/pod%s/%s/docker/%s" % (DASHED, ID, INNER), (ID, DASHED)),
        ("0::/machine.slice/libpod_pod_%s.slice/libpod-%s.scope" % (INNER, ID), (ID, None)),
        ("0::/machine.slice/crio-conmon-%s.scope" % ID, (None, None)),
        ("0::/pod%s" % DASHED, (None, DASHED)),
        ("0::/a/%s0" % ID, (None, None)),
        ("0::/a/podxyz/%s" % ID[:-1], (None, None)),
    ],
)
def test_the_container_of_a_process(groups: str, place: Tuple[Any, Any]) -> None:
    """The names that kubelet, containerd, CRI-O, Docker and podman give; in Kubernetes' own spelling. What only looks alike is none."""
    assert memory_group.container_of(groups + "\n") == place
