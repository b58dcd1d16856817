"""gdbheapx/arch/aarch64.py: instructions, system calls and states of a thread that a call depends on."""

import struct
from typing import Any, Dict, Optional, Tuple

import pytest

from gdbheapx.arch import architecture_named

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
