"""Programs that nobody here wrote: python3, a Java virtual machine, bash."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Callable

import pytest

from tests.support.glibc import FIELDS, check_identity, found_fields
from tests.support.paths import PROGRAMS
from tests.support.processes import Process, Stage
from tests.support.tool import answers, heapx

pytestmark = pytest.mark.image  # programs of its own, on its libc

PYTHON = "/usr/bin/python3"

# Lists, dicts, strings and bytes of many sizes, half of them dropped; then libc's own accounts through ctypes, taken into
# memory that is there already, twice, until two in a row agree.
PYTHON_PROGRAM = r"""
import ctypes, os, sys
folder = sys.argv[1]
libc = ctypes.CDLL(None)
kind = ctypes.c_size_t
try:
    mallinfo = libc.mallinfo2
except AttributeError:  # before glibc 2.33: the same in int
    mallinfo, kind = libc.mallinfo, ctypes.c_int
class Info(ctypes.Structure):
    _fields_ = [(name, kind) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
mallinfo.restype = Info
libc.fdopen.restype = ctypes.c_void_p
libc.fdopen.argtypes = [ctypes.c_int, ctypes.c_char_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = libc.rewind.argtypes = [ctypes.c_void_p]
libc.setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
keep = []
for i in range(int(sys.argv[2])):
    keep.append({"key %d" % i: [b"x" * (i % 3000), str(i) * (i % 40), [i] * (i % 70)]})
keep = [item for number, item in enumerate(keep) if number % 3]
buffer = ctypes.create_string_buffer(1 << 20)
fd = os.open(os.path.join(folder, "xml"), os.O_RDWR | os.O_CREAT, 0o600)
out = libc.fdopen(fd, b"r+")
libc.setvbuf(out, buffer, 0, 1 << 20)
info_fd = os.open(os.path.join(folder, "info"), os.O_RDWR | os.O_CREAT, 0o600)
os.write(1, b"ready\n")
info = Info()
for command in iter(lambda: os.read(0, 1), b""):
    libc.rewind(out)
    os.ftruncate(fd, 0)
    libc.malloc_info(0, out)
    libc.fflush(out)
    info = mallinfo()
    os.pwrite(info_fd, bytes(info), 0)
    os.write(1, b"ready\n")
"""

JAVA_PROGRAM = (PROGRAMS / "Hoard.java").read_text()


def python3(stage: Stage, objects: int) -> Process:
    """The system's python3, which has filled its heap."""
    if not Path(PYTHON).exists():
        pytest.skip("%s is not installed" % PYTHON)
    folder = stage.folder()
    return stage.spawn_ready([PYTHON, "-I", "-c", PYTHON_PROGRAM, str(folder), str(objects)], folder, {"PYTHONMALLOC": "malloc"})


@pytest.mark.parametrize("objects", [25000, pytest.param(200000, marks=pytest.mark.wild)])
def test_python3(stage: Stage, kind: str, objects: int, record_property: Callable[[str, object], None]) -> None:
    """python3 with 30 or 300 MB of objects in malloc: the identity holds, and the figures are those that libc gives inside it."""
    process = python3(stage, objects)
    # The first account warms everything up; accounts are then taken until two agree.
    accounts = []
    while len(accounts) < 2 or accounts[-1] != accounts[-2]:
        process.command(b"a")
        accounts.append(((process.folder / "xml").read_text(), (process.folder / "info").read_bytes()))
        assert len(accounts) < 20, "python3's heap does not come to rest"
    xml = accounts[-1][0]
    arenas, stats, info = answers(process.target(kind), process.folder, "arenas", "malloc-stats", "malloc-info")
    for envelope in (arenas, stats, info):
        assert envelope["partial"] is False, envelope["problems"]
    check_identity(arenas["data"])
    system = arenas["data"]["totals"]["glibc"]["system_bytes"]
    record_property("system_bytes", system)
    assert system > objects << 10
    assert info["data"]["xml"] == xml
    assert {key: found_fields(stats["data"])[key] for key in FIELDS} == dict(zip(FIELDS, struct.unpack("<10%s" % ("Q" if len(accounts[-1][1]) == 80 else "I"), accounts[-1][1])))


@pytest.mark.once  # what lies beside malloc depends on no libc
def test_python3_with_its_own_allocator(stage: Stage, kind: str) -> None:
    """python3 as it comes, with its small-object arenas in mmap beside the heap."""
    folder = stage.folder()
    process = stage.spawn_ready([PYTHON, "-I", "-c", PYTHON_PROGRAM, str(folder), "60000"], folder)
    outcome = heapx(process.target(kind), "arenas", "--json")
    check_identity(outcome.data)
    assert heapx(process.target(kind), "report").code == 0


@pytest.mark.once  # many arenas; test_accounts and test_blocks hold arenas on each libc
def test_java(stage: Stage, kind: str) -> None:
    """A Java virtual machine with 24 busy threads: many arenas, the identity holds in each."""
    if not shutil.which("java"):
        pytest.skip("no java is installed (default-jdk-headless)")
    folder = stage.folder()
    (folder / "Hoard.java").write_text(JAVA_PROGRAM)
    java = shutil.which("java")
    assert java
    options = [
        "-Xmx48m",
        "-XX:CompressedClassSpaceSize=16m",
        "-XX:ReservedCodeCacheSize=16m",
        "-Xshare:auto",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
    ]
    process = stage.spawn_ready([java, *options, "Hoard.java"], folder)
    outcome = heapx(process.target(kind), "arenas", "--json")
    if outcome.code == 4:  # a running machine may be stopped inside malloc: then an arena is locked, and that is said
        arenas = outcome.envelope["data"]["arenas"]
        assert any(arena["locked"] for arena in arenas), outcome.envelope["problems"]
        check_identity({"arenas": [arena for arena in arenas if not arena["locked"]], "totals": {}})
    else:
        check_identity(outcome.data)
        assert len(outcome.data["arenas"]) >= 5
        assert sum(arena["threads"] for arena in outcome.data["arenas"]) >= 20
    assert heapx(process.target(kind), "report", "--json").code in (0, 4)


@pytest.mark.once  # another program than python3, on the same libc
def test_bash(stage: Stage, kind: str) -> None:
    """bash, which has its own malloc on some systems and libc's here."""
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    process = stage.spawn_ready(
        [
            "bash",
            "-c",
            'for i in {1..20000}; do a[$i]="value $i $RANDOM"; done; unset "a[500]"; for i in {1000..9000}; do unset "a[$i]"; done; echo ready; read -r line',
        ]
    )
    outcome = heapx(process.target(kind), "arenas", "--json")
    check_identity(outcome.data)
    assert outcome.data["totals"]["glibc"]["system_bytes"] > 1 << 20
    assert outcome.data["totals"]["glibc"]["used_chunks"] > 10000


def test_jemalloc_owns_malloc(stage: Stage, kind: str) -> None:
    """With libjemalloc preloaded the tool names it as the owner of malloc, and reads it."""
    library = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    known = subprocess.run([library or "ldconfig", "-p"], capture_output=True, text=True).stdout
    if "libjemalloc.so.2" not in known:
        pytest.skip("libjemalloc2 is not installed")
    folder = stage.folder()
    process = stage.spawn_ready([PYTHON, "-I", "-c", PYTHON_PROGRAM, str(folder), "2000"], folder, {"LD_PRELOAD": "libjemalloc.so.2"})
    outcome = heapx(process.target(kind), "report", "--json")
    envelope = outcome.envelope
    owners = [allocator["name"] for allocator in envelope["allocators"] if allocator["owns_malloc"]]
    assert owners == ["jemalloc"]
    assert "jemalloc" in heapx(process.target(kind), "report").stdout.decode()
    arenas = heapx(process.target(kind), "arenas", "--json")
    assert arenas.code == 0 and arenas.data["totals"]["jemalloc"]["allocated_bytes"] > 1 << 20
