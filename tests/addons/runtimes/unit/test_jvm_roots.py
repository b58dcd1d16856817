"""Roots of the Java heap in a JVM made by hand: frames by their oop maps, words in doubt, handles, and memory that lies.

Files: addons/runtimes/jvm/java_roots.py.
"""

import random
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import pytest

from gdbheapx.addons.runtimes.jvm import java_roots
from gdbheapx.addons.runtimes.jvm.java_classes import PLAIN, JavaClass
from gdbheapx.addons.runtimes.jvm.java_heap import JavaHeap
from gdbheapx.addons.runtimes.jvm.java_roots import CodeCacheIndex, FrameRoots, FrameWalker, JavaStack, JavaThread, OopDecoder
from tests.support.made_jvm import FIELDS, FIRST_SLOT, HEAP, HEAP_END, SHAPE, MadeJvm

THREAD, STACK, STACK_END = 0x6000, 0x100000, 0x100200
CODE, STUB, INTERPRETER, ENTRY = 0x1000010, 0x1000410, 0x1000810, 0x7777
HEAP_HERE = JavaHeap("G1", False, [(HEAP, HEAP_END)], [], [], [])
OOPS = [HEAP + 64 * number for number in range(1, 20)]
NARROW = [oop >> 3 for oop in OOPS]


def find_roots(jvm: MadeJvm, classes: Sequence[JavaClass] = ()) -> java_roots.JavaRoots:
    """All roots."""
    return java_roots.find_java_roots(jvm, SHAPE, HEAP_HERE, classes)


def walk(jvm: MadeJvm, place: Sequence[int]) -> FrameRoots:
    """Frames of the one stack."""
    decoder = OopDecoder(SHAPE, HEAP_HERE.reserved)
    thread = JavaThread(THREAD, None, None, "in_native", STACK, STACK_END)
    walker = FrameWalker(jvm, CodeCacheIndex(jvm), decoder)
    return walker.walk_frames(thread, JavaStack(jvm, STACK, STACK_END), (place[0], place[1], place[2]))


def end_at_entry(jvm: MadeJvm, fp: int, handles: int = 0, anchor: Sequence[int] = (0, 0, 0)) -> None:
    """Have the frame at `fp` be the one where native code called Java code."""
    jvm.put_static("StubRoutines", "_call_stub_return_address", ENTRY)
    jvm.put_words(fp - 48, [STACK + 0x180])
    jvm.put_words(STACK + 0x180, [THREAD, handles, 0, OOPS[18], *anchor])


@pytest.mark.parametrize("major", [17, 21])
def test_only_what_an_oop_map_names_is_held_by_a_compiled_frame(major: int) -> None:
    """Dead variables are on the stack as well: as words they kept 20,001 objects of a loop that had been compiled while it ran."""
    jvm = MadeJvm(major)
    begin = jvm.put_code(CODE, "nmethod", 48, [(0x10, []), (0x20, [(FIRST_SLOT, 0), (FIRST_SLOT + 3, 1), (10, 0), (FIRST_SLOT + 2, 1)])])
    jvm.put_words(STACK, [OOPS[0], NARROW[1] << 32 | NARROW[2], OOPS[3], OOPS[4], STACK + 0x140, ENTRY, *[0] * 58])
    end_at_entry(jvm, STACK + 0x140)
    roots = walk(jvm, (STACK, begin + 0x20, OOPS[5]))
    assert (roots.oops, list(roots.words), roots.is_whole, list(roots.codes)) == ([OOPS[0], OOPS[1], OOPS[5], OOPS[2]], [], True, [CODE])
    assert not walk(jvm, (STACK, begin + 0x10, 0)).oops


def test_without_an_oop_map_words_count() -> None:
    """A return address that the map set lacks gives the words of that frame; an unknown one those of the rest of the stack."""
    jvm = MadeJvm()
    begin = jvm.put_code(CODE, "nmethod", 48, [(0x20, [])])
    jvm.put_words(STACK, [1, 2, 3, 4, STACK + 0x140, ENTRY, *range(58)])
    end_at_entry(jvm, STACK + 0x140)
    assert list(walk(jvm, (STACK, begin + 0x21, 0)).words) == [1, 2, 3, 4, STACK + 0x140, ENTRY]
    roots = walk(jvm, (STACK, 0x123, 0))
    assert len(roots.words) == 64 and not roots.is_whole


def test_a_deoptimised_frame_has_the_map_of_its_call() -> None:
    """The return address leads to the handler then; the frame has the other one."""
    jvm = MadeJvm()
    begin = jvm.put_code(CODE, "nmethod", 48, [(0x20, [(FIRST_SLOT, 0)])])
    jvm.put_bytes(CODE + 32, (24).to_bytes(4, "little"))
    jvm.put_words(STACK, [OOPS[0], OOPS[1], 0, begin + 0x20, STACK + 0x140, ENTRY, *[0] * 58])
    end_at_entry(jvm, STACK + 0x140)
    assert walk(jvm, (STACK, begin + 0x80, 0)).oops == [OOPS[0]]


def test_interpreted_frames_and_stubs_give_words() -> None:
    """Up to the stack pointer of who called, so that arguments on the way are in; the frame of a stub has registers of its caller."""
    jvm = MadeJvm()
    interpreter, stub = jvm.put_code(INTERPRETER, "Interpreter", 0), jvm.put_code(STUB, "SafepointBlob", 32, [(8, [])])
    fp = STACK + 0x40
    jvm.put_words(STACK, [1, 2, fp, interpreter + 8, *[3] * 3, STACK + 0x60, STACK + 0x140, ENTRY, 4, 5, *[6] * 52])
    end_at_entry(jvm, STACK + 0x140)
    roots = walk(jvm, (STACK, stub + 8, 0))
    words = [1, 2, fp, interpreter + 8, 3, 3, 3, STACK + 0x60, STACK + 0x140, ENTRY, 4, 5]
    assert list(roots.words)[:12] == words and roots.is_whole
    assert len(roots.words) == 12 + (0x140 - 0x60) // 8  # parameters of an interpreted method are in the entry frame


def test_the_arguments_of_a_call_that_is_resolved_count() -> None:
    """The caller's map has them no longer, and the callee has no frame yet."""
    jvm = MadeJvm()
    stub, begin = jvm.put_code(STUB, "resolve_static_call", 16), jvm.put_code(CODE, "nmethod", 32, [(0x20, [])])
    jvm.put_words(STACK, [0, begin + 0x20, OOPS[0], 0, STACK + 0x140, ENTRY, *[0] * 58])
    end_at_entry(jvm, STACK + 0x140)
    assert OOPS[0] in walk(jvm, (STACK, stub + 8, 0)).words


def make_stack(jvm: MadeJvm, state: int) -> None:
    """Write a thread whose only frame has one object by its map, and one more word."""
    begin = jvm.put_code(CODE, "nmethod", 48, [(0x20, [(FIRST_SLOT, 0)])])
    jvm.put_words(STACK, [OOPS[0], OOPS[1], NARROW[2] | NARROW[3] << 32, 0, STACK + 0x140, ENTRY, *[0] * 58])
    end_at_entry(jvm, STACK + 0x140, handles=0x7000)
    jvm.put_thread(THREAD, state, (STACK, STACK_END), (STACK, begin + 0x20, 0))
    jvm.put_words(0x7000, [OOPS[6], *[0] * 31, 1, 0, 0, 0])
    jvm.natives, jvm.registers = [SimpleNamespace(lwp=77, stack_pointer=STACK)], [OOPS[4], NARROW[5] << 32]


def test_a_thread_in_native_code_has_no_doubts() -> None:
    """Oop maps, handles and the receiver of the outer native frame, which `_active_handles` lacks: one live String was garbage."""
    jvm = MadeJvm()
    make_stack(jvm, 4)
    roots = find_roots(jvm)
    assert (list(roots.strong), list(roots.from_stacks)) == (sorted([OOPS[0], OOPS[6], OOPS[18]]), [])
    assert [(name, list(oops)) for name, oops in roots.threads] == [(None, [OOPS[0]])]


def test_a_thread_in_java_code_has_its_registers() -> None:
    """All words and both halves of each count, in doubt: without registers 49 of 12,777 objects in use were garbage."""
    jvm = MadeJvm()
    make_stack(jvm, 8)
    roots = find_roots(jvm)
    assert list(roots.strong) == sorted([OOPS[6], OOPS[18]])  # the call wrapper is found among the words
    assert list(roots.from_stacks) == sorted(OOPS[:6]) and len(roots.problems) == 2


def test_the_struct_of_a_thread_is_in_doubt_but_for_what_is_stale() -> None:
    """The start of the allocation buffer is an object that may be dead; so is what the lock stack had before."""
    jvm = MadeJvm()
    jvm.put_thread(THREAD, 4, (STACK, STACK_END))
    jvm.put_words(THREAD + 0x200, [OOPS[0]])
    jvm.put_words(THREAD + 0xC0, [0xC0 + 16, OOPS[1], OOPS[2]])
    jvm.put_words(THREAD + 0x180, [OOPS[3]])
    roots = find_roots(jvm)
    assert (list(roots.strong), list(roots.from_stacks)) == ([OOPS[1]], [OOPS[3]])


def test_storages() -> None:
    """The array of all is found by one; bits say which slots are taken; weak ones, and blocks of another owner, do not count."""
    jvm = MadeJvm()
    for number, (name, owner) in enumerate([("JNI Global", 0), ("VM Global", 0), ("VM Weak", 0), ("Thread OopStorage", 8)]):
        storage, blocks, block = 0x30000 + 0x1000 * number, 0x30100 + 0x1000 * number, 0x30200 + 0x1000 * number
        jvm.put_bytes(storage + 0x80, name.encode() + b"\0" * 2)
        jvm.put_words(storage, [storage + 0x80, blocks])
        jvm.put_words(blocks, [8, 1, 0, block])
        jvm.put_words(block, [OOPS[number], OOPS[number + 4], *[0] * 62, 1, storage + owner])
    jvm.put_words(0x180, [0x31000, 0x30000, 0x32000, 0x33000, 5])
    jvm.put_static("JNIHandles", "_global_handles", 0x30000)
    assert set(java_roots.list_oop_storages(jvm).values()) == {"JNI Global", "VM Global", "VM Weak", "Thread OopStorage"}
    assert list(find_roots(jvm).strong) == OOPS[:2]


def test_variables_of_the_library_count_before_storages_were_sets() -> None:
    """JDK 11 keeps some objects of Universe and SystemDictionary in variables alone."""
    jvm = MadeJvm()
    jvm.put_words(0x1A0, [OOPS[3], OOPS[4] + 4])
    assert list(find_roots(jvm).strong) == [OOPS[3]]


def test_handle_blocks() -> None:
    """A full block has a next one; PushLocalFrame puts blocks away; a block that leads to itself, or has 33 handles, ends it."""
    jvm = MadeJvm()
    jvm.put_words(0x7000, [OOPS[0]] * 32 + [32, 0x7200, 0, 0x7400])
    jvm.put_words(0x7200, [OOPS[1], OOPS[2], *[0] * 30, 1, 0x7600, 0, 0])
    jvm.put_words(0x7400, [OOPS[3], *[0] * 31, 1, 0, 0, 0x7000])
    jvm.put_words(0x7600, [OOPS[4], *[0] * 31, 33, 0, 0, 0])
    assert sorted(java_roots.read_handle_blocks(jvm, 0x7000, set())) == [*[OOPS[0]] * 32, OOPS[1], OOPS[3]]


def put_loader(jvm: MadeJvm, address: int, following: int, chunk: int, is_kept: int, slot: int) -> None:
    """Write a ClassLoaderData."""
    jvm.put_words(address, [0, slot, 0, 0, is_kept << 32, 0, chunk, 0, *[0] * 6, following])


def test_loaders_are_conditional() -> None:
    """As strong roots they keep dead plugins: 105,261 objects for 89,739. The boot loader's, and those in the making, are roots."""
    jvm = MadeJvm()
    loaders = [0x40000, 0x40100, 0x40200]
    for number, (is_kept, slot) in enumerate([(1, 0), (0, 0x41000), (1, 0x41000)]):
        chunk = 0x42000 + 0x200 * number
        put_loader(jvm, loaders[number], loaders[(number + 1) % 3], chunk, is_kept, slot)
        jvm.put_words(chunk, [OOPS[number], *[0] * 31, 1, chunk])  # leads to itself
    jvm.put_words(0x41000, [OOPS[7]])
    jvm.put_static("ClassLoaderDataGraph", "_head", loaders[0])
    classes = [JavaClass(1, 2, "plug.In", 16, PLAIN, (), loaders[1], 0, OOPS[8]), JavaClass(3, 4, "java.A", 16, PLAIN, (), loaders[0], 0, OOPS[9])]
    roots = find_roots(jvm, classes)
    assert list(roots.strong) == [OOPS[0], OOPS[2]]
    assert roots.loader_handles[loaders[1]] == [OOPS[1]] and roots.loader_keys == {OOPS[7]: loaders[1], OOPS[8]: loaders[1]}


@pytest.mark.parametrize("seed", range(8))
def test_hostile_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that lead anywhere, lists that never end, counts of 2^63: an answer comes, soon."""
    for name in [name for name in vars(java_roots) if name.startswith("MOST_") and getattr(java_roots, name) > 1 << 9]:
        monkeypatch.setattr(java_roots, name, 1 << 9)
    chance, jvm = random.Random(seed), MadeJvm((11, 17, 21, 25)[seed % 4])
    places = [STACK, STACK + 0x100, STACK + 8, THREAD, CODE, CODE + 0x100, 0x7000, 0x100, 1 << 63, (1 << 64) - 8, OOPS[0], 0, 1, 32, 4, 8, 0x20000, ENTRY]

    def read(address: int, size_bytes: int) -> bytes:
        if chance.random() < 0.05:
            return b""
        words = [chance.choice(places) if chance.random() < 0.8 else chance.getrandbits(64) for _ in range(min(size_bytes, 1 << 14) // 8 + 1)]
        return b"".join(word.to_bytes(8, "little") for word in words)[: min(size_bytes, 1 << 14)]

    jvm.target.read_prefix = read
    jvm.natives, jvm.registers = [SimpleNamespace(lwp=place, stack_pointer=STACK) for place in places], places
    roots = find_roots(jvm, [JavaClass(1, 2, "java.lang.Thread", 16, PLAIN, (), 5, 0, OOPS[1])])
    assert all(HEAP <= oop < HEAP_END for oop in [*roots.strong, *roots.from_stacks])


@pytest.mark.parametrize("field", ["_frame_size", "_oop_maps", "_code_begin", "_name"])
def test_a_code_blob_that_lies(field: str) -> None:
    """Frames of 2^31 words, no bytes, or maps of 2^31 entries end the walk; the rest of the stack counts as words."""
    for value in (0, 1, 0x7FFFFFFF, 0x80000000, (1 << 64) - 8, STACK):
        jvm = MadeJvm()
        begin = jvm.put_code(CODE, "nmethod", 48, [(0x20, [(FIRST_SLOT, 0)])])
        jvm.put_words(STACK, [OOPS[0], 0, 0, 0, STACK + 0x140, ENTRY, *[0] * 58])
        end_at_entry(jvm, STACK + 0x140)
        jvm.put_words(CODE + FIELDS["CodeBlob"][field], [value])
        roots = walk(jvm, (STACK, begin + 0x20, 0))
        assert OOPS[0] in roots.words or OOPS[0] in roots.oops


def test_names_of_threads() -> None:
    """Thread.name, in Latin-1 and UTF-16, escaped; a lying length gives no name or a short one."""
    jvm: Any = MadeJvm()
    decoder = OopDecoder(SHAPE, HEAP_HERE.reserved)
    reader = java_roots.ThreadNameReader(jvm, decoder, [JavaClass(1, 2, "byte[]", 0xC0100800 - (1 << 32), PLAIN, (), 0, 0, None)])
    reader._offsets = {("java.lang.Thread", "name"): 12, ("java.lang.String", "value"): 20, ("java.lang.String", "coder"): 16}
    jvm.put_thread(THREAD, 4, (STACK, STACK_END))
    jvm.put_words(THREAD + 0xA0, [0x7000])
    jvm.put_words(0x7000, [OOPS[0]])
    jvm.put_bytes(OOPS[0] + 12, NARROW[1].to_bytes(4, "little"))
    names: List[Any] = []
    cases: Dict[bytes, int] = {b"pool-1": 0, "\u0416\n".encode("utf-16-le"): 1, b"x" * 1000: 0}
    for text, coder in cases.items():
        jvm.put_bytes(OOPS[1] + 16, bytes([coder, 0, 0, 0]) + NARROW[2].to_bytes(4, "little"))
        jvm.put_bytes(OOPS[2] + 12, len(text).to_bytes(4, "little") + text + bytes(300))
        names.append(reader.read_name(THREAD))
    assert names[:2] == ["pool-1", "\u0416\\n"] and len(names[2]) <= 200
    jvm.put_bytes(OOPS[2] + 12, b"\xff" * 4)
    assert len(reader.read_name(THREAD) or "") <= 200
