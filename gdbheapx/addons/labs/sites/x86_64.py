"""Effects of x86-64 instructions on registers and memory, as far as they show requests to malloc and values stored in blocks. Sources are
the psABI for AMD64, 3.2, and Intel's manual, volume 2. The disassembler library gives each instruction as text, in Intel's syntax.
"""

import re
import struct
from functools import lru_cache
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple


class Operand(NamedTuple):
    """Operand that an instruction reads or writes."""

    kind: str
    """`register`, `number`, `memory` or `other`."""
    base: str = ""
    """The register; of memory that which is the address, empty: `number` is."""
    number: int = 0
    """Of memory: beyond the register."""
    index: str = ""  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    scale: int = 1
    size_bytes: int = 8


class CodeStep(NamedTuple):
    """Single action of an instruction."""

    kind: str
    """`copy` (to a register), `address` (the address of memory, not what is there), `times` (a product), `choose` (copies or not), `lose`
    (something unknown), `store`, `push`, `pop`, `call`, `jump`, `test` (of `first` against 0), `branch` (a jump under a condition) or
    `return`."""
    to: str = ""
    """The register that is written; of a branch `zero` or `other` if it is taken if what was tested just before is 0, or is not."""
    first: Operand = Operand("other")
    second: Operand = Operand("other")


CodeBranch = Tuple[int, Optional[int], Optional[int], str]
"""(address, target, slot, kind) of bytes that may be a `call` or a `jump`, to the target or through the pointer that stands at the slot."""


class CodeReader(NamedTuple):
    """Reader of functions' code for their requests to malloc."""

    library: Tuple[str, str]
    """Of the library that takes code apart, the names of its machine and mode."""
    decode: Callable[[int, int, str, str], Sequence[CodeStep]]
    """(address, bytes, name, operands) of an instruction -> what it does. Registers have one name, whatever part of them is meant."""
    branches: Callable[[int, bytes], Iterator[CodeBranch]]
    """(address, code) -> all that may be a call or a jump, by its bytes."""
    loads: Callable[[int, bytes], Iterator[Tuple[int, int]]]
    """(address, code) -> (where, what address) of all that may load a word from a fixed address."""
    stub: Callable[[int, bytes], Sequence[int]]
    """(address of a jump through a pointer, code before it) -> where an entry of the procedure linkage table that has it may begin."""
    arguments: Sequence[str]
    result: str
    sp: str
    lost: Sequence[str]
    """Registers that a call may change."""
    word_on_call: int = 0
    """Bytes of the return address on the stack."""


FAMILIES = (
    ("rax", "eax", "ax", "al", "ah"),
    ("rbx", "ebx", "bx", "bl", "bh"),
    ("rcx", "ecx", "cx", "cl", "ch"),
    ("rdx", "edx", "dx", "dl", "dh"),
    ("rsi", "esi", "si", "sil"),
    ("rdi", "edi", "di", "dil"),
    ("rbp", "ebp", "bp", "bpl"),
    ("rsp", "esp", "sp", "spl"),
    *(("r%d" % n, "r%dd" % n, "r%dw" % n, "r%db" % n) for n in range(8, 16)),
    *(("xmm%d" % n, "ymm%d" % n, "zmm%d" % n) for n in range(16)),
)
WHOLE = {name: family[0] for family in FAMILIES for name in family}
WIDE = {family[0] for family in FAMILIES} | {family[1] for family in FAMILIES[:16]}
"""Registers that a write fills: one of 32 bits clears the others."""
MEMORY = re.compile(r"(?:(byte|word|dword|qword|xmmword|ymmword|zmmword|tbyte|fword|) ?(?:ptr )?)?(?:([c-gs]s):)?\[([^\]]*)\]$")
SIZES = {"byte": 1, "word": 2, "dword": 4, "qword": 8, "xmmword": 16, "ymmword": 32, "zmmword": 64}
ONLY_READS = {"cmp", "bt", "nop", "endbr64", "ucomiss", "ucomisd", "comiss", "comisd", "ud2", "hlt", "leave", "prefetcht0", "pause"}
PRODUCTS = {"mul", "div", "idiv", "cqo", "cdq", "cwde", "cdqe", "cpuid", "rdtsc", "xgetbv"}
STRINGS = {name + size for name in ("movs", "stos", "lods", "scas", "cmps") for size in "bwdq"}
ZERO = {"je": "zero", "jz": "zero", "jne": "other", "jnz": "other"}
"""Jumps by whether what was tested just before is 0 or something else."""
JUMPS = re.compile(r"j[a-z]+$|loop")
MOST_TABLE = 1 << 16


@lru_cache(MOST_TABLE)
def _parse_operand(text: str) -> Operand:
    """A number, a register or a place in memory; one relative to the instruction pointer has the register `rip`."""
    if text in WHOLE:
        return Operand("register", WHOLE[text])
    found = MEMORY.match(text)
    if found is not None:
        base, index, scale, offset = "", "", 1, 0
        for sign, part in re.findall(r"([+-]?)\s*([^+\s-]+)", found.group(3)):
            name, _, times = part.partition("*")
            if name == "rip" or WHOLE.get(name):
                whole = WHOLE.get(name, name)
                if not base and not times:
                    base = whole
                else:
                    index, scale = whole, int(times or 1)
            elif part[0].isdigit():
                offset += -int(part, 0) if sign == "-" else int(part, 0)
        is_own = found.group(2) not in ("fs", "gs")
        return Operand("memory" if is_own else "other", base, offset, index, scale, SIZES.get(found.group(1) or "", 8))
    try:
        return Operand("number", "", int(text, 0))
    except ValueError:
        return Operand("other", WHOLE.get(text, ""))


@lru_cache(MOST_TABLE)
def _parse_operands(text: str) -> Tuple[Operand, ...]:
    return tuple(_parse_operand(part.strip()) for part in text.split(",")) if text else ()


@lru_cache(MOST_TABLE)
def _is_wide(text: str) -> bool:
    return text.split(",")[0].strip() in WIDE


def decode_instruction(address: int, size: int, mnemonic: str, text: str) -> Sequence[CodeStep]:
    """Return the steps of an instruction, in order."""
    if "rip" in text or text.startswith("0x"):
        return _decode_steps(address + size, mnemonic, text)
    return _decode_anywhere(mnemonic, text)


@lru_cache(MOST_TABLE)
def _decode_anywhere(mnemonic: str, text: str) -> Sequence[CodeStep]:
    """Decode an instruction whose steps do not depend on its address."""
    return _decode_steps(0, mnemonic, text)


def _decode_steps(end: int, mnemonic: str, text: str) -> List[CodeStep]:
    """`end`: where the next instruction stands."""
    mnemonic = mnemonic.rpartition(" ")[2]
    if mnemonic == "test":
        tested = _parse_operands(text)
        return [CodeStep("test", "", tested[0])] if tested[0] == tested[1] and _is_wide(text) else []
    if mnemonic in ONLY_READS:
        return [CodeStep("copy", "rsp", Operand("register", "rbp")), CodeStep("pop", "rbp")] if mnemonic == "leave" else []
    operands = [one._replace(base="", number=one.number + end) if one.base == "rip" else one for one in _parse_operands(text)]
    first = operands[0] if operands else Operand("other", "")
    second = operands[1] if len(operands) > 1 else Operand("other", "")
    if mnemonic == "call":
        return [CodeStep("call", "", first)]
    if mnemonic == "jmp" or JUMPS.match(mnemonic):
        return [CodeStep("jump" if mnemonic == "jmp" else "branch", ZERO.get(mnemonic, ""), first)]
    if mnemonic.startswith("ret"):
        return [CodeStep("return", "", first)]
    if mnemonic == "push":
        return [CodeStep("push", "", first)]
    if mnemonic == "pop":
        return [CodeStep("pop", first.base)]
    if mnemonic in PRODUCTS or (mnemonic == "imul" and len(operands) == 1):
        return [CodeStep("lose", "rax"), *([CodeStep("lose", "rdx")] if mnemonic not in ("cwde", "cdqe") else [])]
    if mnemonic in STRINGS and not first.base.startswith("xmm") and not second.base.startswith("xmm"):
        return [CodeStep("lose", name) for name in ("rdi", "rsi", "rcx")]
    if first.base.startswith("xmm") or second.base.startswith("xmm"):
        return _vector_steps(mnemonic, first, second, operands)
    if first.kind == "memory":
        if mnemonic == "mov":
            return [CodeStep("store", "", first, second)]
        return [CodeStep("store", "", first, Operand("other", ""))]
    if first.kind != "register":
        return []
    return _general_steps(mnemonic, text, first, second, operands)


def _general_steps(mnemonic: str, text: str, first: Operand, second: Operand, operands: List[Operand]) -> List[CodeStep]:
    """Decode an instruction that writes a general register."""
    to = first.base
    if mnemonic in ("mov", "movabs", "movsxd") and _is_wide(text):
        return [CodeStep("copy", to, second)]
    if mnemonic == "lea":
        return [CodeStep("address", to, second)]
    if mnemonic in ("xor", "sub") and first == second:
        return [CodeStep("copy", to, Operand("number", "", 0))]
    if mnemonic in ("add", "sub") and second.kind == "number":
        sign = 1 if mnemonic == "add" else -1
        return [CodeStep("address", to, Operand("memory", to, sign * second.number))]
    if mnemonic == "add" and second.kind == "register":
        return [CodeStep("address", to, Operand("memory", to, 0, second.base, 1))]
    if mnemonic in ("shl", "sal") and (second.kind == "number" or len(operands) == 1):
        return [CodeStep("times", to, first, Operand("number", "", 1 << (second.number & 63 if len(operands) > 1 else 1)))]
    if mnemonic == "imul" and len(operands) == 3 and second.kind == "register":
        return [CodeStep("times", to, second, operands[2])]
    if mnemonic.startswith("cmov"):
        return [CodeStep("choose", to, second)]
    if mnemonic == "xchg" and second.kind == "register":
        return [CodeStep("lose", to), CodeStep("lose", second.base)]
    if mnemonic in ("or", "mov") and second.kind == "number" and second.number in (-1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF) and _is_wide(text):
        return [CodeStep("copy", to, second)]
    return [CodeStep("lose", to)]


def _upper_half(operand: Operand) -> Operand:
    """The upper half of the 16 bytes."""
    if operand.kind == "memory":
        return operand._replace(number=operand.number + 8)
    return operand._replace(base=operand.base + "h") if operand.base.startswith("xmm") else Operand("other", "")


def _vector_steps(mnemonic: str, first: Operand, second: Operand, operands: List[Operand]) -> List[CodeStep]:
    """Compilers store two pointers at once, by a vector register: its halves are two registers here."""
    plain = mnemonic[1:] if mnemonic.startswith("v") and len(operands) < 4 else mnemonic
    last = operands[-1] if plain != "pinsrq" else operands[-2]
    if first.kind == "memory":
        if plain in ("movq", "movlps", "movsd"):
            return [CodeStep("store", "", first, second)]
        if plain in ("movhps", "movhpd"):
            return [CodeStep("store", "", first, _upper_half(second))]
        if plain in ("movups", "movaps", "movdqa", "movdqu", "movupd", "movapd"):
            return [CodeStep("store", "", first, second), CodeStep("store", "", _upper_half(first), _upper_half(second))]
        return [CodeStep("store", "", first, Operand("other", ""))]
    if not first.base.startswith("xmm"):
        if plain == "movq":
            return [CodeStep("copy", first.base, second)]
        return [CodeStep("lose", first.base)] if first.kind == "register" else []
    to, upper = first.base, first.base + "h"
    if plain == "movq":
        return [CodeStep("copy", to, last), CodeStep("copy", upper, Operand("number", "", 0))]
    if plain in ("movups", "movaps", "movdqa", "movdqu", "movupd", "movapd") and first.kind == "register":
        return [CodeStep("copy", to, last), CodeStep("copy", upper, _upper_half(last))]
    if plain in ("movhps", "movhpd", "punpcklqdq", "pinsrq"):
        low = [CodeStep("copy", to, second)] if len(operands) == 3 and plain != "pinsrq" else []
        return [*low, CodeStep("copy", upper, last)]
    if plain in ("pxor", "xorps") and operands[-1] == operands[-2]:
        return [CodeStep("copy", to, Operand("number", "", 0)), CodeStep("copy", upper, Operand("number", "", 0))]
    return [CodeStep("lose", to), CodeStep("lose", upper)]


def find_branches(address: int, code: bytes) -> Iterator[CodeBranch]:
    """Every place whose bytes may be a call or a jump with 32 bits to another function, or through a pointer: some are none."""
    for opcode, kind in ((b"\xe8", "call"), (b"\xe9", "jump")):
        at = code.find(opcode)
        while 0 <= at <= len(code) - 5:
            yield address + at, address + at + 5 + _read_displacement(code, at + 1), None, kind
            at = code.find(opcode, at + 1)
    for opcode, kind in ((b"\xff\x15", "call"), (b"\xff\x25", "jump")):
        at = code.find(opcode)
        while 0 <= at <= len(code) - 6:
            yield address + at, None, address + at + 6 + _read_displacement(code, at + 2), kind
            at = code.find(opcode, at + 1)


LOADS = re.compile(rb"[\x48\x4c][\x8b\x8d][\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
"""mov of a word relative to the code, or lea of its address, into a register."""


def find_loads(address: int, code: bytes) -> Iterator[Tuple[int, int]]:
    """(where, what it reads) of every place whose bytes may load a word that a file has at a fixed address, or that address."""
    for found in LOADS.finditer(code):
        if found.start() + 7 <= len(code):
            yield address + found.start(), address + found.start() + 7 + _read_displacement(code, found.start() + 3)


def _read_displacement(code: bytes, at: int) -> int:
    return int(struct.unpack_from("<i", code, at)[0])


def find_stub_starts(address: int, code: bytes) -> List[int]:
    """Return the addresses where the entry of the procedure linkage table may begin whose jump through a pointer is at the address.
    `code` is the code before the jump. A function's own jump has no such begin.
    """
    before = code[-5:]
    begins = [address]
    if before.endswith(b"\xf2"):
        begins.append(address - 1)
        before = before[:-1]
    if before.endswith(b"\xf3\x0f\x1e\xfa"):
        begins.append(begins[-1] - 4)
    return begins


READER = CodeReader(
    library=("CS_ARCH_X86", "CS_MODE_64"),
    decode=decode_instruction,
    branches=find_branches,
    loads=find_loads,
    stub=find_stub_starts,
    arguments=("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
    result="rax",
    sp="rsp",
    lost=("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", *("xmm%d%s" % (n, half) for n in range(16) for half in ("", "h"))),
    word_on_call=8,
)
READERS: Dict[str, CodeReader] = {"i386:x86-64": READER}
"""gdb's name of a machine -> the reader of its code."""
