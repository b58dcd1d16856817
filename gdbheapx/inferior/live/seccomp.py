"""Read the seccomp rules of a thread, and compute what its filters answer to a system call.

A filter is a classic BPF program over struct seccomp_data (seccomp(2)). Where it asks for what is not known, such as the address of a page,
both ways are followed. The filters themselves are read from a stopped thread (tracer.fetch_seccomp_filters).
"""

import os
import struct
from itertools import islice
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import SECCOMP
from gdbheapx.inferior.arch import SystemCalls, native_architecture
from gdbheapx.inferior.live import procfs

DISABLED, STRICT, FILTER = 0, 1, 2
MOST_FILTERED, MOST_LISTED = 8, 256
"""Threads whose filters are read in a stop, 0.1 to 0.2 ms each, and of how many it is asked whether they have some: a call needs one thread
that may make it. Where all of these may not, and others are not known, it is not advised."""
SYS_ADMIN = 21
MOST_STEPS = 100_000
"""Of one program for one system call: beyond that the answer is unknown."""

ACTIONS = (0x80000000, 0x00000000, 0x00030000, 0x00050000, 0x7FC00000, 0x7FF00000, 0x7FFC0000, 0x7FFF0000)
KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, NOTIFY, TRACE, LOG, ALLOW = ACTIONS
"""What a filter may answer (linux/seccomp.h); errno in the lower half."""


class SeccompRules(NamedTuple):
    """Seccomp mode of one thread, and its number of filters, from /proc."""

    mode: int
    filters: Optional[int]
    """How many; None before Linux 5.9."""


def system_calls() -> SystemCalls:
    """Return the system calls of this machine's programs. HeapxError if they are not known."""
    calls = native_architecture().system_calls
    if calls is None:
        raise HeapxError("the system calls of this machine are not known here", code=SECCOMP)
    return calls


def read_seccomp_rules(lwp: int) -> SeccompRules:
    """Read the seccomp rules of this thread."""
    fields = procfs.read_process_status(lwp)
    mode, count = fields.get("Seccomp", "0"), fields.get("Seccomp_filters")
    return SeccompRules(int(mode) if mode.isdigit() else DISABLED, int(count) if count is not None and count.isdigit() else None)


def list_filtered_threads(pid: int) -> List[int]:
    """Return the first threads of a process that are under filters, at most MOST_FILTERED; none if filters cannot be read here."""
    if not may_fetch():
        return []
    lwps = sorted(procfs.list_thread_ids(pid))[:MOST_LISTED]
    return list(islice((lwp for lwp in lwps if read_seccomp_rules(lwp).mode == FILTER), MOST_FILTERED))


def may_fetch() -> bool:
    """Return True if this process may ask the kernel for the filters of another one."""
    return bool(procfs.read_capabilities() >> SYS_ADMIN & 1) and read_seccomp_rules(os.getpid()).mode == DISABLED


def same_container(pid: int) -> bool:
    """Return True if this process runs in the container of that one, as far as /proc shows: same namespaces, same control group."""
    try:
        for name in ("pid", "mnt", "user"):
            if os.readlink("/proc/%d/ns/%s" % (procfs.proc_entry_number(pid), name)) != os.readlink("/proc/self/ns/%s" % name):
                return False
    except OSError:
        return False
    group = procfs.slurp_file("/proc/%d/cgroup" % pid)
    return group is not None and group == procfs.slurp_file("/proc/self/cgroup")


def compute_filter_answers(filters: Sequence[bytes], number: int, arguments: Sequence[Optional[int]]) -> FrozenSet[int]:
    """Return every answer that these filters may give together; the kernel takes the strictest, and of equal ones the newest.
    `arguments`: None and those that are left out are not known. HeapxError if a program is not understood.
    """
    together: Set[int] = {ALLOW}
    for program in filters:
        results = run_seccomp_program(program, number, arguments)
        together = {ours if _rank_answer(ours) <= _rank_answer(theirs) else theirs for ours in together for theirs in results}
    return frozenset(together)


def _rank_answer(answer: int) -> int:
    """The lower, the stricter: the action as a signed number. What is no action kills."""
    action = answer & 0xFFFF0000
    return action - (1 << 32) if action >> 31 or action not in ACTIONS else action


# ---------------------------------------------------------------------------------------------------- classic BPF

LD, LDX, ST, STX, ALU, JMP, RET, MISC = range(8)
K, X_SOURCE, A_SOURCE = 0x00, 0x08, 0x10
IMM, ABS, MEM, LEN = 0x00, 0x20, 0x60, 0x80
JA, JEQ, JGT, JGE, JSET = 0x00, 0x10, 0x20, 0x30, 0x40
TXA = 0x80
DATA_BYTES, WORDS = 64, 16
MASK = 0xFFFFFFFF

State = Tuple[int, Optional[int], Optional[int], Tuple[Optional[int], ...]]
"""Next instruction, A, X, M[]; None is not known."""


def run_seccomp_program(program: bytes, number: int, arguments: Sequence[Optional[int]]) -> Set[int]:
    """Everything that one filter may answer."""
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program) - 7, 8)]
    # struct seccomp_data, word by word; its instruction pointer is not known
    data: Dict[int, Optional[int]] = {0: number, 4: system_calls().audit, 8: None, 12: None}
    for place in range(6):
        argument = arguments[place] if place < len(arguments) else None
        data[16 + 8 * place] = None if argument is None else argument & MASK
        data[20 + 8 * place] = None if argument is None else argument >> 32 & MASK
    results: Set[int] = set()
    seen: Set[State] = set()
    waiting: List[State] = [(0, 0, 0, (0,) * WORDS)]
    steps = 0
    while waiting:
        at, a, x, memory = waiting.pop()
        while True:
            steps += 1
            if steps > MOST_STEPS or at >= len(code):
                raise HeapxError("a filter was not followed to its end", code=SECCOMP)
            what, yes, no, k = code[at]
            kind, at = what & 7, at + 1
            if kind == RET:
                value = a if what & 0x18 == A_SOURCE else k
                if value is None:
                    raise HeapxError("a filter returns a value that is not known here", code=SECCOMP)
                results.add(value)
                break
            if kind == LD:
                a = _load_value(what, k, data, memory)
            elif kind == LDX:
                x = _load_value(what, k, data, memory)
            elif kind in (ST, STX):
                memory = memory[: k % WORDS] + (a if kind == ST else x,) + memory[k % WORDS + 1 :]
            elif kind == ALU:
                a = _compute_value(what & 0xF0, a, x if what & X_SOURCE else k)
            elif what in (MISC, MISC | TXA):
                a, x = (x, x) if what == MISC | TXA else (a, a)
            elif what == JMP | JA:
                at += k
            elif kind != JMP:
                raise HeapxError("a filter has an instruction that is not known here", code=SECCOMP)
            else:
                taken = _is_jump_taken(what & 0xF0, a, x if what & X_SOURCE else k)
                if taken is None:
                    state = (at + no, a, x, memory)
                    if state not in seen:
                        seen.add(state)
                        waiting.append(state)
                    if what & 0xF0 == JEQ:
                        a = x if what & X_SOURCE else k  # it is known now
                at += no if taken is False else yes
    return results


def _load_value(what: int, k: int, data: Dict[int, Optional[int]], memory: Sequence[Optional[int]]) -> Optional[int]:
    mode = what & 0xE0
    if mode == IMM:
        return k
    if mode == LEN:
        return DATA_BYTES
    if mode == MEM:
        return memory[k % WORDS]
    if mode == ABS and k in data:
        return data[k]
    raise HeapxError("a filter has an instruction that is not known here", code=SECCOMP)


def _compute_value(operation: int, a: Optional[int], b: Optional[int]) -> Optional[int]:
    if operation == 0x80:  # BPF_NEG
        return None if a is None else -a & MASK
    if a is None or b is None:
        return 0 if operation == 0x50 and 0 in (a, b) else None
    if operation in (0x30, 0x90):  # BPF_DIV, BPF_MOD; by zero the kernel's programs end with 0
        if b == 0:
            raise HeapxError("a filter divides by zero", code=SECCOMP)
        return a // b if operation == 0x30 else a % b
    if operation in (0x60, 0x70):  # BPF_LSH, BPF_RSH
        return (a << (b & 31) if operation == 0x60 else a >> (b & 31)) & MASK
    simple = {0x00: a + b, 0x10: a - b, 0x20: a * b, 0x40: a | b, 0x50: a & b, 0xA0: a ^ b}
    if operation not in simple:
        raise HeapxError("a filter has an instruction that is not known here", code=SECCOMP)
    return simple[operation] & MASK


def _is_jump_taken(test: int, a: Optional[int], b: Optional[int]) -> Optional[bool]:
    """Return True if it jumps, or None if that is not known."""
    if a is None or b is None:
        return False if test == JSET and 0 in (a, b) else None
    if test == JEQ:
        return a == b
    if test == JGT:
        return a > b
    if test == JGE:
        return a >= b
    if test == JSET:
        return a & b != 0
    raise HeapxError("a filter has an instruction that is not known here", code=SECCOMP)
