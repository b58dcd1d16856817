"""V8's heap of a made process: rules are learned, holders have names, what is free or was moved holds nothing, and damage harms nobody.

Files: addons/runtimes/v8/script_heap.py, addons/runtimes/v8/buffer_holders.py.
"""

import random
from array import array
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.addons.runtimes.v8 import NO_OBJECTS, OTHER_BUFFERS, find_script_fields, find_script_heap, script_heap
from gdbheapx.analysis.reachability.heap_graph import ManagedField
from gdbheapx.common import problems
from gdbheapx.common.budget import Budget
from gdbheapx.glibc.layouts import make_geometry
from gdbheapx.kernel.binding import open_kernel
from tests.support.builders.process import FakeTarget

pytestmark = pytest.mark.once  # bytes alone
PAGE, OUTSIDE, SYMBOLS_AT = 0x100000000000, 0x7F0000100000, 0x400000
NUMBER_OF = {
    "TaggedSize": 8,
    "FirstNonstringType": 128,
    "FirstContextType": 190,
    "LastContextType": 199,
    "FirstJSFunctionType": 2066,
    "LastJSFunctionType": 2082,
    "context_min_slots": 2,
    "scopeinfo_idx_ncontextlocals": 2,
    "scopeinfo_idx_first_vars": 3,
    "StringRepresentationMask": 7,
    "OneByteStringTag": 8,
    "bit_field3_number_of_own_descriptors_mask": 0xFFC00,
    "bit_field3_number_of_own_descriptors_shift": 10,
    "prop_index_mask": 0x1FF80000,
    "prop_index_shift": 19,
    "prop_location_mask": 32,
    "prop_desc_details": 1,
    "prop_desc_size": 3,
}
"""Of node 22."""
OFFSET_OF = {
    "buffer_data": 48,
    "buffer_length": 32,
    "map_size": 8,
    "map_begin": 9,
    "map_type": 12,
    "map_bits": 16,
    "map_maker": 32,
    "map_descriptors": 40,
    "descriptors_begin": 24,
    "string_length": 12,
    "string_bytes": 16,
    "string_first": 16,
    "string_second": 24,
    "function_shared": 32,
    "function_context": 40,
    "shared_name": 16,
    "shared_script": 32,
    "script_name": 16,
}
TYPE_OF = {name: 2062 + number if name.startswith("JS") else 130 + number for number, name in enumerate(script_heap.TYPES)}
TYPE_OF["JSFunction"] = 2066
FIRST, TABLE_TYPE, SHARED_TYPE, TEXT_TYPE, CONTEXT_TYPE, OBJECT_TYPE = 5, 185, 186, 8, 190, 1057


def smi(number: int) -> int:
    """A small integer as V8 has it."""
    return number << 32


class MadeHeap:
    """One page with a Map, its table of buffers, and the closure's variable that has it."""

    def __init__(self, lacking: Tuple[str, ...] = (), **changed: int) -> None:
        self.words = array("Q", bytes(script_heap.CHUNK_BYTES))
        self.words[0] = script_heap.CHUNK_BYTES
        self.words[3:5] = array("Q", [PAGE + 8 * FIRST, PAGE + script_heap.CHUNK_BYTES])
        self.at = FIRST
        self.target = FakeTarget(make_geometry(8, 16, 4096, True), "i386:x86-64")
        numbers = {**NUMBER_OF, **changed}
        types = {"type_%s__%s_TYPE" % (name, script_heap.WORD_END.sub("_", name).upper()): number for name, number in TYPE_OF.items()}
        named = {**numbers, **types}
        named.update({"class_" + script_heap.OFFSETS[name][0]: offset for name, offset in OFFSET_OF.items()})
        assert set(numbers) == set(script_heap.NUMBERS) and set(OFFSET_OF) == set(script_heap.OFFSETS)
        values = {name: value for name, value in named.items() if name not in lacking}
        self.target.pieces[SYMBOLS_AT] = bytearray(b"".join(value.to_bytes(4, "little", signed=True) for value in values.values()))
        self.target.symbols = {script_heap.PREFIX + name: SYMBOLS_AT + 4 * place for place, name in enumerate(values)}
        self.target.pieces[OUTSIDE] = bytearray(1 << 20)
        self.realm = 0
        self.realm = self.make_map("Map", 10)
        self.words[FIRST] = self.realm
        self.maps = {name: self.make_map(name, size) for name, size in (("FixedArray", 0), ("JSArrayBuffer", 8), ("JSFunction", 8))}
        self.maps["shared"] = self.make_map(SHARED_TYPE, 7)
        self.maps["text"] = self.make_map(TEXT_TYPE, 0)
        self.maps["context"], self.maps["ScopeInfo"] = self.make_map(CONTEXT_TYPE, 0), self.make_map("ScopeInfo", 0)
        self.maps["table"], self.maps["object"] = self.make_map(TABLE_TYPE, 0), self.make_map(OBJECT_TYPE, 4)
        for number in range(40):  # of these the rules are learned
            for name in ("FixedArray", "table", "context"):
                self.make_object(name, smi(number % 7 + 1), *map(smi, range(number % 7 + 1)))
        self.maps["JSMap"] = self.make_map("JSMap", 4, self.make_function("Map", 0))
        self.empty = self.make_object("FixedArray", smi(0))

    def make_object(self, name: str, *words: int) -> int:
        """Its tagged address."""
        return self._put(self.maps[name], *words)

    def _put(self, *words: int) -> int:
        self.words[self.at : self.at + len(words)] = array("Q", words)
        self.at += len(words)
        return PAGE + 8 * (self.at - len(words)) + 1

    def make_map(self, kind: Any, size: int, maker: int = 0) -> int:
        """For objects of so many words, or of different sizes."""
        number = TYPE_OF[kind] if isinstance(kind, str) else kind
        return self._put(self.realm, size | number << 32, 0, 0, maker, 0, 0, 0, 0, 0)

    def make_text(self, text: str) -> int:
        """A string of one byte a letter."""
        data = text.encode().ljust(-(-len(text) // 8) * 8, b"\0")
        return self.make_object("text", len(text) << 32, *array("Q", data))

    def make_function(self, name: str, context: int, file: str = "/srv/shop.js") -> int:
        """A function that was made in a context."""
        script = self.make_object("shared", 0, self.make_text(file), 0, 0, 0, 0)
        shared = self.make_object("shared", 0, self.make_text(name), 0, script, 0, 0)
        return self.make_object("JSFunction", self.empty if name != "Map" else 1, 0, 0, shared, context, 0, 0)

    def make_buffer(self, data: int, length: int) -> int:
        """An ArrayBuffer."""
        return self.make_object("JSArrayBuffer", self.empty, self.empty, 0, length, 0, data, 0)

    def make_service(self, count: int = 20) -> List[int]:
        """Buffers that a closure's variable `cache`, a Map, has by keys."""
        buffers = [self.make_buffer(OUTSIDE + 4096 * number, 100 + number) for number in range(count)]
        pairs = [word for number, buffer in enumerate(buffers) for word in (self.make_text("key%d" % number), buffer, smi(0))]
        table = self.make_object("table", smi(len(pairs)), *pairs)
        cache = self.make_object("JSMap", self.empty, self.empty, table)
        scope = self.make_object("ScopeInfo", smi(0), smi(0), smi(1), self.make_text("cache"), smi(0))
        self.make_function("keep", self.make_object("context", smi(3), scope, smi(0), cache))
        self.make_object("FixedArray", smi(0))
        return buffers

    def read(self, budget: Optional[Budget] = None) -> script_heap.ScriptHeap:
        """The heap as it is read."""
        self.target.pieces[PAGE] = bytearray(self.words.tobytes())
        known = script_heap.read_v8_constants(self.target)
        assert known is not None
        heap = script_heap.ScriptHeap(self.target, known, open_kernel().library, budget or Budget())
        heap.find_objects()
        return heap


def fields_of(heap: script_heap.ScriptHeap) -> Dict[str, ManagedField]:
    """By name; those with words."""
    return {field.name: field for field in find_script_fields(heap) if field.words}


def test_buffers_are_held_by_a_variable() -> None:
    """The Map's name, file and keys; nothing but its buffers' pointers holds anything."""
    made = MadeHeap()
    buffers = made.make_service()
    heap = made.read()
    assert heap.is_proven and heap.other_words == 0
    fields = fields_of(heap)
    assert list(fields) == ["ArrayBuffer of cache.get() (Map) in shop.js"]
    (field,) = fields.values()
    assert sorted(field.words) == [OUTSIDE + 4096 * number for number in range(20)]
    assert field.find_path(buffers[7]) == 'cache.get("key7")' and field.label == "ArrayBuffer"


def test_no_page_is_walked_beyond_the_time() -> None:
    """An expired budget ends every loop over pages."""
    made = MadeHeap()
    made.make_service()
    heap = made.read(Budget(0.0))
    assert not heap.pages and not heap.is_proven and not list(heap.page_words())


def test_without_a_name() -> None:
    """A buffer that no reference leads to has no holder."""
    made = MadeHeap()
    made.make_buffer(OUTSIDE, 10)
    made.make_object("FixedArray", smi(0))
    assert list(fields_of(made.read())) == [OTHER_BUFFERS]


def test_moved_objects_hold_nothing() -> None:
    """A copy that begins with the address of the new one is stale; a word that no object has is told as such."""
    made = MadeHeap()
    made.make_service()
    new = made.make_buffer(OUTSIDE + 4096 * 30, 10)
    made.make_object("FixedArray", smi(0))
    made._put(new - 1, 0, 0, 0, 10, 0, OUTSIDE + 4096 * 31, 0)
    made.make_object("FixedArray", smi(0))
    made._put(OUTSIDE + 4096 * 32, 0)
    fields = fields_of(made.read())
    assert list(fields[NO_OBJECTS].words) == [OUTSIDE + 4096 * 32]
    assert OUTSIDE + 4096 * 31 not in [word for field in fields.values() for word in field.words]


def test_text_holds_nothing() -> None:
    """Bytes of a string that look like a pointer are none."""
    made = MadeHeap()
    made.make_service()
    made.make_object("text", 8 << 32, OUTSIDE)
    made.make_object("FixedArray", smi(0))
    assert list(fields_of(made.read())) == ["ArrayBuffer of cache.get() (Map) in shop.js"]


@pytest.mark.parametrize("seed", range(8))
def test_damage(seed: int) -> None:
    """Words changed at random: answers are bounded, and nothing is raised."""
    chance = random.Random(seed)
    made = MadeHeap()
    made.make_service()
    sound = made.words[:]
    for _ in range(6):
        made.words = sound[:]
        for _ in range(chance.choice((1, 5, 50))):
            other = made.words[chance.randrange(made.at)]
            value = chance.choice((0, 1, (1 << 64) - 1, chance.getrandbits(64), smi(chance.getrandbits(31)), other, PAGE + 1, made.realm))
            made.words[chance.randrange(2, made.at)] = value
        heap = made.read()
        fields = find_script_fields(heap)
        assert sum(len(field.words) for field in fields) <= script_heap.CHUNK_BYTES // 8
        for field in fields:
            for address in field.objects:
                path = field.find_path(address)
                assert path is None or path.isprintable()


def test_rules_of_sizes() -> None:
    """Smis count elements; a word that is none has no size by such a rule; numbers of C agree."""
    assert script_heap.SizeRule(16, 8).measure_words(smi(3)) == 5 and script_heap.SizeRule(16, 8).measure_words(3) == 0
    assert script_heap.SizeRule(16, 1).measure_words(smi(9)) == 4 and script_heap.SizeRule(24, 24, 0, 0xFFFF, 0).measure_words(0x70002) == 9
    walker = script_heap.PageWalker(open_kernel().library)
    walker.set_rules({17: 1 << 16, 33: 3}, [script_heap.SizeRule(16, 8)], 0)
    words = array("Q", [17, smi(2), 0, 0, 33, 0, 0])
    assert [walker.measure_object(words, at) for at in (0, 4, 5, 6)] == [4, 3, 0, 0]
    assert walker.find_pointers(array("Q", [OUTSIDE, OUTSIDE + 1, smi(7), 8]), 1 << 16, 1 << 47) == [0]


def say_problem(made: MadeHeap) -> Optional[str]:
    """What the session is told, if there is no heap that is proven."""
    said: List[Tuple[Any, str]] = []

    def problem(code: Any, where: Any, what: str, hint: Any, partial: bool) -> None:
        said.append((code, what))
        assert not partial

    session = SimpleNamespace(problem=problem, kernel=open_kernel(), budget=Budget())
    made.target.pieces[PAGE] = bytearray(made.words.tobytes())
    world: Any = SimpleNamespace(session=session, target=made.target)
    world.constant = lambda make: make(world)
    heap = find_script_heap(world)
    assert (heap is None) == bool(said) and all(code == problems.RUNTIME_UNREAD for code, _ in said)
    return said[0][1] if said else None


def test_what_is_lacking_is_said() -> None:
    """No constants, one that is missing, compressed pointers, and a page that is no run of objects."""
    names = ["class_" + script_heap.OFFSETS[name][0] for name in script_heap.OFFSETS]
    assert "not exported" in str(say_problem(MadeHeap(lacking=(*script_heap.NUMBERS, *names))))
    assert "not known" in str(say_problem(MadeHeap(lacking=(names[0],))))
    assert "compressed" in str(say_problem(MadeHeap(TaggedSize=4)))
    broken = MadeHeap()
    broken.words = array("Q", bytes(script_heap.CHUNK_BYTES))
    assert "run of objects" in str(say_problem(broken))
    assert say_problem(MadeHeap()) is None
