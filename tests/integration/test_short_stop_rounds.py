"""A process that goes on writing, copied in rounds: its own record of what it has written is whole in the copy.

Files: actions/short_stop.py
"""

import struct
import subprocess
import sys
from typing import Iterator

import pytest

from gdbheapx import kernel
from gdbheapx.actions.short_stop import CHEAP_PAGES, ShortStop, is_enough
from gdbheapx.copying import Copying
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.live.page_table import kernel_release
from gdbheapx.inferior.target import open_elf_target

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
    struct.pack_into("<QQ", m, 0, i, place)      # what comes next
    struct.pack_into("<Q", m, place, i)
    struct.pack_into("<Q", m, 16, i)             # it is done
"""


@pytest.fixture
def writer() -> Iterator["subprocess.Popen[bytes]"]:
    """It numbers its writes, and says beforehand where the next one goes."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    yield program
    program.kill()
    program.communicate()


def test_the_copy_is_of_one_instant(writer: "subprocess.Popen[bytes]") -> None:
    """The largest number in its memory is the one that it has recorded, and stands where it has recorded it."""
    assert writer.stdout is not None
    if kernel_release() < (6, 7) or kernel.load().name != "c":
        pytest.skip("no short stops here")
    address, compiled = int(writer.stdout.readline()), kernel.compiled(kernel.load())
    for _ in range(LOOKS):
        target = open_elf_target(pid=writer.pid)
        table = target.page_table()
        assert table is not None
        copying = Copying(compiled, compiled.copy(table))
        assert copying.prepare(target) > 16 << 20
        try:
            short = ShortStop(compiled.library, target, copying, True)
        except HeapxError as error:
            pytest.skip(error.message)
        short.begin()
        assert short.rounds
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
