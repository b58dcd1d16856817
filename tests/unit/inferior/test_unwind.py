"""Call frames: what is damaged tells nothing, and no more than that; expressions come to what DWARF says.

Files: inferior/arch/aarch64.py, inferior/arch/x86_64.py, inferior/elf/images.py.
"""

import random
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.arch.x86_64 import ARCHITECTURE
from gdbheapx.inferior.base import StackCopy
from gdbheapx.inferior.elf import images
from gdbheapx.inferior.elf.file import ElfFile, read_sleb, read_uleb
from gdbheapx.inferior.elf.images import evaluate_expression

FOREIGN = Path(__file__).parents[3] / ".cache" / "foreign" / "arm64"
NUMBERS: Any = ARCHITECTURE.unwinding
WORDS = {0x1000 + 8 * number: 0x2000 + number for number in range(16)}


def libc() -> str:
    """The C library of this interpreter."""
    with open("/proc/self/maps") as maps:
        found = [line.split()[-1] for line in maps if "/libc.so.6" in line or "/libc-2." in line]
    if not found:
        pytest.skip("no shared libc")
    return found[0]


def test_rows_of_a_library() -> None:
    """Nearly all functions of libc have a row at each place, and their callers' stack pointers lie above."""
    frames = images.CallFrames(ElfFile(libc()))
    rows: List[Optional[images.UnwindRow]] = [frames.row(start) for start, _ in frames._table[::20]]
    known = [row for row in rows if row is not None]
    assert len(known) > 0.9 * len(rows) > 10
    by_stack = [row for row in known if row.register == NUMBERS.sp]
    saved = [row for row in by_stack if row.rules.get(NUMBERS.pc, ())[:2] == (images.SAVED, -8)]
    assert len(saved) > 0.98 * len(by_stack)  # of those that nobody returns from, as a thread's first, it is told otherwise
    plain = [row for row in known if (row.register, row.offset, len(row.rules)) == (NUMBERS.sp, 8, 1)]
    assert len(plain) > 0.5 * len(known)
    one = plain[0]
    after = images.unwind_caller(one, {NUMBERS.sp: 0x1000, 3: 7, 0: 1}, WORDS.get, NUMBERS)
    assert after == {NUMBERS.sp: 0x1008, NUMBERS.pc: 0x2000, 3: 7}


def test_the_last_function_has_an_end() -> None:
    """All functions of a library have one, as their own entry says: none begins behind the last, which was lost for that."""
    frames = images.CallFrames(ElfFile(libc()))
    found = frames.functions()
    assert found and all(start < end for start, end in found)
    last = max(range(len(found)), key=lambda place: found[place][0])
    assert frames.row(found[last][1] - 1) is not None and frames.row(found[last][1]) is None


class Damaged:
    """A file of which bytes were changed."""

    at = ElfFile.at

    def __init__(self, file: ElfFile, rng: random.Random) -> None:
        self.header, self.program_headers, self._file, self._rng = file.header, file.program_headers, file, rng
        self.work, self.pread_table = file.work, self.pread
        self.spoils = False

    def pread(self, offset: int, size: int) -> bytes:
        """With some of them changed."""
        data = bytearray(self._file.pread(offset, size))
        for _ in range(self._rng.randrange(4) if self.spoils and data else 0):
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        return bytes(data[: self._rng.randrange(len(data) + 1)] if self.spoils and self._rng.random() < 0.1 else data)


@pytest.mark.parametrize("seed", range(20))
def test_damage_tells_nothing(seed: int) -> None:
    """No exception, whatever stands there."""
    rng = random.Random(seed)
    damaged: Any = Damaged(ElfFile(libc()), rng)
    frames = images.CallFrames(damaged)
    damaged.spoils = True
    for _ in range(200):
        start = rng.choice(frames._table)[0]
        row = frames.row(start + rng.randrange(64))
        if row is not None:
            images.unwind_caller(row, dict.fromkeys(range(17), 4096), WORDS.get, NUMBERS)


def test_expressions() -> None:
    """Of the procedure linkage table, of a signal's frame; what is not known, or no operation that is read."""
    registers: Dict[int, int] = {7: 0x1000, 16: 0x1234b}
    linkage = bytes((0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22))
    assert evaluate_expression(linkage, registers, WORDS.get, None) == 0x1008 + (8 if 0x1234B & 15 >= 11 else 0)
    assert evaluate_expression(bytes((0x77, 16, 0x06)), registers, WORDS.get, None) == 0x2002
    for data in (b"\x76\x00", b"\xff", b"\x06", b""):
        assert evaluate_expression(data, registers, WORDS.get, None) is None
    assert (read_uleb(b"\xe5\x8e\x26", 0), read_sleb(b"\x9b\xf1\x59", 0), read_sleb(b"\x7f", 0)) == ((624485, 3), (-624485, 3), (-1, 1))


SIGNATURE = 0x2A << 48
"""Bits that pacia has put above an address."""


def of_aarch64(program: bytes) -> images.UnwindRow:
    """What such instructions of an entry come to."""
    row = images.UnwindRow(4, -8, False)
    row.run(bytes((0x0C, 31, 0)) + program, None)
    return row


def test_a_signed_return_address_is_one() -> None:
    """On aarch64 the return address is a register, saved or not; what signs it is no part of the address; nobody is called twice by it."""
    arch: Any = architecture_named("aarch64")
    signed_frame = of_aarch64(bytes((0x2D, 0x0E, 32, 0x9D, 4, 0x9E, 3)))  # negate_ra_state, def_cfa_offset 32, x29 at -32, x30 at -24
    rows = {0x5FFF: signed_frame, 0x6FFF: of_aarch64(bytes((0x0E, 16)))}
    stack = b"".join(word.to_bytes(8, "little") for word in (0x1100, 0x7000 | SIGNATURE, 0, 0, 0, 0))
    general = dict.fromkeys(arch.registers.names, 0)
    general.update(pc=0x5FFF, sp=0x1000, x30=1)
    copy = StackCopy(0x1000, 0x5FFF, [general[name] for name in arch.registers.names], stack)
    found = images.walk_calls(copy, rows.get, arch)
    assert [(call.pc, call.start, call.end) for call in found] == [(0x5FFF, 0x1000, 0x1020), (0x7000, 0x1020, 0x1030)]


def test_rows_of_a_library_of_aarch64() -> None:
    """Nearly all functions of its libc have a row at each place, and save the return address beside the frame pointer."""
    file = FOREIGN / "lib" / "aarch64-linux-gnu" / "libc.so.6"
    if not file.exists():
        pytest.skip("no libc of arm64: tools/foreign_libc.sh")
    frames, numbers = images.CallFrames(ElfFile(str(file))), architecture_named("aarch64").unwinding
    rows = [frames.row(start + 32) for start, _ in frames._table[::20]]
    known = [row for row in rows if row is not None]
    assert numbers is not None and len(known) > 0.9 * len(rows) > 100
    saving = [row for row in known if numbers.returns in row.rules]
    assert len(saving) > 0.5 * len(known)
    assert all(row.rules[29][1] + 8 == row.rules[30][1] for row in saving if 29 in row.rules and row.rules[30][0] == images.SAVED)
