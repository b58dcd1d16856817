"""Data flow of one function: the arguments of its calls, and the uses of their results. Basic blocks are followed until nothing changes.
Where paths meet, only values on which all of them agree stay known, or which calls gave a value. Nothing here is certain: after a jump
through a table, or in an exception handler, only the stack is known.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple

from gdbheapx.addons.labs.sites.x86_64 import CodeReader, CodeStep, Operand

Root = Tuple[str, int]
"""(`argument`, number), (`either`, number), (`stack`, 0), (`result`, address of the call), (`slot` or `data`, address), (`unknown`, number)
or (`lost`, 0)."""
NUMBER: Root = ("number", 0)
MASK = (1 << 64) - 1
MOST_MERGED = 256
MOST_VISITS = 8
UNKNOWN_BITS = 8
Instruction = Tuple[int, int, Sequence[CodeStep]]
"""(address, bytes, what it does)."""


class Value(NamedTuple):
    """A root times `times`, and `plus`; of a number the second alone."""

    root: Root
    times: int
    plus: int


LOST = Value(("lost", 0), 1, 0)
"""Two ways know it, and not the same."""


class FlowCall(NamedTuple):
    """Call, or jump to another function."""

    address: int
    target: Optional[int]
    slot: Optional[int]
    arguments: Tuple[Value, ...]
    is_jump: bool


class Flow(NamedTuple):
    """Calls, stores and results of one function."""

    calls: List[FlowCall]
    returned: Set[Value]
    stores: List[Tuple[Value, Value, int, int]]
    """(where, what, at which address of code, bytes), in order."""
    merged_calls: List[FrozenSet[int]]
    """Sets of calls, of which one gave a value where paths meet: a pool, or malloc where that is empty. The root (`result`, -1) is the
    first of them."""
    merged_numbers: List[FrozenSet[int]]
    """Sets of numbers, of which a value is one. The root (`either`, 0) is the first of them."""
    loaded: Dict[Root, Value]
    """By what was read from memory, and is not known, where it stood."""
    begins: Sequence[int]
    """Of its blocks of instructions, in order."""
    inside: Dict[Root, Root]
    """By what is something known plus something that is not, the former: a place somewhere in a block."""

    def is_straight(self, first: int, last: int) -> bool:
        """Return True if both addresses of code are in one basic block, so that no other path lies between them."""
        return bisect_right(self.begins, first) == bisect_right(self.begins, last)

    def alike(self, address: int) -> Set[Root]:
        """The call's result, and values that are it or another call's."""
        return {("result", address), *(("result", -number) for number, calls in enumerate(self.merged_calls, 1) if address in calls)}


class State:
    """Registers, and words on the stack."""

    def __init__(self, registers: Dict[str, Value], memory: Dict[Tuple[Root, int], Value]) -> None:
        self.registers, self.memory, self.is_strict = registers, memory, False
        """Strict: what two ways do not agree on is lost, so that it ends whatever loops do."""

    def frame(self) -> Dict[str, Value]:
        """Registers that point to the stack."""
        return {name: one for name, one in self.registers.items() if one.root[0] == "stack"}

    def without(self, value: Value) -> "State":
        """Another, in which what has this value is 0."""
        none = Value(NUMBER, 0, 0)
        registers = {name: none if one == value else one for name, one in self.registers.items()}
        return State(registers, {place: none if one == value else one for place, one in self.memory.items()})

    def copy(self) -> "State":
        """Another with the same."""
        return State(dict(self.registers), dict(self.memory))

    def meet(self, other: "State", flow: Flow) -> bool:
        """Keeps what both know; True: that is less than before, or more is a call's. An argument that one way replaces by a number
        (`size ? size : 1`) is still that argument; what one way gets from a call and another from a list of free ones, or not at all, is
        what the call gave."""
        mine, theirs, changed = self.registers, other.registers, False
        for name, one in mine.items() if mine != theirs else ():
            another = theirs.get(name)
            if one is not another and one != another:
                same = (not self.is_strict and _merge_values(one, another, flow)) or LOST
                changed = changed or same != one
                mine[name] = same
        for name in theirs.keys() - mine.keys():
            mine[name] = (not self.is_strict and _merge_values(None, theirs[name], flow)) or LOST
            changed = True
        if self.memory != other.memory:
            memory = {place: value for place, value in self.memory.items() if other.memory.get(place) == value}
            changed = changed or len(memory) != len(self.memory)
            self.memory = memory
        return changed


def _merge_values(one: Optional[Value], other: Optional[Value], flow: Flow) -> Optional[Value]:
    if one == other:
        return one
    if LOST in (one, other):
        return None
    for this, that in ((one, other), (other, one)):
        if this is not None and this.root[0] == "argument" and that is not None and that.root == NUMBER:
            return this
        if this is not None and this.root[0] == "result" and (that is None or that.root[0] == "unknown" or that.root == NUMBER):
            return this
    if one is not None and other is not None and one.root[0] == other.root[0] == "result":
        if (one.times, one.plus) != (other.times, other.plus):
            return None
        calls = [flow.merged_calls[-1 - number] if number < 0 else frozenset({number}) for number in (one.root[1], other.root[1])]
        place = _place_in_merged(calls[0] | calls[1], flow.merged_calls)
        return one._replace(root=("result", -1 - place)) if place is not None else None
    if one is not None and other is not None:
        numbers = _possible_numbers(one, flow), _possible_numbers(other, flow)
        place = _place_in_merged(numbers[0] | numbers[1], flow.merged_numbers) if all(numbers) else None
        return Value(("either", place), 1, 0) if place is not None else None
    return None


def _place_in_merged(found: FrozenSet[int], known: List[FrozenSet[int]]) -> Optional[int]:
    if found not in known:
        if len(known) == MOST_MERGED:
            return None
        known.append(found)
    return known.index(found)


def _possible_numbers(value: Value, flow: Flow) -> FrozenSet[int]:
    if value.root[0] == "either" and (value.times, value.plus) == (1, 0):
        return flow.merged_numbers[value.root[1]]
    return frozenset({value.plus} if value.root == NUMBER else ())


class FlowFollower:
    """Follows one function."""

    def __init__(self, reader: CodeReader, start: int, end: int, pointers: "Pointers") -> None:
        self._reader, self._start, self._end, self._pointers = reader, start, end, pointers
        self._lost, self._unknown = frozenset(reader.lost), 0
        self.flow = Flow([], set(), [], [], [], {}, (), {})
        registers = {name: Value(("argument", number), 1, 0) for number, name in enumerate(reader.arguments)}
        registers[reader.sp] = Value(("stack", 0), 1, 0)
        self._state: State = State(registers, {})
        self._at = start
        self._blocks: Dict[int, List[Instruction]] = {}
        self._arriving: Dict[int, State] = {}
        """By the begin of a block what is known there."""
        self._changed: List[int] = []
        self._is_settled = False
        """Nothing changes any more."""
        self._tested: Optional[Tuple[Value, int]] = None
        """What was compared with 0 last, and the address of the next instruction."""

    def follow(self, instructions: Iterable[Instruction]) -> Flow:
        """Follow the whole function and return its flow."""
        self._cut_into_blocks(list(instructions))
        order = sorted(self._blocks)
        if not order:
            return self.flow
        self._arriving[order[0]] = self._state
        waiting, visits = [order[0]], Counter[int]()
        for place, begin in enumerate(order):
            if begin not in self._arriving:  # by a table, or for an exception: only the frame is still where it was
                self._run_block(order[place - 1])
                self._arriving[begin] = State(self._state.frame(), {})
                waiting.append(begin)
            while waiting:
                least = heapq.heappop(waiting)
                visits[least] += 1
                self._arriving[least].is_strict = visits[least] >= MOST_VISITS
                for changed in self._run_block(least):
                    if changed not in waiting:
                        heapq.heappush(waiting, changed)
        self._is_settled = True
        self.flow = Flow([], set(), [], self.flow.merged_calls, self.flow.merged_numbers, {}, order, {})
        for begin in order:
            self._run_block(begin)
        return self.flow

    def _cut_into_blocks(self, listed: List[Instruction]) -> None:
        """Into blocks: nothing leads into one but to its begin, and nothing out of it but from its end."""
        begins, was_end = {self._start}, True
        for address, _, steps in listed:
            if was_end and (steps or address == self._start):  # it may be filled up to the next begin
                begins.add(address)
                was_end = False
            for step in steps:
                if step.kind in ("jump", "branch") and step.first.kind == "number" and self._start <= step.first.number < self._end:
                    begins.add(step.first.number)
                was_end = was_end or step.kind in ("jump", "branch", "return")
        begin = self._start
        for instruction in listed:
            begin = instruction[0] if instruction[0] in begins else begin
            self._blocks.setdefault(begin, []).append(instruction)

    def _run_block(self, begin: int) -> List[int]:
        """Run one basic block; return the blocks whose known state shrank by that."""
        self._state, self._changed = self._arriving[begin].copy(), []
        last = 0
        for address, size, steps in self._blocks[begin]:
            self._at, self._unknown, last = address, 0, address + size
            for step in steps:
                if step.kind == "test":
                    self._tested = self._read_register(step.first.base), address + size
                if self._run_step(address, step):
                    return self._changed
        self._join_block(Operand("number", number=last), self._state)
        return self._changed

    def _make_unknown(self) -> Value:
        self._unknown += 1
        return Value(("unknown", self._at << UNKNOWN_BITS | self._unknown), 1, 0)

    def _read_register(self, name: str) -> Value:
        value = self._state.registers.get(name)
        if value is None or value is LOST:
            value = self._state.registers[name] = self._make_unknown()
        return value

    def _compute_address(self, operand: Operand) -> Value:
        """Return the address of a memory operand, or the sum that is written like one (lea)."""
        value = self._read_register(operand.base) if operand.base else Value(NUMBER, 0, 0)
        if operand.number:
            value = Value(value.root, value.times, value.plus + operand.number)
        if operand.index:
            index = self._read_register(operand.index)
            scaled = Value(index.root, index.times * operand.scale, index.plus * operand.scale)
            if value.root == NUMBER:
                return scaled._replace(plus=scaled.plus + value.plus)
            if scaled.root == NUMBER:
                return value._replace(plus=value.plus + scaled.plus)
            if value.root == scaled.root:
                return Value(value.root, value.times + scaled.times, value.plus + scaled.plus)
            made = self._make_unknown()
            block = next((part for part in (value, scaled) if part.root[0] == "result" and part.times == 1), None)
            if block is not None:
                self.flow.inside[made.root] = block.root
            return made
        return value

    def _read_operand(self, operand: Operand) -> Value:
        if operand.kind == "number":
            return Value(NUMBER, 0, operand.number & MASK)
        if operand.kind == "register":
            return self._read_register(operand.base)
        if operand.kind != "memory" or operand.size_bytes not in (8, 16):
            return self._make_unknown()
        place = self._compute_address(operand)
        known = self._find_fixed_address(place)
        if known is not None:
            return self._pointers.at(known) or Value(("data", known), 1, 0)
        stored = self._state.memory.get((place.root, place.plus))
        if stored is None:
            stored = self._make_unknown()
            self.flow.loaded[stored.root] = place
        return stored

    def _find_fixed_address(self, place: Value) -> Optional[int]:
        """The address in this file, if it is always the same."""
        if place.root == NUMBER:
            return place.plus
        begin = self._pointers.pointed_address(place.root[1]) if place.root[0] == "slot" and place.times == 1 else None
        return begin + place.plus if begin is not None else None

    def _record_store(self, address: int, place: Value, value: Value, size_bytes: int) -> None:
        self.flow.stores.append((place, value, address, size_bytes))
        if place.root[0] in ("stack", "result", "argument"):
            if size_bytes >= 8:
                self._state.memory[place.root, place.plus] = value
            else:
                self._state.memory.pop((place.root, place.plus), None)

    def _run_step(self, address: int, step: CodeStep) -> bool:
        """True: what follows is reached from elsewhere alone."""
        registers = self._state.registers
        sp = self._reader.sp
        if step.kind == "copy":
            registers[step.to] = self._read_operand(step.first)
        elif step.kind == "address":
            registers[step.to] = self._compute_address(step.first)
        elif step.kind == "times":
            value, factor = self._read_operand(step.first), step.second.number
            registers[step.to] = Value(value.root, value.times * factor, value.plus * factor)
        elif step.kind == "choose":
            met = _merge_values(self._read_register(step.to), self._read_operand(step.first), self.flow)
            registers[step.to] = met if met is not None else self._make_unknown()
        elif step.kind == "lose":
            registers[step.to] = self._make_unknown()
        elif step.kind == "store":
            self._record_store(address, self._compute_address(step.first), self._read_operand(step.second), step.first.size_bytes)
        elif step.kind == "push":
            value, top = self._read_operand(step.first), self._read_register(sp)
            registers[sp] = top._replace(plus=top.plus - 8)
            self._state.memory[top.root, top.plus - 8] = value
        elif step.kind == "pop":
            top = self._read_register(sp)
            registers[step.to] = self._state.memory.get((top.root, top.plus)) or self._make_unknown()
            if step.to != sp:
                registers[sp] = top._replace(plus=top.plus + 8)
        elif step.kind == "return":
            self.flow.returned.add(self._read_register(self._reader.result))
            return True
        elif step.kind == "branch":
            self._follow_branch(address, step)
        elif step.kind == "jump":
            if step.first.kind == "number" and self._start <= step.first.number < self._end:
                self._join_block(step.first, self._state)
            elif step.first.kind in ("number", "memory") or (
                # a register that has a function's address, not one of a table of this function
                step.first.kind == "register" and self._read_register(step.first.base).root[0] in ("data", "slot")
            ):
                self._record_call(address, step.first, True)
                self.flow.returned.add(self._read_register(self._reader.result))
            return True
        elif step.kind == "call":
            return self._record_call(address, step.first, False)
        return False

    def _follow_branch(self, address: int, step: CodeStep) -> None:
        """Follow a branch; on the side where malloc returned null, the result counts as 0, since there is no block."""
        tested, at = self._tested or (None, 0)
        none = self._state.without(tested) if tested is not None and at == address and tested.root[0] == "result" else None
        self._join_block(step.first, none if step.to == "zero" and none is not None else self._state)
        if step.to == "other" and none is not None:
            self._state = none

    def _join_block(self, target: Operand, state: State) -> None:
        begin = target.number
        if self._is_settled or target.kind != "number" or begin not in self._blocks:
            return
        arriving = self._arriving.get(begin)
        if arriving is None:
            self._arriving[begin] = state.copy()
        if arriving is None or arriving.meet(state, self.flow):
            self._changed.append(begin)

    def _record_call(self, address: int, first: Operand, is_jump: bool) -> bool:
        slot = self._find_fixed_address(self._compute_address(first)) if first.kind == "memory" else None
        target = first.number if first.kind == "number" else None
        if first.kind == "register":
            through = self._read_register(first.base)
            if through.root[0] in ("data", "slot") and (through.times, through.plus) == (1, 0):
                slot = through.root[1]
            elif through.root == NUMBER:
                target = through.plus
        arguments = tuple(self._read_register(name) for name in self._reader.arguments)
        self.flow.calls.append(FlowCall(address, target, slot, arguments, is_jump))
        for name in self._lost.intersection(self._state.registers):
            del self._state.registers[name]
        given = self._pointers.gives(target, slot)
        self._state.registers[self._reader.result] = Value(("result", address), 1, 0) if given is None else arguments[given]
        return self._pointers.ends(target, slot)


class Pointers(Protocol):
    """Interface to the facts of a file about pointers in memory and called functions."""

    def at(self, address: int) -> Optional[Value]:
        """Return the constant that is there; None if unknown."""

    def pointed_address(self, address: int) -> Optional[int]:
        """Return the address in this file that the pointer there leads to, as far as the file alone shows; None otherwise."""

    def ends(self, target: Optional[int], slot: Optional[int]) -> bool:
        """The function does not return."""

    def gives(self, target: Optional[int], slot: Optional[int]) -> Optional[int]:
        """The argument that the function returns; None where it returns something else, or that is not known."""
