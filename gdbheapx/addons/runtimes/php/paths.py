"""Paths of PHP's values, as PHP writes them: `$cache["u:1"]->items[3]`, `App\\Registry::$all["x"]`, `frame handle(): $rows`."""

import re
from itertools import islice
from typing import Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.php.values import (
    ARRAY,
    COUNTED,
    HALF,
    OBJECT,
    POINTER,
    PROPERTIES,
    PROPERTY_TABLE,
    REFERENCE,
    STACK_BYTES,
    STRING,
    VALUE_BYTES,
    PhpGlobals,
    PhpTable,
    PhpValue,
    PhpValues,
)
from gdbheapx.analysis.reachability import paths as steps
from gdbheapx.analysis.reachability.paths import ALL_WORDS, LAST_BIT, TEXT_WORDS, PathStep, Start, ValueNamer, ValuePosition, quote_text
from gdbheapx.model import TargetAddress

FRAME_BYTES = 80
"""Of zend_execute_data {opline, call, return value, function, This and how it was called, previous, symbol table, ...}; its variables
follow."""
OPLINE, FUNCTION, THIS, HOW, PREVIOUS, SYMBOLS = 0, 3, 4, 5, 6, 7
HAS_SYMBOLS = 1 << 20
"""ZEND_CALL_HAS_SYMBOL_TABLE: the table leads to the variables, which a file that the function includes takes over while it runs."""
USER_FUNCTION = 2
NAME, SCOPE, LENGTH, OPERATIONS, NAMES = 1, 2, 1, 2, 5
"""Of zend_op_array, in words: {type and flags, function_name, scope, ...}; after last_var (Layout.variables): last (operations) in a lower
half, opcodes, ..., vars."""
OPERATION_BYTES = 32
MOST_FRAMES, MOST_VARIABLES = 10_000, 4096


def find_current_frame(words: Sequence[int]) -> int:
    """Return EG(current_execute_data), which follows {top and end of the stack, its page, size of a page} in the executor's globals; 0 if
    it is not found.
    """
    for at in range(len(words) - 4):
        if words[at + 2] < words[at] <= words[at + 1] and words[at + 3] == STACK_BYTES:
            return words[at + 4]
    return 0


def list_php_locals(values: PhpValues, frame: int) -> Iterator[Tuple[str, str, PhpValue]]:
    """Yield (function, name, value) of the variables of all functions, the innermost first; those of files are global, or
    their function's."""
    seen: Set[int] = set()
    while frame and frame not in seen and len(seen) < MOST_FRAMES:
        seen.add(frame)
        words = values.words(frame, FRAME_BYTES // 8)
        if not words:
            return
        yield from _of_frame(values, frame, words)
        frame = words[PREVIOUS]


def _of_frame(values: PhpValues, frame: int, words: Sequence[int]) -> Iterator[Tuple[str, str, PhpValue]]:
    place = values.layout.variables
    code = values.words(words[FUNCTION], place + NAMES + 1)
    function = _name_function(values, code, code[place:], words[OPLINE]) if code else None
    if function is None:
        return
    how = words[HOW] & HALF
    if how & 0xFF == OBJECT:
        yield function, "this", PhpValue(OBJECT, words[THIS])
    table = values.table(words[SYMBOLS]) if how & HAS_SYMBOLS else None
    found = values.named(table) if table is not None else _list_compiled_variables(values, frame, code[place:])
    for name, value in found if table is not None or not how & HAS_SYMBOLS else ():
        yield function, name, value


def _name_function(values: PhpValues, code: Sequence[int], further: Sequence[int], operation: int) -> Optional[str]:
    """Return the name of a function that is written in PHP and executes its own code, else None: the layout is another release's.
    `further`: words of zend_op_array, from last_var on.
    """
    done = operation - further[OPERATIONS]
    if code[0] & 0xFF != USER_FUNCTION or not 0 <= done < OPERATION_BYTES * (further[LENGTH] & HALF) or done % OPERATION_BYTES:
        return None
    name, class_ = values.text(code[NAME]), values.class_name(code[SCOPE]) if code[SCOPE] else ""
    return None if not name or class_ is None else "%s::%s" % (class_, name) if class_ else name


def _list_compiled_variables(values: PhpValues, frame: int, further: Sequence[int]) -> Iterator[Tuple[str, PhpValue]]:
    count = further[0] >> 32
    names = values.words(further[NAMES], count) if count <= MOST_VARIABLES else ()
    slots = values.words(frame + FRAME_BYTES, VALUE_BYTES // 8 * count) if names else ()
    for number, word in enumerate(names if slots else ()):
        name = values.text(word)
        if name is not None:
            yield name, values.value_in(slots, VALUE_BYTES // 8 * number)


ARRAY_NAME, STRING_NAME, REFERENCE_NAME = "array", "string", "reference"
OWNING = {ARRAY_NAME: 0b100, STRING_NAME: 0, REFERENCE_NAME: 0b10}
OBJECT_WORDS = ALL_WORDS & ~0b1111
"""After counts, number, class and handlers."""
WORD = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*\Z")
ESCAPES = {"\\": "\\\\", '"': '\\"', "$": "\\$", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def mask_php_class(values: PhpValues, class_: int) -> Optional[int]:
    """Return the mask of a class's instances, which leaves out words after their last property; None for a class that is written in C."""
    count = values.count(class_)
    end = PROPERTY_TABLE // 8 + VALUE_BYTES // 8 * count if count is not None else 0
    return OBJECT_WORDS & ((1 << end) - 1 if end <= LAST_BIT else ALL_WORDS) if end else None


_Moved = Optional[Tuple[ValuePosition, Optional[Tuple[str, str]]]]


class PhpNamer(ValueNamer):
    """Global variables first, then what classes keep, then constants, then variables of functions."""

    def __init__(self, values: PhpValues, found: PhpGlobals) -> None:
        super().__init__()
        self._values, self._globals = values, found

    def starts(self) -> Iterable[Start]:
        """Return values that are blocks of their own."""
        for name, value in self._values.named(self._globals.symbols):
            yield from self._make_starts(value, [], steps.VARIABLE, "$" + _format_name(name))
        for _, value in self._values.named(self._globals.classes):
            name_ = self._values.class_name(value.data) if value.type == POINTER else None
            if name_ is not None:
                yield from self._of_class(value.data, PathStep(steps.TYPE, name_, TargetAddress(value.data)))
        for name, value in self._values.named(self._globals.constants):
            if value.type == POINTER:
                yield from self._make_starts(self._values.value(value.data), [], steps.VARIABLE, name)
        for function, name, value in list_php_locals(self._values, find_current_frame(self._globals.behind)):
            frame = PathStep(steps.FRAME, "frame %s(): " % function, None)
            yield from self._make_starts(value, [frame], steps.LOCAL, "$" + _format_name(name))

    def _of_class(self, class_: int, first: PathStep) -> Iterator[Start]:
        for name, value in self._values.statics(class_):
            yield from self._make_starts(value, [first], steps.ATTRIBUTE, "::$" + name)
        for name, value in self._values.class_constants(class_):
            yield from self._make_starts(value, [first], steps.ATTRIBUTE, "::" + name)

    def _make_starts(self, value: PhpValue, before: List[PathStep], kind: str, name: str) -> Iterator[Start]:
        inner = self._values.referred(value)
        if inner.type in COUNTED:
            yield Start(inner.data, [*before, PathStep(kind, name, TargetAddress(inner.data))])

    def owning_words(self, signature: Optional[str]) -> int:
        """Return the mask of such blocks: a string leads nowhere, an array to its data, and other names are those of classes."""
        return ALL_WORDS if signature is None else OWNING.get(signature, OBJECT_WORDS)

    def owns_nothing(self) -> Iterable[int]:
        """Return the addresses of the list of all objects and of similar lists."""
        return self._globals.weak

    def read_kind(self, address: int) -> int:
        """See ValueNamer."""
        words = self._values.words(address, 1)
        return words[0] >> 32 & 0xF if words else 0

    def follow_word(self, position: ValuePosition, place: int, below: int) -> _Moved:
        """See ValueNamer."""
        if position.kind == REFERENCE and place == position.address + 8:
            value = self._values.value(place)
            return (ValuePosition(value.type, value.data), None) if value.type in COUNTED else None
        if position.kind == OBJECT and place == position.address + PROPERTIES:
            return ValuePosition(ARRAY, below, True), None
        if position.kind == OBJECT and place >= position.address + PROPERTY_TABLE:
            return self._move_to_property(position, place, below)
        table = self._values.table(position.address) if position.kind == ARRAY else None
        if table is None or place == position.address + 16:
            return None if table is None else (position, None)
        return self._move_to_entry(table, place, position.is_beside)

    def _move_to_property(self, position: ValuePosition, place: int, below: int) -> _Moved:
        class_, value = self._values.words(position.address + 16, 1), self._values.value(place)
        name = self._values.property_names(class_[0]).get(place - position.address) if class_ else None
        if name is not None:
            return (ValuePosition(value.type, value.data), (steps.ATTRIBUTE, "->" + name)) if value.type in COUNTED else None
        return ValuePosition(self.read_kind(below), below), (steps.FIELD, "->?")  # of a class that is written in C

    def _move_to_entry(self, table: PhpTable, place: int, is_properties: bool) -> _Moved:
        number, rest = divmod(place - table.data, table.step)
        if not 0 <= number < table.used or rest:  # a key
            return None
        value, words = self._values.value(place), self._values.words(place, table.step // 8)
        if value.type not in COUNTED or not words:
            return None
        name, number = (0, number) if table.is_packed else (words[3], words[2])
        text = self._values.text(name) if name else None
        if name and text is None:
            return None
        key = "%d" % (number - (number >> 63 << 64)) if text is None else quote_text(text, ESCAPES)
        if is_properties and text is not None:
            return ValuePosition(value.type, value.data), (steps.ATTRIBUTE, "->" + _format_name(text.rpartition("\0")[2]))
        return ValuePosition(value.type, value.data), (steps.INDEX if text is None else steps.KEY, "[%s]" % key)

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        if signature == ARRAY_NAME:
            table = self._values.table(address)
            return "array of {:,}".format(table.length) if table is not None else "array of 0"
        words = self._values.words(address, 3) if signature == STRING_NAME else ()
        return "string, {:,} bytes".format(words[2]) if words else None

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[Tuple[str, str]]:
        """Return (name, text) of an object's declared properties. See Namer."""
        head = self._values.words(address, 3) if signature not in OWNING else ()
        if not head or head[0] >> 32 & 0xF != OBJECT or self._values.class_name(head[2]) != signature:
            return ()
        named = ((name, self._values.value(address + offset)) for offset, name in self._values.property_names(head[2]).items())
        texts = ((name, self._values.begin(value.data)) for name, value in named if value.type == STRING)
        return [(name, text) for name, text in texts if text is not None]

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Return the keys of an array with names, or the values of one without. See Namer."""
        own = self._values.begin(address) if signature == STRING_NAME else None
        if own is not None:
            return [own]
        table = self._values.table(address) if signature == ARRAY_NAME else None
        if table is not None:
            entries = islice(self._values.entries(table._replace(used=min(table.used, TEXT_WORDS))), TEXT_WORDS)
            pointers: Iterable[int] = [key or value.data for key, _, value in entries if key or value.type == STRING]
        else:
            pointers = self._values.words(address, min(size_bytes // 8, TEXT_WORDS))
        return (text for text in map(self._values.begin, pointers) if text is not None)


def _format_name(name: str) -> str:
    """Format the name of a variable or a property, which may be any text."""
    return name if WORD.match(name) else "{%s}" % quote_text(name, ESCAPES)
