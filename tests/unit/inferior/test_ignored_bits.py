"""Bits of a pointer that are no address: of a machine, of a living process, of a core; and what reads and users' addresses make of them.

Files: inferior/arch/aarch64.py, inferior/arch/x86_64.py, command/__init__.py.
"""

import struct
from pathlib import Path
from typing import Any, Dict, Optional

import pytest

from gdbheapx import command
from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.live import procfs, stopper
from gdbheapx.inferior.target import open_elf_target
from tests.support.builders.core_file import Piece, build, note

TOP_BYTE, LAM, SIGNATURE = 0xFF << 56, 0x3F << 57, 0x7F << 48
EM_X86_64, EM_AARCH64, NT_ARM_PAC_MASK = 62, 183, 0x406
ALL = (1 << 64) - 1


@pytest.mark.parametrize(
    "machine,ignored,ignorable", [("aarch64", TOP_BYTE, 0), ("i386:x86-64", 0, LAM), ("i386", 0, 0), ("arm", 0, 0), ("s390:64-bit", 0, 0)]
)
def test_machines(machine: str, ignored: int, ignorable: int) -> None:
    """aarch64 ignores the top byte in every process, x86-64 bits 57 to 62 where one asks for it; others none that is known."""
    assert (architecture_named(machine).ignored_bits, architecture_named(machine).ignorable_bits) == (ignored, ignorable)


@pytest.mark.parametrize("mask,bits", [(ALL & ~LAM, LAM), (ALL, 0), (ALL >> 8, TOP_BYTE), (None, 0)])
def test_a_living_process(live: Any, monkeypatch: pytest.MonkeyPatch, mask: Optional[int], bits: int) -> None:
    """The kernel's untag_mask; before Linux 6.4, which has none, what the machine ignores in every process. Memory is read as the processor would."""
    told, status = {} if mask is None else {"untag_mask": "0x%x" % mask}, procfs.read_process_status
    monkeypatch.setattr(procfs, "read_process_status", lambda pid: {**{key: value for key, value in status(pid).items() if key != "untag_mask"}, **told})
    target = open_elf_target(pid=live.popen.pid)
    assert target.ignored_bits == bits | target.arch.ignored_bits
    place = target.modules()[0].base
    assert target.read_prefix(place | bits, 4) == b"\x7fELF"
    assert target.read_prefix(place | 1 << 62, 4) == (b"\x7fELF" if target.ignored_bits >> 62 & 1 else b"")


def test_a_living_process_says_it_itself(live: Any) -> None:
    """The kernel here has the line where it is 6.4 or later, and no program of ours asks for masks."""
    told = procfs.read_process_status(live.popen.pid).get("untag_mask")
    assert told is None or ~int(told, 16) & ALL == open_elf_target(pid=live.popen.pid).ignored_bits


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("machine,noted,bits", [(EM_AARCH64, True, TOP_BYTE | SIGNATURE), (EM_AARCH64, False, TOP_BYTE), (EM_X86_64, True, 0)])
def test_a_core(tmp_path: Path, order: str, machine: int, noted: bool, bits: int) -> None:
    """What signatures may take is a note of each thread (struct user_pac_mask: data, then code); other machines have no such note. Words
    lose these bits where they lead to memory then."""
    pieces, path = [Piece(0x10000, 0x1000, b"abcd" * 1024)], tmp_path / "core"
    masks = note(order, NT_ARM_PAC_MASK, struct.pack(order + "QQ", SIGNATURE, SIGNATURE), b"LINUX\0") if noted else b""
    path.write_bytes(build(pieces, masks, order=order, machine=machine))
    target = open_elf_target(core=str(path))
    assert target.ignored_bits == bits
    assert target.read_prefix(0x10000 | bits, 4) == b"abcd"
    assert target.read_prefix(0x10000 | 1 << 52, 4) == (b"abcd" if bits & SIGNATURE else b"")
    words = [0x10008 | 0x5A << 56, 0x10008, 0x11000 | 0x5A << 56, ALL, 0]
    assert target.words_in(struct.pack(order + "5Q", *words) + b"rest") == [0x10008 if bits else words[0], *words[1:]]


def test_a_thread_that_stands_tells_of_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word of the register set; nothing where the kernel has none, or the machine knows no signatures."""
    sets: Dict[int, Dict[int, bytes]] = {1: {NT_ARM_PAC_MASK: struct.pack("<QQ", SIGNATURE, 0)}, 2: {NT_ARM_PAC_MASK: b""}}
    recorded, header = stopper.RecordedStop(1, sets), Header("aarch64")
    assert [recorded.signature_bits(lwp, header) for lwp in (1, 2, 3)] == [SIGNATURE, 0, 0]  # type: ignore[arg-type]
    assert recorded.signature_bits(1, Header("i386:x86-64")) == 0  # type: ignore[arg-type]
    assert NT_ARM_PAC_MASK in stopper.wanted_sets(header)  # type: ignore[arg-type]


class Header:
    """As much of an ELF header."""

    word_bytes, byte_order = 8, "little"

    def __init__(self, machine: str) -> None:
        self.arch = architecture_named(machine)


def test_addresses_that_users_give() -> None:
    """Those of options lose what is none of an address; names and what was not given stay."""
    command.load_commands()
    for words, name, wanted in (
        (["refs", "0x5a0055d0c0ffee10"], "address", 0x55D0C0FFEE10),
        (["whatis", "0x55d0c0ffee10"], "address", 0x55D0C0FFEE10),
        (["owners", "--of", "0x5a0055d0c0ffee10"], "of", 0x55D0C0FFEE10),
        (["owners", "--of", "held"], "of", "held"),
        (["owners"], "of", None),
    ):
        parsed = command.parse_command(words, "gdbheapx")
        command.drop_tags(parsed.command, parsed.options, TOP_BYTE)
        assert getattr(parsed.options, name) == wanted
