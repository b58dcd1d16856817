"""Variables of functions that have not returned, on PHP's own stack (Zend/zend_compile.h: zend_execute_data, zend_op_array)."""

from typing import Iterator, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.php.values import HALF, OBJECT, STACK_BYTES, VALUE_BYTES, Value, Values

FRAME_BYTES = 80
"""Of zend_execute_data {opline, call, return value, function, This and how it was called, previous, symbol table, ...}; its variables
follow."""
OPLINE, FUNCTION, THIS, HOW, PREVIOUS, SYMBOLS = 0, 3, 4, 5, 6, 7
HAS_SYMBOLS = 1 << 20
"""ZEND_CALL_HAS_SYMBOL_TABLE: the table leads to the variables, which a file that the function includes takes over while it runs."""
USER_FUNCTION = 2
NAME, SCOPE, LENGTH, OPERATIONS, NAMES = 1, 2, 1, 2, 5
"""Of zend_op_array, in words: {type and flags, function_name, scope, ...}; behind last_var (Layout.variables): last (operations) in a lower
half, opcodes, ..., vars."""
OPERATION_BYTES = 32
MOST_FRAMES, MOST_VARIABLES = 10_000, 4096


class Local(NamedTuple):
    """A variable of a function that has not returned."""

    function: str
    """`handle`, `App\\Shop::handle`, `{closure}`."""
    name: str
    value: Value


def current(words: Sequence[int]) -> int:
    """EG(current_execute_data), behind {top and end of the stack, its page, size of a page} in the executor's globals; 0: not found."""
    for at in range(len(words) - 4):
        if words[at + 2] < words[at] <= words[at + 1] and words[at + 3] == STACK_BYTES:
            return words[at + 4]
    return 0


def locals_of(values: Values, frame: int) -> Iterator[Local]:
    """Of all functions, the innermost first. Code of files has no variables of its own: they are global, or its function's."""
    seen: Set[int] = set()
    while frame and frame not in seen and len(seen) < MOST_FRAMES:
        seen.add(frame)
        words = values.words(frame, FRAME_BYTES // 8)
        if not words:
            return
        yield from _of_frame(values, frame, words)
        frame = words[PREVIOUS]


def _of_frame(values: Values, frame: int, words: Sequence[int]) -> Iterator[Local]:
    place = values.layout.variables
    code = values.words(words[FUNCTION], place + NAMES + 1)
    function = _name(values, code, code[place:], words[OPLINE]) if code else None
    if function is None:
        return
    how = words[HOW] & HALF
    if how & 0xFF == OBJECT:
        yield Local(function, "this", Value(OBJECT, words[THIS]))
    table = values.table(words[SYMBOLS]) if how & HAS_SYMBOLS else None
    found = values.named(table) if table is not None else _compiled(values, frame, code[place:])
    for name, value in found if table is not None or not how & HAS_SYMBOLS else ():
        yield Local(function, name, value)


def _name(values: Values, code: Sequence[int], further: Sequence[int], operation: int) -> Optional[str]:
    """`further`: of zend_op_array, from last_var on. Of a function that is written in PHP, and stands in its own code: else the layout is
    another release's."""
    done = operation - further[OPERATIONS]
    if code[0] & 0xFF != USER_FUNCTION or not 0 <= done < OPERATION_BYTES * (further[LENGTH] & HALF) or done % OPERATION_BYTES:
        return None
    name, class_ = values.text(code[NAME]), values.class_name(code[SCOPE]) if code[SCOPE] else ""
    return None if not name or class_ is None else "%s::%s" % (class_, name) if class_ else name


def _compiled(values: Values, frame: int, further: Sequence[int]) -> Iterator[Tuple[str, Value]]:
    count = further[0] >> 32
    names = values.words(further[NAMES], count) if count <= MOST_VARIABLES else ()
    slots = values.words(frame + FRAME_BYTES, VALUE_BYTES // 8 * count) if names else ()
    for number, word in enumerate(names if slots else ()):
        name = values.text(word)
        if name is not None:
            yield name, values.value_in(slots, VALUE_BYTES // 8 * number)
