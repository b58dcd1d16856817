"""A process that goes on writing, copied in rounds: its own record of what it has written is whole in the copy.

Files: addons/labs/short_stop/stop.py.
"""

import os
import struct
import sys
from typing import Any, Tuple

import pytest

from gdbheapx import kernel
from gdbheapx.addons.labs.short_stop import stop, userfaultfd
from gdbheapx.addons.labs.short_stop.stop import CHEAP_PAGES, ShortStop, is_enough
from gdbheapx.app.stopping import Copying
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.target import open_elf_target
from tests.support.processes import Stage

pytestmark = pytest.mark.once  # a container forbids userfaultfd
LOOKS = 5
PROGRAM = """
import ctypes, mmap, random, struct
n = 16 << 20
m = mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
for place in range(0, n, 4096): m[place : place + 8] = bytes(8)
print(at, flush=True)
i = 0
while True:
    i += 1
    place = 4096 * random.randrange(1, n // 4096)
    m[:16] = struct.pack("<QQ", i, place)        # what comes next; pack_into would write zeros first
    m[place : place + 8] = struct.pack("<Q", i)
    m[16:24] = struct.pack("<Q", i)              # it is done
"""


CHANGER = """
import ctypes, mmap, os, sys, time
huge, page, fixed, drop = 2 << 20, 4096, 0x32, 4
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
def new(at, size): return libc.mmap(ctypes.c_void_p(at), ctypes.c_size_t(size), 3, fixed if at else 0x22, -1, ctypes.c_long(0))
def move(of, to, size): assert libc.mremap(ctypes.c_void_p(of), ctypes.c_size_t(size), ctypes.c_size_t(size), 3, ctypes.c_void_p(to)) == to
def gone(at, size): assert not libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
def advise(at, size, how): libc.madvise(ctypes.c_void_p(at), ctypes.c_size_t(size), how)
def fill(at, size, what): ctypes.memset(at, what, size)
def read(at): return ctypes.string_at(at, 1)
size = 24 * huge
base = -(-new(0, size + huge) // huge) * huge
advise(base + 12 * huge, 4 * huge, 14)           # huge pages there, small ones elsewhere
for part in (0, 16 * huge): advise(base + part, 8 * huge if part else 12 * huge, 15)
for at in range(0, size, page): fill(base + at, page, at // page % 251 + 1)
sys.stdout.write("%d %d\\n" % (base, size)); sys.stdout.flush()
assert sys.stdin.readline()
gone(base, huge); move(base + huge, base, huge)                            # a whole page table, to where another was
new(base + huge, huge); fill(base + huge, huge // 2, 201)                  # partly touched anew
gone(base + 2 * huge, page); move(base + 2 * huge + page, base + 2 * huge, page); new(base + 2 * huge + page, page)
advise(base + 3 * huge, huge, drop)                                        # gone
advise(base + 4 * huge, huge, drop); [read(base + 4 * huge + at) for at in range(0, huge, page)]    # zeros that were read
advise(base + 5 * huge, 8 * page, drop); fill(base + 5 * huge, page, 202)
fill(base + 6 * huge + 5, 1, 203)
pid = os.fork()
if not pid:
    fill(base + 7 * huge, huge, 204)                                       # its own
    os._exit(0)
fill(base + 7 * huge + page, page, 205); os.waitpid(pid, 0)
child = os.fork()
if not child:
    os.read(0, 1); os._exit(0)                                             # it shares all pages from now on
fill(base + 7 * huge + 2 * page, page, 206)
move(base + 8 * huge, base + 9 * huge, huge); new(base + 8 * huge, huge)   # over one that was there
for how in (1, 3): assert not libc.mprotect(ctypes.c_void_p(base + 10 * huge), ctypes.c_size_t(16 * page), how)
fill(base + 10 * huge + 3 * page, page, 208)
fill(base + 12 * huge + 9 * page, 1, 207)                                  # a huge page
move(base + 13 * huge, base + 14 * huge, huge); new(base + 13 * huge, huge)
advise(base + 15 * huge, huge, drop); read(base + 15 * huge)
sys.stdout.write("done\\n"); sys.stdout.flush()
sys.stdin.readline()
"""
"""Changes its memory in all ways, once it is told."""


def prepared(pid: int) -> Tuple[Any, Any, ShortStop]:
    """A process that is about to be copied while it runs, by what this kernel has."""
    if userfaultfd.find_lacking_injection() and not stop.is_by_marks():
        pytest.skip("no short stops here: %s; %s" % (userfaultfd.find_lacking_injection(), stop.find_lacking_marks()))
    compiled, target = kernel.load_native_library(), open_elf_target(pid=pid)
    table = target.page_table()
    assert table is not None
    copying = Copying(compiled, compiled.copy(table))
    assert copying.prepare(target) > 16 << 20
    try:
        return target, copying, ShortStop(compiled.library, target, copying, True, stop.is_by_marks())
    except HeapxError as error:
        pytest.skip(error.message)


def test_whatever_it_does_with_its_memory(stage: Stage) -> None:
    """What is copied while it runs, and then in the stop, is what is there."""
    program = stage.spawn([sys.executable, "-c", CHANGER])
    address, size = map(int, program.popen.stdout.readline().split())
    target, copying, short = prepared(program.pid)
    short.begin()
    program.send(b"go\n")
    assert program.popen.stdout.readline() == b"done\n"
    target.stop()
    with open("/proc/%d/mem" % program.pid, "rb", buffering=0) as memory:
        there = os.pread(memory.fileno(), size, address)
    assert copying.take(target) is None
    short.end()
    copied = target.read_prefix(address, size)
    assert len(copied) == len(there) == size
    pages = range(0, size, 4096)
    assert [at // 4096 for at in pages if copied[at : at + 4096] != there[at : at + 4096]] == []
    assert target.dirty_pages < size // 4096 * 3 // 4, "most was kept"


def test_the_copy_is_of_one_instant(stage: Stage) -> None:
    """The largest number in its memory is the one that it has recorded, and stands where it has recorded it."""
    writer = stage.spawn([sys.executable, "-c", PROGRAM]).popen
    address = int(writer.stdout.readline())
    for _ in range(LOOKS):
        target, copying, short = prepared(writer.pid)
        short.begin()
        assert short.rounds or stop.is_by_marks()
        target.stop()
        assert copying.take(target) is None
        short.end()
        memory = target.read_prefix(address, 16 << 20)
        begun, place, done = struct.unpack_from("<QQQ", memory)
        numbers = {at: struct.unpack_from("<Q", memory, at)[0] for at in range(4096, len(memory), 4096)}
        largest = max(numbers.values())
        assert begun - 1 <= done <= largest <= begun
        assert done == 0 or begun > done or numbers[place] == begun
    assert writer.poll() is None


def test_when_rounds_end() -> None:
    """What is left is cheap, or does not get less."""
    assert not is_enough([]) and not is_enough([CHEAP_PAGES + 1]) and is_enough([CHEAP_PAGES])
    assert is_enough([9000, 9000]) and not is_enough([9000, 5000])
