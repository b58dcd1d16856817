"""gdbheapx/inferior/arch/: each machine's record holds together, and of aarch64 the instructions, system calls and thread states that a call depends on.

Bits of a pointer that are no address: of a machine, of a living process, of a core; and what reads and users' addresses make of them.

Files: command/__init__.py, inferior/arch/aarch64.py, inferior/arch/arm.py, inferior/arch/ppc.py, inferior/arch/ppc64.py,
inferior/arch/riscv64.py, inferior/arch/s390x.py, inferior/arch/x32.py, inferior/arch/x86_64.py.
"""

import os
import re
import struct
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import pytest

from gdbheapx import command
from gdbheapx.common.errors import Refusal
from gdbheapx.inferior import arch
from gdbheapx.inferior.arch import architecture_named
from gdbheapx.inferior.live import procfs, stopper
from gdbheapx.inferior.target import open_elf_target
from tests.support.builders.core_file import Piece, build, note

NAMES = sorted(arch.REGISTRY)
X86_64: Any = arch.architecture_named("i386:x86-64")
AARCH64: Any = arch.architecture_named("aarch64")
UNISTD = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_names_of_registers(name: str) -> None:
    """What a record says of a register is said of one that it has."""
    one = arch.architecture_named(name)
    general = one.registers.names if one.registers is not None else ()
    assert one.name == name and len(set(general)) == len(general)
    if one.registers is not None:
        assert {one.registers.pc, one.registers.sp, one.registers.thread_pointer or one.registers.pc} <= set(general)
    if one.unwinding is not None:
        assert set(one.unwinding.names) <= set(general) and max(one.unwinding.kept) < len(one.unwinding.names)
    if one.in_system_call is not None:
        assert {one.in_system_call.number, one.in_system_call.result} <= set(general)
    if one.calling is not None:
        asked = {*one.calling.arguments, one.calling.result, one.calling.sp, one.calling.pc, one.calling.flags}
        asked |= {name for name, _ in one.calling.entering} | ({one.calling.link} if one.calling.link else set())
        assert asked <= set(one.calling.general)
        assert set(one.calling.general) - {one.calling.flags} <= set(general)  # gdb has a name of its own for them on aarch64
        assert bool(one.calling.link) == (not one.calling.return_bytes)


@pytest.mark.parametrize("name", NAMES)
def test_by_elf_header(name: str) -> None:
    """gdb's name and an ELF header lead to the same record."""
    machine, word_bytes, _ = arch.REGISTRY[name]
    assert arch.of_elf(machine, word_bytes) is arch.architecture_named(name)


def test_an_unknown_machine() -> None:
    """Nothing is known of it but its name, and no call is made there."""
    one = arch.of_elf(9999, 8)
    assert one == arch.Architecture("machine 9999")
    with pytest.raises(Refusal, match="machine 9999"):
        one.to_call()


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_made_where_they_were_tested(name: str) -> None:
    """The machines that the refusal names."""
    assert (arch.architecture_named(name).calling is not None) == (name.split(":")[-1] in arch.CALLS_TESTED_ON.split(" and "))


def test_this_computer() -> None:
    """It is known by uname(2)."""
    assert arch.native_architecture().name in arch.REGISTRY or os.uname().machine not in [module for _, _, module in arch.REGISTRY.values()]


@pytest.mark.parametrize("name", [name for name in NAMES if arch.architecture_named(name).system_calls is not None])
def test_numbers_are_the_kernels(name: str) -> None:
    """Numbers of system calls are those of the kernel's header, AUDIT_ARCH_... is e_machine, 64 bits, little-endian."""
    machine, _, module = arch.REGISTRY[name]
    calls: Any = arch.architecture_named(name).system_calls
    assert calls.audit == machine | 0x80000000 | 0x40000000
    header = Path(UNISTD[module])
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    numbers = {call: int(number) for call, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    assert calls.numbers == {call: numbers[call] for call in calls.numbers}


@pytest.mark.parametrize(
    "code, ends",
    [("e800000000", True), ("41ff55f8", True), ("ff1500000000", True), ("ffd0", True), ("90909090909090", False), ("ff25000000ff", False)],
)
def test_call_instructions_of_x86_64(code: str, ends: bool) -> None:
    """Relative, through memory and through a register; a jump is none."""
    assert X86_64.calling.ends_call(bytes.fromhex(code).rjust(7, b"\x90")) == ends


def test_relative_reads_of_x86_64() -> None:
    """What stands behind the function's return is another function's."""
    code = bytes.fromhex("488b05 00010000 8a0d 00020000 c3 488d05 00030000")
    assert list(X86_64.relative_reads(0x1000, code, int)) == [0x1107, 0x120D]


def test_relative_reads_of_aarch64() -> None:
    """A variable in a page that the code names, and one by its pointer in the global offset table; a pointer that is not followed is none."""
    words = (
        (0x90000360, "adrp x0, +0x6c000"),
        (0xF9470C00, "ldr x0, [x0, #3608]"),
        (0xB0FFFFE2, "adrp x2, -0x3000"),
        (0xB9401043, "ldr w3, [x2, #16]"),
        (0xF9400401, "ldr x1, [x0, #8]"),
        (0xF9401044, "ldr x4, [x2, #32]"),
        (0xF9401445, "ldr x5, [x2, #40]"),
        (0xD65F03C0, "ret"),
        (0xB9401043, "ldr w3, [x2, #16]"),
    )
    code = b"".join(word.to_bytes(4, "little") for word, _ in words)
    here, memory = 0x7F0000033000, {0x7F000009FE18: 0x7F00000A1000, 0x7F0000030020: 10000, 0x7F0000030028: 0x7F00000A2000}
    found = list(AARCH64.relative_reads(here, code, lambda address: memory[address]))
    assert found == [0x7F0000030010, 0x7F00000A1008, 0x7F0000030020]

MACHINE: Any = architecture_named("aarch64")
SSVE, ZA, GCS = 0x40B, 0x40C, 0x410


def code(*words: int) -> bytes:
    """Instructions."""
    return b"".join(word.to_bytes(4, "little") for word in words)


def registers(**known: int) -> Dict[str, int]:
    """All general ones, in gdb's names."""
    return {**dict.fromkeys(MACHINE.calling.general, 0), **known}


@pytest.mark.parametrize(
    "word, ends",
    [
        (0x94000001, True),  # bl
        (0x97FFFFFF, True),
        (0xD63F0060, True),  # blr x3
        (0xD63F081F, True),  # blraaz x0
        (0xD73F0801, True),  # blraa x0, x1
        (0x14000001, False),  # b
        (0xD61F0200, False),  # br x16
        (0xD65F03C0, False),  # ret
        (0xD503201F, False),
    ],
)
def test_call_instructions(word: int, ends: bool) -> None:
    """Relative and through a register, authenticated or not; a jump and a return are none."""
    assert MACHINE.calling.ends_call(code(word)) == ends


@pytest.mark.parametrize(
    "made, found",
    [
        (registers(x8=101, x0=0x1000), (0x1000, True)),  # nanosleep
        (registers(x8=115, x1=0, x2=0x2000), (0x2000, True)),  # clock_nanosleep
        (registers(x8=115, x1=1, x2=0x2000), None),  # to a point in time: made again as it was
        (registers(x8=98, x1=128, x3=0x3000), (0x3000, True)),  # FUTEX_WAIT_PRIVATE
        (registers(x8=98, x1=137, x3=0x3000), (0x3000, False)),  # FUTEX_WAIT_BITSET, until a point in time
        (registers(x8=98, x1=128, x3=0), None),
        (registers(x8=98, x1=1, x3=0x3000), None),  # FUTEX_WAKE
        (registers(x8=128, x0=0x1000), None),  # restart_syscall knows the rest of the time itself
        (registers(x8=73, x0=0x1000), None),  # ppoll writes the rest of the time to its argument
    ],
)
def test_calls_with_a_time(made: Dict[str, int], found: Optional[Tuple[int, bool]]) -> None:
    """Those that the kernel goes on with by its restart block."""
    assert MACHINE.in_system_call.timed(made) == found


def sve_header(size: int, flags: int) -> bytes:
    """struct user_sve_header."""
    return struct.pack("<IIHHHH", size, 8768, 16, 256, flags, 0)


@pytest.mark.parametrize(
    "cpsr, sets, word",
    [
        (0x60000000, {}, None),
        (0x60000000, {SSVE: sve_header(16, 0), ZA: sve_header(16, 0), GCS: bytes(24)}, None),
        (0x60000C00, {}, "BTI"),
        (0x60000400, {}, None),  # at the entry of a function
        (0x60000000, {SSVE: sve_header(560, 1)}, "streaming"),
        (0x60000000, {ZA: sve_header(272, 0)}, "ZA"),
        (0x60000000, {GCS: (1).to_bytes(24, "little")}, "GCS"),
    ],
)
def test_states_that_forbid_a_call(cpsr: int, sets: Dict[int, bytes], word: Optional[str]) -> None:
    """Each is said in its own words."""
    reason = MACHINE.calling.against(registers(cpsr=cpsr), lambda number: sets.get(number, b""))
    assert (reason is None) if word is None else word in reason


def test_the_instruction_is_in_front_or_at_the_program_counter() -> None:
    """An interrupted call that is made again has been rewound by the kernel."""
    memory = {0x1000: MACHINE.in_system_call.instruction}

    def read(address: int, size: int) -> bytes:
        return memory.get(address, b"")

    assert MACHINE.in_system_call.shows(0x1000, read) and MACHINE.in_system_call.shows(0x1004, read)
    assert not MACHINE.in_system_call.shows(0x1008, read)
    assert not architecture_named("i386:x86-64").in_system_call._replace(instruction=memory[0x1000]).shows(0x1000, read)  # type: ignore[union-attr]

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
