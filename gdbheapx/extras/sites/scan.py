"""Finds calls of malloc in the code of all loaded objects.

Only functions whose bytes may have such a call are taken apart, and the constructors to which they give the new block.
"""

from bisect import bisect_right
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from gdbheapx.analysis.sites.records import Scan, Site
from gdbheapx.arch import CodeReader
from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError
from gdbheapx.extras.sites.flow import NUMBER, Flow, Follower, Instruction, Pointers, Value
from gdbheapx.inferior.base import Code, Module, Target
from gdbheapx.problems import MISSING_PACKAGE

MOST_FUNCTION_BYTES = 256 << 10
MOST_LEVELS = 3
"""Of functions that hand their own argument on to malloc."""
MOST_CONSTRUCTORS = 3
"""Of those that call each other for one object."""
MOST_SIZE_BYTES = 1 << 40
LEAST_ADDRESS = 4096


class Way(NamedTuple):
    """How a function is asked for memory."""

    size: int
    """The argument that has the size."""
    count: Optional[int] = None  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """That by which it is multiplied."""
    plus: int = 0


_BY_SIZE, _SECOND = Way(0), Way(1)
ALLOCATORS: Dict[str, Way] = {
    **dict.fromkeys(("malloc", "valloc", "pvalloc", "__libc_malloc", "__rust_alloc", "__rust_alloc_zeroed"), _BY_SIZE),
    **dict.fromkeys(("__rdl_alloc", "__rg_alloc", "__rdl_alloc_zeroed", "__rg_alloc_zeroed"), _BY_SIZE),
    **dict.fromkeys(("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t"), _BY_SIZE),
    **dict.fromkeys(("_ZnamSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"), _BY_SIZE),
    **dict.fromkeys(("realloc", "memalign", "aligned_alloc", "__libc_memalign"), _SECOND),
    **dict.fromkeys(("calloc", "__libc_calloc"), Way(1, 0)),
    "reallocarray": Way(2, 1),
}
ENDS = ("abort", "exit", "_exit", "__stack_chk_fail", "__cxa_throw", "__cxa_rethrow", "_Unwind_Resume", "__assert_fail", "longjmp")
THROWS = "_ZSt"
"""Begin of the runtime's own: `_ZSt20__throw_length_errorPKc`, `_ZSt9terminatev`."""


class Called(NamedTuple):
    """A call of a way to malloc in a function, with its size."""

    at: int
    name: str
    result: int
    size: Value


class Object:
    """One loaded object."""

    def __init__(self, module: Module, code: Code, reader: CodeReader, library: Any, names: Dict[int, str]) -> None:
        self.module, self.code, self.names, self._reader, self._library = module, code, names, reader, library
        self.starts = [start for start, _ in code.functions]
        self._flows: Dict[int, Optional[Flow]] = {}
        self.branches = [branch for address, data in code.parts for branch in reader.branches(address, data)]
        self.stubs = self._find_stubs()
        self._pointers = OfFile(self)

    def _find_stubs(self) -> Dict[int, str]:
        """By address: entries of the procedure linkage table, by the name that they lead to."""
        stubs: Dict[int, str] = {}
        for branch in self.branches:
            name = self.code.slots.get(branch.slot) if branch.slot is not None and branch.kind == "jump" else None
            if name is not None:
                stubs.update((begin, name) for begin in self._reader.stub(branch.address, self.bytes_at(branch.address - 8, 8)))
        return stubs

    def bytes_at(self, address: int, size_bytes: int) -> bytes:
        """Of the code; shorter where that ends."""
        for start, data in self.code.parts:
            if start <= address < start + len(data):
                return data[address - start : address - start + size_bytes]
        return b""

    def name_of(self, target: Optional[int], slot: Optional[int]) -> Optional[str]:
        """What a call leads to."""
        if slot is not None:
            return self.code.slots.get(slot)
        return None if target is None else self.stubs.get(target) or self.names.get(target)

    def own(self, target: Optional[int], slot: Optional[int]) -> Optional[int]:
        """Where in this object it leads to."""
        return target if target is not None and target not in self.stubs else self.code.pointers.get(slot) if slot is not None else None

    def function_at(self, address: int) -> Optional[Tuple[int, int]]:
        """(begin, end) of what has call frames there."""
        place = bisect_right(self.starts, address) - 1
        found = self.code.functions[place] if place >= 0 else None
        return found if found is not None and found[0] <= address < found[1] else None

    def flow(self, start: int) -> Optional[Flow]:
        """Of the function that begins there; None where it is no function, or too long."""
        if start not in self._flows:
            found = self.function_at(start)
            is_read = found is not None and found[0] == start and found[1] - start <= MOST_FUNCTION_BYTES
            self._flows[start] = self._follow(*found) if found is not None and is_read else None
        return self._flows[start]

    def _follow(self, start: int, end: int) -> Flow:
        decode = self._reader.decode
        taken: List[Instruction] = [
            (address, size, list(decode(address, size, mnemonic, text)))
            for address, size, mnemonic, text in self._library.disasm_lite(self.bytes_at(start, end - start), start)
        ]
        return Follower(self._reader, start, end, self._pointers).follow(taken)


class OfFile(Pointers):
    """What the dynamic linker will write."""

    def __init__(self, of: Object) -> None:
        self._of = of

    def at(self, address: int) -> Optional[Value]:
        pointers, slots = self._of.code.pointers, self._of.code.slots
        if address in slots:  # even of this object: another's may come first
            return Value(("slot", address), 1, 0)
        return Value(NUMBER, 0, pointers[address]) if address in pointers else None

    def ends(self, target: Optional[int], slot: Optional[int]) -> bool:
        name = self._of.name_of(target, slot)
        return name is not None and (name in ENDS or (name.startswith(THROWS) and ("__throw_" in name or "terminate" in name)))


class Scanner:
    """All objects of one process."""

    def __init__(self, target: Target, budget: Budget) -> None:
        self._target, self._budget = target, budget
        self._objects: List[Object] = []
        self._ways: Dict[str, Way] = dict(ALLOCATORS)
        """By name."""
        self._own_ways: Dict[Tuple[int, int], Way] = {}
        """By (object, address): functions without a name, too."""
        self._unread: List[Tuple[str, str]] = []
        self._exporters: Dict[str, Tuple[Object, int]] = {}

    def scan(self) -> Scan:
        """The answer."""
        self._budget.progress.stage = "reading the code for calls of malloc"
        for module in self._target.modules():
            code = self._target.code(module)
            reader = code.arch.to_read_code() if code is not None else None
            if code is None or reader is None:
                if not module.name.startswith(("linux-", "[")) and module.name:
                    self._unread.append((module.file_name, "no file" if code is None else "its machine"))
                continue
            names: Dict[int, str] = {}
            for function in self._target.functions(module, exported=True):
                address = function.start - module.base
                if function.name in ALLOCATORS or address not in names:
                    names[address] = function.name
            self._objects.append(Object(module, code, reader, _library(reader), names))
        for object_ in self._objects:
            for address, name in object_.names.items():
                self._exporters.setdefault(name, (object_, address))
        for _ in range(MOST_LEVELS):
            before = len(self._ways) + len(self._own_ways)
            for number, object_ in enumerate(self._objects):
                self._find_wrappers(number, object_)
            if len(self._ways) + len(self._own_ways) == before or self._budget.expired():
                break
        sites = [site for number, object_ in enumerate(self._objects) for site in self._sites(number, object_)]
        return Scan(sites, self._unread)

    def _way(self, number: int, target: Optional[int], slot: Optional[int]) -> Optional[Tuple[str, Way]]:
        """How what is called is asked for memory."""
        object_ = self._objects[number]
        name = object_.name_of(target, slot)
        own = self._own_ways.get((number, target)) if target is not None else None
        if own is not None:
            return name or "0x%x" % (target or 0), own
        return (name, self._ways[name]) if name is not None and name in self._ways else None

    def _callers(self, number: int) -> List[int]:
        """Begins of the functions that may call one of the ways."""
        object_ = self._objects[number]
        wanted = {address for address, name in object_.stubs.items() if name in self._ways}
        wanted |= {address for address, name in object_.names.items() if name in self._ways}
        wanted |= {address for of, address in self._own_ways if of == number}
        slots = {slot for slot, name in object_.code.slots.items() if name in self._ways}
        begins: Set[int] = set()
        for branch in object_.branches:
            if branch.target in wanted or branch.slot in slots:
                found = object_.function_at(branch.address)
                if found is not None:
                    begins.add(found[0])
        return sorted(begins)

    def _calls(self, number: int, flow: Flow) -> List[Called]:
        """The calls of ways, with their sizes."""
        made = []
        for place, call in enumerate(flow.calls):
            way = self._way(number, call.target, call.slot)
            if way is None or (call.is_jump and call.address in self._objects[number].stubs):
                continue
            name, how = way
            size = call.arguments[how.size]
            if how.count is not None:
                count = call.arguments[how.count]
                if count.root == NUMBER:
                    size = Value(size.root, size.times * count.plus, size.plus * count.plus)
                elif size.root == NUMBER:
                    size = Value(count.root, count.times * size.plus, count.plus * size.plus)
                else:
                    size = Value(("unknown", -1 - place), 1, 0)
            made.append(Called(call.address, name, place, size._replace(plus=size.plus + how.plus)))
        return made

    def _find_wrappers(self, number: int, object_: Object) -> None:
        for start in self._callers(number):
            flow = object_.flow(start)
            way = None if flow is None or (number, start) in self._own_ways else self._handed_on(number, flow)
            if way is not None:
                self._own_ways[number, start] = way
                name = object_.names.get(start)
                exporter = self._exporters.get(name) if name is not None else None
                if name is not None and exporter == (object_, start):
                    self._ways.setdefault(name, way)

    def _handed_on(self, number: int, flow: Flow) -> Optional[Way]:
        """How the function itself is asked, if it gives its own argument to malloc and gives back what it gets."""
        given = {value.root for value in flow.returned}
        for call in self._calls(number, flow):
            if call.size.root[0] == "argument" and call.size.times == 1 and ("result", call.result) in given:
                return Way(call.size.root[1], None, call.size.plus)
        return None

    def _sites(self, number: int, object_: Object) -> List[Site]:
        made = []
        for start in self._callers(number):
            flow = object_.flow(start)
            if flow is None or (number, start) in self._own_ways or object_.names.get(start) in ALLOCATORS:
                continue
            for call in self._calls(number, flow):
                is_known = call.size.root == NUMBER and 0 < call.size.plus < MOST_SIZE_BYTES
                vtable = self._stored(object_, flow, ("result", call.result), MOST_CONSTRUCTORS)
                base = object_.module.base
                made.append(
                    Site(
                        module=object_.module,
                        start=base + start,
                        function=object_.names.get(start),
                        address=base + call.at,
                        allocator=call.name,
                        size_bytes=call.size.plus if is_known else None,
                        vtable=vtable,
                    )
                )
        return made

    def _stored(self, object_: Object, flow: Flow, root: Tuple[str, int], depth: int) -> Optional[int]:
        """The constant that stands at the begin of what the root points to when the function is done: a constructor writes those of the
        bases first. None where it is not known."""
        last = [(-1, -1)]
        for place, value, at in flow.stores:
            if (place.root, place.times, place.plus) == (root, 1, 0):
                address = self._address(object_, value)
                if address is not None:
                    last.append((at, address))
        for call in flow.calls if depth > 0 else ():
            given = call.arguments[0]
            if (given.root, given.times, given.plus) == (root, 1, 0) and call.address > max(last)[0]:
                constant = self._constructed(object_, call.target, call.slot, depth - 1)
                if constant is not None:
                    last.append((call.address, constant))
        return max(last)[1] if len(last) > 1 else None

    def _constructed(self, object_: Object, target: Optional[int], slot: Optional[int], depth: int) -> Optional[int]:
        """What a function stores at the begin of its first argument."""
        name = object_.name_of(target, slot)
        own = object_.own(target, slot)
        of, start = (object_, own) if own is not None else self._exporters.get(name or "", (object_, None))
        flow = of.flow(start) if start is not None else None
        return None if flow is None else self._stored(of, flow, ("argument", 0), depth)

    def _address(self, object_: Object, value: Value) -> Optional[int]:
        """In memory, of a constant that may be an address."""
        if value.root == NUMBER and value.plus >= LEAST_ADDRESS:
            return object_.module.base + value.plus
        if value.root[0] == "slot" and value.times == 1:
            symbol = self._target.dynamic_symbol(object_.code.slots[value.root[1]])
            return symbol.address + value.plus if symbol is not None else None
        return None


def _library(reader: CodeReader) -> Any:
    try:
        import capstone
    except ImportError:
        hint = "install it: pip install 'gdbheapx[sites]'"
        raise HeapxError("this Python has no capstone, which takes code apart", hint, code=MISSING_PACKAGE) from None
    return capstone.Cs(*(getattr(capstone, name) for name in reader.library))


def scan(target: Target, budget: Budget) -> Scan:
    """Of a process or core whose files are here."""
    return Scanner(target, budget).scan()
