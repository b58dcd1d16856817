"""State of CPython's collector of cycles, found by its form: no symbol but _PyRuntime is read."""

from typing import Iterator, List, Optional, Sequence, Tuple

from gdbheapx.analysis.reachability.garbage import Collector, CollectorState
from gdbheapx.inferior.base import Target

WORD, HALF, LOW_HALF = 8, 4, (1 << 32) - 1
GENERATIONS, GENERATION_BYTES = 3, 24
FORMS = {72: (80, -12, 15), 76: (84, -8, 15), 232: (72, -12, 18)}
"""By how far behind the first generation the pointer to it is, 3.9 to 3.13, 3.13.5, 3.14.10: where the permanent one is and where it says
whether it is on, in bytes from the first generation; and where long_lived_total is, in words from the permanent one."""
FULL_WORDS = 9
"""From the permanent generation to the number of collections of all."""
MOST_RUNTIME_BYTES = 1 << 20
MOST_POINTERS, MOST_INTERPRETER_BYTES = 64, 1 << 14
"""Words of _PyRuntime up to 3.10 that may lead to an interpreter, and of that what has the collector's state."""
LOWEST, HIGHEST = 0x10000, 1 << 56


def in_words(words: Sequence[int], address: int) -> Optional[CollectorState]:
    """Of an interpreter: three generations {list, threshold, count}, a pointer to the first, the permanent one, for each {collections,
    collected, uncollectable}, and long_lived_total; before them whether it is on (struct _gc_runtime_state, pycore_gc.h)."""

    def half(place: int) -> int:
        return words[place // WORD] >> 8 * (place % WORD) & LOW_HALF

    for place, word in enumerate(words):
        form = FORMS.get(address + WORD * place - word)
        if form is None:
            continue
        first, (to_permanent, to_enabled, to_survivors) = word - address, form
        permanent = first + to_permanent
        if first + to_enabled < HALF or permanent // WORD + to_survivors >= len(words):
            continue
        nested, enabled = half(first + to_enabled - HALF), half(first + to_enabled)
        if nested or enabled > 1:  # nested calls: none here
            continue
        limits = [first + GENERATION_BYTES * number + 2 * WORD for number in range(GENERATIONS)]
        state = Collector(bool(enabled), [half(at) for at in limits], [half(at + HALF) for at in limits])
        return CollectorState(state, address + permanent, address + permanent + WORD * FULL_WORDS, words[permanent // WORD + to_survivors])
    return None


def of_process(target: Target) -> Optional[CollectorState]:
    """Of its first interpreter, which lies in _PyRuntime or, up to 3.10, where one of its words leads; None where it is not found."""
    runtime = target.dynamic_symbol("_PyRuntime")
    size = target.symbol_bytes(runtime) if runtime is not None else None
    if runtime is None or size is None or size > MOST_RUNTIME_BYTES or target.word_bytes != WORD:
        return None
    found = (in_words(words, address) for words, address in _places(target, runtime.address, size))
    return next((state for state in found if state is not None), None)


def _places(target: Target, address: int, size: int) -> Iterator[Tuple[List[int], int]]:
    words = list(target.words_in(target.read_prefix(address, size & -WORD)))
    yield words, address
    pointers = dict.fromkeys(word for word in words if LOWEST <= word < HIGHEST and not word % WORD)
    for pointer in list(pointers)[:MOST_POINTERS]:
        yield list(target.words_in(target.read_prefix(pointer, MOST_INTERPRETER_BYTES))), pointer
