"""Stacks of Ruby's threads and fibers, and local variables of frames there (vm_core.h: rb_execution_context_t, rb_control_frame_t)."""

from typing import Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.ruby.objects import DATA, IMEMO, TYPE_MASK, Objects

CONTEXT_WORDS, MOST_STACK_WORDS = 48, 1 << 24
FRAME_ISEQ, FRAME_SELF, FRAME_EP = 2, 3, 4
"""Of rb_control_frame_t {pc, sp, iseq, self, ep, ...}."""
MOST_FRAMES, MOST_LOCALS, MOST_SCOPES = 10_000, 1000, 64
BODY = 2
"""Of an instruction sequence {flags, wrapper, body}; body {..., location at 64 with its label, ...}."""
LABEL = 80
ENVIRONMENT_WORDS = 2
"""Between the last local variable and where ep points (VM_ENV_DATA_SIZE - 1)."""


class Context(NamedTuple):
    """What one thread or fiber runs on."""

    thread: int
    """The object."""
    address: int
    """In what C code keeps of a fiber: a Thread's first one has no object."""
    stack: int
    end: int
    frame: int
    """The innermost."""


class Local(NamedTuple):
    """A local variable with an object."""

    frame: str
    """`handle`, `block in handle`, `<main>`."""
    name: str
    value: int


def contexts(objects: Objects, threads: Iterable[int]) -> Iterator[Context]:
    """Of objects that are Threads and Fibers, each once."""
    seen = set()
    for address in threads:
        slot = objects.slot(address)
        for context in _of(objects, address, objects.data(address, slot)) if slot and slot[0] & TYPE_MASK == DATA else ():
            if context.stack not in seen:
                seen.add(context.stack)
                yield context


def _of(objects: Objects, thread: int, address: int) -> Iterator[Context]:
    """Of what a Thread or a Fiber has beside its slot: rb_execution_context_t begins {vm_stack, vm_stack_size, cfp}. A fiber's is in it,
    a thread points to its own."""
    words = objects.words(address, CONTEXT_WORDS)
    for at in range(len(words) - 2):
        places = ((address + 8 * at, words[at : at + 3]), (words[at], objects.words(words[at], 3) or (0, 0, 0)))
        for place, (stack, size, frame) in places:
            if stack and 0 < size <= MOST_STACK_WORDS and stack < frame <= stack + 8 * size and not (stack | frame) % 8:
                yield Context(thread, place, stack, stack + 8 * size, frame)


def frames_of(objects: Objects, context: Context) -> Iterator[Sequence[int]]:
    """Innermost first; they grow down from the end of the stack."""
    size = objects.layout.frame_words
    frames = range(context.frame, context.end, 8 * size)
    yield from (objects.words(frame, size) for frame in frames[:MOST_FRAMES])


def locals_of(objects: Objects, context: Context) -> Iterator[Local]:
    """Of all its frames, innermost first; and the object whose method each one runs."""
    for words in frames_of(objects, context):
        sequence = objects.slot(words[FRAME_ISEQ]) if words else ()
        if sequence and sequence[0] & TYPE_MASK == IMEMO:
            yield from _of_frame(objects, sequence[BODY], words[FRAME_SELF], words[FRAME_EP])


def _of_frame(objects: Objects, body: int, self: int, environment: int) -> Iterator[Local]:
    label, (table, size) = objects.words(body + LABEL, 1), _table(objects, body)
    name = objects.text(label[0]) if label else None
    values = objects.words(environment - 8 * (size + ENVIRONMENT_WORDS), size) if name is not None else ()
    for number, value in zip(objects.words(table, size) if values else (), values):
        local = objects.id_name(number)
        if name is not None and local is not None and objects.type_of(value):
            yield Local(name, local, value)
    if name is not None and objects.type_of(self):
        yield Local(name, "self", self)


def captured(objects: Objects, block: int, place: int) -> Optional[str]:
    """The local variable at `place`, of those that a Proc or a Binding has kept: `block` is its rb_block {self, ep, ...}. Each environment
    is an object {flags, iseq, ep, variables, size} to which the word behind ep points; the word before ep leads to the one around it."""
    words = objects.words(block, 2)
    at = words[1] if words else 0
    for _ in range(MOST_SCOPES):
        around = objects.words(at - 8, 3)
        environment = objects.slot(around[2]) if around else ()
        if not environment or environment[0] & TYPE_MASK != IMEMO or environment[2] != at:
            return None
        number, rest = divmod(place - environment[3], 8)
        if not rest and 0 <= number < environment[4] & 0xFFFFFFFF:
            return _name(objects, environment[1], number)
        at = around[0] & -4
    return None


def _name(objects: Objects, sequence: int, number: int) -> Optional[str]:
    slot = objects.slot(sequence)
    table, size = _table(objects, slot[BODY]) if slot and slot[0] & TYPE_MASK == IMEMO else (0, 0)
    words = objects.words(table + 8 * number, 1) if number < size else ()
    return objects.id_name(words[0]) if words else None


def _table(objects: Objects, body: int) -> Tuple[int, int]:
    """(address, length) of the names of local variables."""
    table, size = objects.words(body + objects.layout.local_table, 1), objects.words(body + objects.layout.local_table_size, 1)
    length = size[0] & 0xFFFFFFFF if size else 0
    return (table[0], length) if table and length <= MOST_LOCALS else (0, 0)
