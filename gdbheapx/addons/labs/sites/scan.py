"""The code of loaded files, taken apart function by function where it is asked for; the functions by which code asks for memory, and those
that link what they got into a container of C++; and the calls of malloc in the code of all loaded objects.

Only functions whose bytes may have such a call are taken apart, and the constructors to which they give the new block.
"""

from bisect import bisect_left, bisect_right
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.labs.sites.flow import NUMBER, Flow, FlowCall, FlowFollower, Instruction, Pointers, Value
from gdbheapx.addons.labs.sites.x86_64 import READERS, CodeReader
from gdbheapx.analysis.addon_answers import ADDRESS, BEGIN, BEYOND, CHAIN, ITSELF, LIST, PUSHED, STRING_BYTES, TREE, Scan, Site, Word
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import MISSING_PACKAGE, OUT_OF_MEMORY
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import Module, ObjectCode, Target


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


MOST_LEVELS = 5
"""Of functions that hand their own argument on to malloc."""
MOST_CONSTRUCTORS = 3
"""Of those that call each other for one object."""
MOST_SIZE_BYTES = 1 << 40
MOST_TABLE_BYTES = 256
"""Of a structure with a pointer to malloc."""
MOST_DATA_BYTES = 64 << 20
MOST_OFFSET_BYTES = 128
"""Of a block what is looked at."""
UNKNOWN = Value(("unknown", 0), 1, 0)
TYPE_OFFSET = 8
MOST_WORDS, MOST_GIVEN, MOST_ARGUMENTS = 8, 3, 5
Stores = Dict[int, Tuple[int, int, Value]]
"""By offset: (at which address of code, bytes, what)."""


class AllocationCall(NamedTuple):
    """A call of a way to malloc in a function, with its size."""

    at: int
    size: Value
    way: Way
    arguments: Tuple[Value, ...]


class Scanner:
    """Search for calls of malloc in all objects of one process."""

    def __init__(self, target: Target, budget: Budget, known: Read) -> None:
        self._target, self._budget = target, budget
        self._objects, self._unread = known
        self._ways: Dict[str, Way] = dict(ALLOCATORS)
        """By name."""
        self._own_ways: Dict[Tuple[int, int], Way] = {}
        """By (object, address): functions without a name, too."""
        self._tried: Dict[Tuple[int, int], List[AllocationCall]] = {}
        """By (object, address): the calls of a function that hands nothing on, as they were known then."""
        self._into: Dict[Tuple[CodeObject, Optional[int], int, int], Stores] = {}
        """By (object, function, number, depth): what it stores into what its argument points to."""
        self._exporters: Dict[str, Tuple[CodeObject, int]] = {}
        self._pointed: Dict[int, Dict[int, Way]] = {}
        """By object and address: variables that hold the address of a way now (malloc hooks, tables of functions)."""

    def scan(self) -> Scan:
        """The answer."""
        self._budget.progress.stage = "reading the code for calls of malloc"
        for object_ in self._objects:
            for address, name in object_.names.items():
                self._exporters.setdefault(name, (object_, address))
        for _ in range(MOST_LEVELS):
            self._find_pointers()
            before = len(self._ways) + len(self._own_ways)
            for number, object_ in enumerate(self._objects):
                self._find_wrappers(number, object_)
            if len(self._ways) + len(self._own_ways) == before:
                break
        sites = [site for number, object_ in enumerate(self._objects) for site in self._find_object_sites(number, object_)]
        wrappers = {self._objects[of].module.base + start for (of, start), way in self._own_ways.items() if way.size is not None}
        ways = {
            object_.module.base + address
            for object_ in self._objects
            for address, name in object_.names.items()
            if name in ALLOCATORS and ALLOCATORS[name].size is not None
        }
        return Scan(sites, wrappers | ways, self._unread)

    def _check_time(self) -> None:
        """HeapxError where there is no more: of half the code there may seem to be one candidate where there are many."""
        if self._budget.expired():
            raise self._budget.cut("all code was read")

    def _find_way(self, number: int, target: Optional[int], slot: Optional[int]) -> Optional[Way]:
        """Return the Way of the called function if it allocates memory; None otherwise."""
        if slot is not None and slot in self._pointed.get(number, ()):
            return self._pointed[number][slot]
        own = self._own_ways.get((number, target)) if target is not None else None
        return own or self._ways.get(self._objects[number].name_of(target, slot) or "")

    def _find_pointers(self) -> None:
        """Variables through which malloc is called."""
        ways = {self._objects[of].module.base + start: way for (of, start), way in self._own_ways.items()}
        for name, way in self._ways.items():
            if name in self._exporters:
                of, start = self._exporters[name]
                ways[of.module.base + start] = way
        for number, object_ in enumerate(self._objects):
            base = object_.module.base
            found = self._pointed.setdefault(number, {})
            for begin, end, _ in self._target.writable_segments(object_.module):
                data = self._target.read_prefix(begin, min(end - begin, MOST_DATA_BYTES))
                for place, word in enumerate(self._target.words_in(data[: len(data) // 8 * 8])):
                    if word in ways and begin + 8 * place - base not in object_.code.slots:
                        found[begin + 8 * place - base] = ways[word]

    def _find_callers(self, number: int) -> List[int]:
        """Begins of the functions that may call one of the ways."""
        object_ = self._objects[number]
        wanted = {address for address, name in object_.stubs.items() if name in self._ways}
        wanted |= {address for address, name in object_.names.items() if name in self._ways}
        wanted |= {address for of, address in self._own_ways if of == number}
        slots = {slot for slot, name in object_.code.slots.items() if name in self._ways}
        begins: Set[int] = set()
        pointed = self._pointed.get(number, {})
        slots |= pointed.keys()
        ordered = sorted(pointed)
        for at, place in object_.loads if pointed else ():
            read = object_.code.pointers.get(place, place)
            following = bisect_left(ordered, read)
            is_near = following < len(ordered) and ordered[following] - read < MOST_TABLE_BYTES
            found = object_.function_at(at) if is_near else None
            if found is not None:
                begins.add(found[0])
        for leads in (*((target, None) for target in wanted), *((None, slot) for slot in slots)):
            for address in object_.branches.get(leads, ()):
                found = object_.function_at(address)
                if found is not None:
                    begins.add(found[0])
        return sorted(begins)

    def _find_way_calls(self, number: int, flow: Flow) -> List[AllocationCall]:
        """The calls of ways, with their sizes."""
        made = []
        for place, call in enumerate(flow.calls):
            how = self._find_way(number, call.target, call.slot)
            if how is None or (call.is_jump and call.address in self._objects[number].stubs):
                continue
            size = call.arguments[how.size] if how.size is not None else Value(("unknown", -1 - place), 1, 0)
            if how.count is not None:
                count = call.arguments[how.count]
                if count.root == NUMBER:
                    size = Value(size.root, size.times * count.plus, size.plus * count.plus)
                elif size.root == NUMBER:
                    size = Value(count.root, count.times * size.plus, count.plus * size.plus)
                else:
                    size = Value(("unknown", -1 - place), 1, 0)
            made.append(AllocationCall(call.address, size._replace(plus=size.plus + how.plus), how, call.arguments))
        return made

    def _find_wrappers(self, number: int, object_: CodeObject) -> None:
        for start in self._find_callers(number):
            self._check_time()
            flow = object_.flow(start) if (number, start) not in self._own_ways else None
            calls = self._find_way_calls(number, flow) if flow is not None else []
            if flow is None or self._tried.get((number, start)) == calls:
                continue
            self._tried[number, start] = calls
            way = self._handed_on(number, flow, calls)
            if way is not None:
                self._own_ways[number, start] = way
                name = object_.names.get(start)
                exporter = self._exporters.get(name) if name is not None else None
                if name is not None and exporter == (object_, start):
                    self._ways.setdefault(name, way)

    def _handed_on(self, number: int, flow: Flow, calls: List[AllocationCall]) -> Optional[Way]:
        """Return the Way of a function that returns memory from malloc, and passes its own argument to malloc or stores it in the block;
        None otherwise.
        """
        for call in calls:
            roots = flow.alike(call.at)
            given = [value for value in flow.returned if value.root in roots and value.times == 1]
            if not given:
                continue
            behind = given[0].plus
            argument = call.size.root[1] if call.size.root[0] == "argument" and call.size.times == 1 else None
            stored, _ = self._collect_stores(self._objects[number], flow, call, MOST_CONSTRUCTORS)
            if any(
                size == 8 and (self._resolve_address(self._objects[number], value) is not None or self._is_inner(roots, offset, value))
                for offset, (_, size, value) in stored.items()
            ):
                return None  # it makes one class's objects, whatever their size: it is a site
            words = tuple(
                (offset - behind, size, value.root[1])
                for offset, (_, size, value) in sorted(stored.items())
                if value.root[0] == "argument" and (value.times, value.plus, size) == (1, 0, 8)
            )
            if argument is not None or words:
                plus = call.size.plus if argument is not None else 0
                return Way(argument, None, plus, call.way.shift + behind, call.way.floats, words[:MOST_WORDS])
        return None

    def _find_object_sites(self, number: int, object_: CodeObject) -> List[Site]:
        made = []
        for start in self._find_callers(number):
            self._check_time()
            flow = object_.flow(start)
            own = self._own_ways.get((number, start))
            if flow is None or (own is not None and own.size is not None) or object_.names.get(start) in ALLOCATORS:
                continue
            given = self._given_types(object_, start, flow)
            # where an object of Python has its type, into what may be a block or not
            types = [value for place, value, _, size in flow.stores if size == 8 and place.plus == TYPE_OFFSET]
            stored = {address for address in (self._resolve_address(object_, value) for value in types) if address is not None}
            for call in self._find_way_calls(number, flow):
                words = self._find_stored_words(object_, flow, call)
                loose = stored - {word.value for word in words}
                is_known = call.size.root == NUMBER and 0 < call.size.plus < MOST_SIZE_BYTES
                base = object_.module.base
                made.append(
                    Site(
                        module=object_.module,
                        start=base + start,
                        function=self._target.source_name(object_.names.get(start)),
                        address=base + call.at,
                        size_bytes=call.size.plus if is_known else None,
                        link=self._find_container_kind(object_, flow, call),
                        floats=call.way.floats,
                        words=words,
                        loose=sorted(loose | self._find_chosen_types(object_, flow, call) | given),
                    )
                )
        return made

    def _given_types(self, object_: CodeObject, start: int, flow: Flow) -> Set[int]:
        """Addresses that other functions of a file with objects of Python give it, and that it stores where an object has its type."""
        makes = not TYPED.isdisjoint(object_.code.slots.values()) or not TYPED.isdisjoint(object_.names.values())
        places = {
            value.root[1]
            for place, value, _, size in flow.stores
            if makes and size == 8 and place.plus == TYPE_OFFSET and value.root[0] == "argument" and (value.times, value.plus) == (1, 0)
        }
        callers = {object_.function_at(address) for address in object_.branches.get((start, None), ())} if places else set()
        found: Set[int] = set()
        for caller in callers:
            calls = object_.flow(caller[0]) if caller is not None else None
            for call in calls.calls if calls is not None else ():
                if call.target == start:
                    found.update(self._resolve_address(object_, call.arguments[place]) or 0 for place in places)
        return found - {0}

    def _find_chosen_types(self, object_: CodeObject, flow: Flow, call: AllocationCall) -> Set[int]:
        """The types of which one is asked for: which, depends."""
        given = [call.arguments[argument] for _, _, argument in call.way.words if call.way.floats]
        numbers = {number for value in given if value.root[0] == "either" for number in flow.merged_numbers[value.root[1]]}
        return {object_.module.base + number for number in numbers if object_.has(number)}

    def _find_container_kind(self, object_: CodeObject, flow: Flow, call: AllocationCall) -> Optional[str]:
        """Return the kind of container that the block becomes a node of; None if it becomes none."""
        blocks = {Value(root, 1, 0) for root in flow.alike(call.at)}
        for later in flow.calls:
            kind, number = LINKS.get(object_.name_of(later.target, later.slot) or "", (None, None))
            if kind is not None and (number is None or later.arguments[number] in blocks):
                return kind
            place = next((at for at in range(1, MOST_ARGUMENTS) if later.arguments[at] in blocks), None)
            inner = object_.own(later.target, later.slot) if kind is None and place is not None else None
            linking = object_.flow(inner) if inner is not None else None
            for called in linking.calls if linking is not None else ():
                kind, number = LINKS.get(object_.name_of(called.target, called.slot) or "", (None, None))
                if kind is not None and (number is None or called.arguments[number] == Value(("argument", place or 0), 1, 0)):
                    return kind
        return None

    @staticmethod
    def _is_inner(roots: Set[Tuple[str, int]], offset: int, value: Value) -> bool:
        """A pointer to the block itself, no std::string's."""
        return value.root in roots and value.times == 1 and value.plus != offset + STRING_BYTES

    @staticmethod
    def _find_link_words(flow: Flow, roots: Set[Tuple[str, int]], shift: int) -> List[Word]:
        """Return link words: the offset of the link to the next block, of a block that becomes the first of a list; and for a block that
        points to its own begin from an unknown offset, that word and the ones next to it.
        """
        made = []
        first = {
            place for place, value, _, size in flow.stores if size == 8 and value.root in roots and (value.times, value.plus) == (1, 0)
        }
        for place, value, _, size in flow.stores:
            if size != 8 or place.times != 1 or value.times != 1:
                continue
            before = flow.loaded.get(value.root)
            if place.root in roots and before in first and before.root not in roots and value.plus == 0:
                made.append(Word(place.plus + shift, PUSHED, shift))
            elif flow.inside.get(place.root) in roots:
                if value.root in roots:
                    made.append(Word(place.plus, BEGIN, value.plus + shift))
                elif value.root == place.root:
                    made.append(Word(place.plus, BEYOND, value.plus))
        return made

    def _find_stored_words(self, object_: CodeObject, flow: Flow, call: AllocationCall) -> List[Word]:
        """Return the words that the function, or another on its behalf, stores into the block."""
        roots = flow.alike(call.at)
        made = self._find_link_words(flow, roots, call.way.shift)
        stored, others = self._collect_stores(object_, flow, call, MOST_CONSTRUCTORS)
        for offset, value in others:
            address = self._resolve_address(object_, value)
            if address is not None and 0 <= offset + call.way.shift < MOST_OFFSET_BYTES:
                made.append(Word(offset + call.way.shift, ADDRESS, address))
        for offset, (_, size, value) in sorted(stored.items()):
            if not 0 <= offset + call.way.shift < MOST_OFFSET_BYTES:
                continue
            address = self._resolve_address(object_, value) if size == 8 else None
            if value.root in roots and value.times == 1 and size == 8:
                made.append(Word(offset + call.way.shift, ITSELF, value.plus + call.way.shift))
            elif address is not None:
                made.append(Word(offset + call.way.shift, ADDRESS, address))
        return made

    def _collect_stores(self, object_: CodeObject, flow: Flow, call: AllocationCall, depth: int) -> Tuple[Stores, List[Tuple[int, Value]]]:
        """Return the stores into the block of one call, in values of the calling function, and values that may have been stored last
        instead.
        """
        others: List[Tuple[int, Value]] = []
        found: Stores = {offset: (call.at, size, call.arguments[given]) for offset, size, given in call.way.words}
        self._follow_stores(object_, flow, flow.alike(call.at), depth, found, others)
        return found, others

    def _follow_stores(
        self, object_: CodeObject, flow: Flow, roots: Set[Tuple[str, int]], depth: int, found: Stores, others: List[Tuple[int, Value]]
    ) -> None:
        """Collect by offset the last store into the object that one of the roots points to; a constructor stores the words of bases
        first. `others` gets the earlier values where other code may have made the last store: code that destroys the object.
        """
        for place, value, at, size in flow.stores:
            if place.root in roots and place.times == 1 and (place.plus not in found or found[place.plus][0] <= at):
                before = found.get(place.plus)
                if before is not None and not flow.is_straight(before[0], at):
                    others.append((place.plus, before[2]))
                found[place.plus] = (at, size, value)
        for call in flow.calls if depth > 0 else ():
            for number, given in enumerate(call.arguments[:MOST_GIVEN]):
                if given.root in roots and given.times == 1:
                    for offset, (size, value) in self._find_constructor_stores(object_, call, number, depth - 1).items():
                        behind = given.plus + offset
                        if behind not in found or found[behind][0] <= call.address:
                            found[behind] = (call.address, size, value)

    def _find_constructor_stores(self, object_: CodeObject, call: FlowCall, number: int, depth: int) -> Dict[int, Tuple[int, Value]]:
        """Return the stores of a function into the object of its argument, in values of its caller; of a function in another file only
        the values that it was given.
        """
        name = object_.name_of(call.target, call.slot)
        own = object_.own(call.target, call.slot)
        of, start = (object_, own) if own is not None else self._exporters.get(name or "", (object_, None))
        key = (of, start, number, depth)
        if key not in self._into:
            flow = of.flow(start) if start is not None else None
            found = self._into[key] = {}
            if flow is not None:
                self._follow_stores(of, flow, {("argument", number)}, depth, found, [])
        made = {}
        for offset, (_, size, value) in self._into[key].items():
            if value.root[0] == "argument" and value.root[1] < len(call.arguments) and value.times == 1:
                given = call.arguments[value.root[1]]
                made[offset] = (size, given._replace(plus=given.plus + value.plus))
            elif value.root == NUMBER and of is object_:
                made[offset] = (size, value)
            elif value.root[0] in ("slot", "number"):
                address = self._resolve_address(of, value)
                made[offset] = (size, UNKNOWN if address is None else Value(NUMBER, 0, address - object_.module.base))
            else:
                made[offset] = (size, UNKNOWN)
        return made

    def _resolve_address(self, object_: CodeObject, value: Value) -> Optional[int]:
        """Return the address in memory of a constant that may be an address; None otherwise."""
        if value.root == NUMBER and object_.has(value.plus):
            return object_.module.base + value.plus
        if value.root[0] == "slot" and value.times == 1:
            symbol = self._target.dynamic_symbol(object_.code.slots[value.root[1]])
            return symbol.address + value.plus if symbol is not None else None
        return None


def scan_code(target: Target, budget: Budget, known: Read) -> Scan:
    """Scan the code of a process or core. `known`: the code as read from its files."""
    return Scanner(target, budget, known).scan()
