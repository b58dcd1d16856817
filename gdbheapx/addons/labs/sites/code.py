"""The code of loaded files, taken apart function by function where it is asked for; and the functions by which code asks for memory, and
those that link what they got into a container of C++."""

from bisect import bisect_right
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.labs.sites.flow import NUMBER, Flow, FlowFollower, Instruction, Pointers, Value
from gdbheapx.addons.labs.sites.x86_64 import READERS, CodeReader
from gdbheapx.analysis.addon_answers import CHAIN, LIST, TREE
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Module, ObjectCode, Target
from gdbheapx.problems import MISSING_PACKAGE, OUT_OF_MEMORY
from gdbheapx.units import SentenceSize, make_sentence


class Way(NamedTuple):
    """Interface of an allocating function: which arguments give the size."""

    size: Optional[int]
    """The argument that has the size; None: none has."""
    count: Optional[int] = None  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """That by which it is multiplied."""
    plus: int = 0
    shift: int = 0
    """Offset in the block of what it returns."""
    floats: bool = False
    """The offset is unknown."""
    words: Tuple[Tuple[int, int, int], ...] = ()
    """(offset from what it returns, bytes, argument) that it stores there: the type of an object."""


_BY_SIZE, _SECOND = Way(0), Way(1)
_OF_TYPE = Way(None, words=((8, 8, 0),), floats=True)
ALLOCATORS: Dict[str, Way] = {
    **dict.fromkeys(("malloc", "valloc", "pvalloc", "__libc_malloc", "__rust_alloc", "__rust_alloc_zeroed"), _BY_SIZE),
    **dict.fromkeys(("__rdl_alloc", "__rg_alloc", "__rdl_alloc_zeroed", "__rg_alloc_zeroed"), _BY_SIZE),
    **dict.fromkeys(("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t"), _BY_SIZE),
    **dict.fromkeys(("_ZnamSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"), _BY_SIZE),
    **dict.fromkeys(("realloc", "memalign", "aligned_alloc", "__libc_memalign"), _SECOND),
    **dict.fromkeys(("calloc", "__libc_calloc"), Way(1, 0)),
    "reallocarray": Way(2, 1),
    # of CPython: they go through pointers, to malloc or to pools
    **dict.fromkeys(("PyMem_RawMalloc", "PyMem_Malloc", "PyObject_Malloc"), _BY_SIZE),
    **dict.fromkeys(("PyMem_RawCalloc", "PyMem_Calloc", "PyObject_Calloc"), Way(1, 0)),
    **dict.fromkeys(("PyMem_RawRealloc", "PyMem_Realloc", "PyObject_Realloc"), _SECOND),
    **dict.fromkeys(("_PyObject_New", "_PyObject_NewVar", "_PyObject_GC_New", "_PyObject_GC_NewVar", "PyType_GenericAlloc"), _OF_TYPE),
}
TYPED = frozenset(name for name, way in ALLOCATORS.items() if way is _OF_TYPE)
"""Those that get the type of an object of Python."""


LINKS: Dict[str, Tuple[str, Optional[int]]] = {
    "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_": (TREE, 1),
    "_ZNSt8__detail15_List_node_base7_M_hookEPS0_": (LIST, 0),
    "_ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm": (CHAIN, None),
}
"""Functions of libstdc++ that link a node into its container, and the argument that is the node; None: who calls it links one."""


EACH_BYTES = 24
"""Of memory for each byte of code, at the peak: of gdb with Python, of redis with OpenSSL and dockerd 23, 24 and 8."""
MOST_FUNCTION_BYTES = 256 << 10
LEAST_ADDRESS = 4096
ENDS = ("abort", "exit", "_exit", "__stack_chk_fail", "__cxa_throw", "__cxa_rethrow", "_Unwind_Resume", "__assert_fail", "longjmp")
GIVE_FIRST = {form % name for form in ("%s", "__%s_chk") for name in ("memcpy", "memmove", "memset", "strcpy", "strncpy", "strcat")}
"""They return their first argument."""
MOST_GIVING_BYTES = 32
THROWS = "_ZSt"
"""Begin of the runtime's own: `_ZSt20__throw_length_errorPKc`, `_ZSt9terminatev`."""


class CodeObject(Pointers):
    """Loaded object: its code, functions, and branches; pointers as the dynamic linker will write them."""

    def __init__(self, module: Module, code: ObjectCode, reader: CodeReader, library: Any, names: Dict[int, str], last: int) -> None:
        self._first, self._last = max(LEAST_ADDRESS, min((start for start, _ in code.parts), default=0)), last
        self.module, self.code, self.names, self._reader, self._library = module, code, names, reader, library
        self.starts = [start for start, _ in code.functions]
        self._flows: Dict[int, Optional[Flow]] = {}
        self.branches: Dict[Tuple[Optional[int], Optional[int]], List[int]] = {}
        """Places by what they lead to, (function, None) or (None, pointer)."""
        self.stubs: Dict[int, str] = {}
        """Entries of the procedure linkage table, by the name that they lead to."""
        for place, target, slot, kind in (branch for address, data in code.parts for branch in reader.branches(address, data)):
            self.branches.setdefault((target, slot), []).append(place)
            name = code.slots.get(slot) if slot is not None and kind == "jump" else None
            if name is not None:
                self.stubs.update((begin, name) for begin in reader.stub(place, self.bytes_at(place - 8, 8)))
        self.loads = [load for address, data in code.parts for load in reader.loads(address, data)]

    def bytes_at(self, address: int, size_bytes: int) -> bytes:
        """Return the bytes of the code there; fewer where the code ends."""
        for start, data in self.code.parts:
            if start <= address < start + len(data):
                return data[address - start : address - start + size_bytes]
        return b""

    def has(self, address: int) -> bool:
        """Return True if the address, relative to the load base, lies in this object."""
        return self._first <= address < self._last

    def name_of(self, target: Optional[int], slot: Optional[int]) -> Optional[str]:
        """Return the name of the function that a call leads to; None if it has none."""
        if slot is not None:
            return self.code.slots.get(slot)
        return None if target is None else self.stubs.get(target) or self.names.get(target)

    def own(self, target: Optional[int], slot: Optional[int]) -> Optional[int]:
        """Return the address in this object that a call or pointer leads to; None if it leads elsewhere, or that is unknown."""
        return target if target is not None and target not in self.stubs else self.code.pointers.get(slot) if slot is not None else None

    def function_at(self, address: int) -> Optional[Tuple[int, int]]:
        """(begin, end) of what has call frames there."""
        place = bisect_right(self.starts, address) - 1
        found = self.code.functions[place] if place >= 0 else None
        return found if found is not None and found[0] <= address < found[1] else None

    def flow(self, start: int) -> Optional[Flow]:
        """Return the flow of the function that begins there; None if no function does, or it is too long."""
        if start not in self._flows:
            self._flows[start] = None  # for one that calls itself
            found = self.function_at(start)
            is_read = found is not None and found[0] == start and found[1] - start <= MOST_FUNCTION_BYTES
            self._flows[start] = self._follow_function(*found) if found is not None and is_read else None
        return self._flows[start]

    def _follow_function(self, start: int, end: int) -> Flow:
        decode = self._reader.decode
        taken: List[Instruction] = [
            (address, size, decode(address, size, mnemonic, text))
            for address, size, mnemonic, text in self._library.disasm_lite(self.bytes_at(start, end - start), start)
        ]
        return FlowFollower(self._reader, start, end, self).follow(taken)

    def at(self, address: int) -> Optional[Value]:
        if address in self.code.slots:  # even of this object: another's may come first
            return Value(("slot", address), 1, 0)
        return Value(NUMBER, 0, self.code.pointers[address]) if address in self.code.pointers else None

    def pointed_address(self, address: int) -> Optional[int]:
        return self.code.pointers.get(address)

    def ends(self, target: Optional[int], slot: Optional[int]) -> bool:
        name = self.name_of(target, slot)
        return name is not None and (name in ENDS or (name.startswith(THROWS) and ("__throw_" in name or "terminate" in name)))

    def gives(self, target: Optional[int], slot: Optional[int]) -> Optional[int]:
        if self.name_of(target, slot) in GIVE_FIRST:
            return 0
        own = self.own(target, slot)
        found = self.function_at(own) if own is not None else None
        if own is None or found is None or found[0] != own or found[1] - own > MOST_GIVING_BYTES:
            return None
        flow = self.flow(own)
        given = next(iter(flow.returned)) if flow is not None and len(flow.returned) == 1 else None
        return given.root[1] if given is not None and given.root[0] == "argument" and (given.times, given.plus) == (1, 0) else None


Read = Tuple[Sequence[CodeObject], Sequence[Tuple[str, str]]]
"""Facts that files alone give, whatever memory holds: objects, and what is unread as Scan has it."""


def read_object_code(target: Target, room_bytes: int) -> Read:
    """The code of all loaded objects; what becomes known of their functions stays here. HeapxError where nothing takes code apart, or that
    would take more than `room_bytes`: the process may be in the same control group, where the kernel ends one of both."""
    found: List[Tuple[Module, ObjectCode, CodeReader]] = []
    unread: List[Tuple[str, str]] = []
    for module in target.modules():
        reader = READERS.get(target.arch.name)
        code = target.code(module) if reader is not None else None
        if code is not None and reader is not None:
            found.append((module, code, reader))
        elif not module.name.startswith(("linux-", "[")) and module.name:
            unread.append((module.file_name, "no file" if reader is not None else "its machine"))
        code_bytes = sum(len(data) for _, one, _ in found for _, data in one.parts)
        if code_bytes * EACH_BYTES > room_bytes:
            what = "reading %s of code or more takes about %s of memory, and this process may use %s"
            sizes = SentenceSize(code_bytes), SentenceSize(code_bytes * EACH_BYTES), SentenceSize(max(0, room_bytes))
            raise HeapxError(make_sentence(what, *sizes), "omit --sites, or ask of a core where there is more memory", code=OUT_OF_MEMORY)
    return [_make_object(target, *one) for one in found], unread


def _make_object(target: Target, module: Module, code: ObjectCode, reader: CodeReader) -> CodeObject:
    names: Dict[int, str] = {}
    for function in target.functions(module, exported=True):
        address = function.start - module.base
        if function.name in ALLOCATORS or address not in names:
            names[address] = function.name
    last = max((end for _, end, _ in target.writable_segments(module)), default=module.base) - module.base
    capstone = import_capstone()
    disassembler = capstone.Cs(*(getattr(capstone, name) for name in reader.library))
    return CodeObject(module, code, reader, disassembler, names, last)


def import_capstone() -> Any:
    """Return the module capstone, which disassembles code. HeapxError where it is not installed."""
    try:
        import capstone
    except ImportError:
        hint = "install it: pip install 'gdbheapx[sites]'"
        raise HeapxError("this Python has no capstone, which takes code apart", hint, code=MISSING_PACKAGE) from None
    return capstone
