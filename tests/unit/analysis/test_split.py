"""Whose the memory is, from recorded smaps of real programs and of other kernels.

Files: analysis/memory/attribute.py, analysis/memory/attribute.py, analysis/memory/stacks.py, analysis/split.py.
"""

from typing import List, Optional

import pytest

from gdbheapx.analysis.memory import attribute, kinds
from gdbheapx.inferior.base import Thread
from tests.support.builders.recorded import RECORDED, Recorded, divide, part, recorded, use

KIB, MIB = 1 << 10, 1 << 20
NAMES = sorted(path.name for path in RECORDED.glob("*.smaps"))


@pytest.mark.parametrize("name", NAMES)
def test_parts_add_up(name: str) -> None:
    """To Rss, Pss, Swap and the hugetlb pages of the text; nothing is counted twice and nothing is lost."""
    target = recorded(name)
    found = divide(target)
    assert sum(one.resident_bytes or 0 for one in found.parts) == found.memory.total_bytes == sum(one.resident_bytes for one in target.uses)
    assert sum(one.swapped_bytes or 0 for one in found.parts) == sum(one.swapped_bytes or 0 for one in target.uses) == found.memory.swapped_bytes
    assert abs((found.memory.pss_bytes or 0) - sum(one.pss_bytes or 0 for one in target.uses)) <= len(target.uses)
    memory = found.memory
    sums = memory.allocator_bytes + memory.stack_bytes + memory.file_bytes + memory.anonymous_bytes + memory.shared_memory_bytes + memory.device_bytes
    assert sums == memory.total_bytes


# ---------------------------------------------------------------------------------------------------- runtimes


def test_v8_is_one_line() -> None:
    """All of its pages together, however many mappings; its code is told apart by its rights."""
    found = divide(recorded("node-20-linux-6.18.smaps", modules=["/usr/bin/node"]))
    heap = next(one for one in found.parts if one.kind == kinds.RUNTIME and one.sure == "likely")
    assert (heap.name, heap.program, heap.mappings) == ("V8: JavaScript heap", "V8", 5)
    assert (heap.resident_bytes or 0) > 10 * MIB
    assert part(found, kinds.JIT).program == "V8"
    assert found.memory.largest[0].name == heap.name or found.memory.largest[0].kind == "file"
    assert not any("0x302e80000" in one.name for one in found.memory.largest)


@pytest.mark.parametrize(
    "module, reserved_gib, name",
    [
        ("/usr/bin/node", 10, "WebAssembly: linear memory"),
        ("/opt/site-packages/_libwasmtime.so", 4.0625, "WebAssembly: linear memory"),
        ("/usr/bin/node", 0, "V8: JavaScript heap"),
        ("/usr/bin/node", 1, "V8: JavaScript heap"),  # a page of V8's heap in its cage of 4 GiB
        ("/usr/bin/chrome", 1024, "V8: JavaScript heap"),  # and the last one in a sandbox
        ("/usr/lib/jvm/lib/server/libjvm.so", 8, "JVM: metaspace and class space"),
        ("/usr/bin/service", 10, "other anonymous memory"),
    ],
)
def test_webassembly_is_no_heap_of_objects(module: str, reserved_gib: float, name: str) -> None:
    """Whole pages of 64 KiB, with all behind them reserved that an index of 32 bits reaches: where something is loaded that runs it."""
    start, size = 0x7ECD1C000000, 4 * MIB
    reserve = [use(start + size, start + int(reserved_gib * (1 << 30)), "---p")] if reserved_gib else []
    found = divide(Recorded([use(start, start + size, resident=size), *reserve], modules=[module]))
    assert [one.name for one in found.parts if one.resident_bytes] == [name]


def test_without_its_module_nothing_is_called_v8() -> None:
    """Alignment alone proves nothing."""
    found = divide(recorded("node-20-linux-6.18.smaps", modules=["/usr/bin/service"]))
    assert not [one for one in found.parts if one.program]
    assert part(found, kinds.ANONYMOUS).resident_bytes and part(found, kinds.JIT).name.startswith("generated code")


def test_v8_without_its_flag_is_a_guess() -> None:
    """What is aligned as its pages and was not kept from forks may be something else's; a kernel that tells no flags leaves it likely."""
    target = recorded("node-20-linux-6.18.smaps", modules=["/usr/bin/node"])
    target.uses = [one._replace(flags=one.flags - {"dc"} if one.flags else one.flags) for one in target.uses]
    assert part(divide(target), kinds.RUNTIME).sure == "guess"
    target.uses = [one._replace(flags=None) for one in target.uses]
    assert part(divide(target), kinds.RUNTIME).sure == "likely"


def test_a_metaspace_of_more_than_one_chunk() -> None:
    """Chunks side by side are one mapping; what does not begin where a chunk may is the garbage collector's."""
    java, base = ["/usr/bin/java", "/usr/lib/jvm/lib/server/libjvm.so"], 0x7F7BF7000000
    node = [
        *(use(base, base + 0x1B0000, resident=MIB), use(base + 0x1B0000, base + 4 * MIB, "---p")),
        *(use(base + 4 * MIB, base + 0xA80000, resident=6 * MIB), use(base + 0xA80000, base + 64 * MIB, "---p")),
    ]
    bitmap = [use(base + 97 * MIB, base + 103 * MIB, resident=5 * MIB), use(base + 103 * MIB, base + 128 * MIB, "---p")]
    found = divide(Recorded([*node, *bitmap], modules=java))
    assert part(found, kinds.RUNTIME, "metaspace").resident_bytes == 7 * MIB
    assert part(found, kinds.RUNTIME, "garbage collector").resident_bytes == 5 * MIB


def test_postgres() -> None:
    """shared_buffers are shared memory, not files: they count in every backend, and no pressure drops them."""
    found = divide(recorded("postgres-15-linux-6.18.smaps", {"00:1b": "tmpfs"}, modules=["/usr/lib/postgresql/15/bin/postgres"]))
    buffers = part(found, kinds.SHARED, "/dev/zero")
    assert buffers.program == "PostgreSQL" and (buffers.resident_bytes or 0) > 150 * MIB and buffers.droppable_bytes == 0
    assert len([one for one in found.parts if one.kind == kinds.SHARED and "/dev/shm/" in one.name]) == 3
    assert found.memory.shared_memory_bytes > 150 * MIB > found.memory.file_bytes


def test_go_with_cgo() -> None:
    """Arenas are found by their ends, wherever the heap begins; arenas of malloc have other ends."""
    found = divide(recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"], sections=[".gopclntab"]))
    heap = part(found, kinds.RUNTIME, "Go: heap")
    assert heap.mappings == 1 and (heap.resident_bytes or 0) > 40 * MIB
    assert not [one for one in divide(recorded("go-1.26-cgo-linux-6.18.smaps", modules=["/srv/service"])).parts if one.program]


def header(count: int, size_class: int, next_offset: int, max_offset: int) -> bytes:
    return attribute.HEADER.pack(count, 0, 0, 0, 0, 7, size_class, next_offset, max_offset)


@pytest.mark.parametrize("blocks", [3, 0])
@pytest.mark.parametrize("pool_bytes", [4096, 16384])
def test_cpython_is_believed_by_its_pools(pool_bytes: int, blocks: int) -> None:
    """A mapping is an arena's if pools begin where they would, in use or empty again; without them it stays unclaimed, in a python process too."""
    start, end = 0x7F0000000000, 0x7F0000100000
    one = header(blocks, 5, 48 + 96 * 4, pool_bytes - 96).ljust(pool_bytes, b"\1")
    memory = {start: one * ((end - start) // pool_bytes)}
    for content, kind in ((memory, kinds.RUNTIME), ({start: b"\5" * (end - start)}, kinds.ANONYMOUS), ({}, kinds.ANONYMOUS)):
        target = Recorded([use(start, end, resident=end - start)], modules=["/usr/bin/python3.11"], memory=content)
        found = divide(target)
        assert [one.kind for one in found.parts] == [kind]
        assert found.parts[0].sure == "certain"


def test_a_probe_reads_only_what_is_in_ram() -> None:
    """Of a mapping of which the first page alone is resident nothing else is read."""
    start = 0x7F0000000000
    target = Recorded([use(start, start + MIB, resident=4096)], modules=["/usr/bin/python3"])
    divide(target)
    assert set(target.reads) <= {start}


# ---------------------------------------------------------------------------------------------------- other kernels


def test_linux_3_10() -> None:
    """SysV memory, a named thread stack, swap; how much hugetlbfs has is not told, and is unknown, not 0."""
    found = divide(recorded("linux-3.10.smaps"))
    assert part(found, kinds.SHARED, "SysV").resident_bytes == 20480 * KIB
    assert part(found, kinds.STACK).mappings == 2 and part(found, kinds.STACK).swapped_bytes == 4 * KIB
    assert part(found, kinds.HUGETLB).hugetlb_bytes is None and found.memory.hugetlb_bytes is None
    assert part(found, kinds.BRK).resident_bytes == 64 * KIB
    assert part(found, kinds.CACHE).droppable_bytes == part(found, kinds.CACHE).resident_bytes == (44 + 512) * KIB
    assert part(found, kinds.ANONYMOUS).huge_bytes == 38912 * KIB


def test_a_claimed_name_is_the_allocators() -> None:
    """What an allocator claims is its own, whatever the kernel calls it."""
    found = divide(recorded("linux-6.12-named.smaps"), {"glibc": [(0x7F2600000000, 0x7F2600021000)]})
    assert part(found, kinds.ALLOCATOR).resident_bytes == found.memory.allocators["glibc"] == 100 * KIB
    assert not [one for one in found.parts if "malloc arena" in one.name]


# ---------------------------------------------------------------------------------------------------- files and shared memory


def test_a_file_of_tmpfs_is_memory() -> None:
    """No disk has what the kernel would drop: told by the file system, wherever it is mounted."""
    on_disk, in_memory = use(0x10000, 0x20000, "r--p", "/run/a", 0x10000, anonymous_bytes=0), use(0x30000, 0x40000, "r--p", "/run/b", 0x10000, anonymous_bytes=0)
    found = divide(Recorded([on_disk._replace(filesystem="ext4"), in_memory._replace(filesystem="tmpfs")]))
    assert part(found, kinds.CACHE).droppable_bytes == 0x10000 and part(found, kinds.SHARED).droppable_bytes == 0


def test_copies_of_file_pages_are_private() -> None:
    """The copied pages are the process's own, the rest is page cache; shared pages are the cache's."""
    data = use(0x10000, 0x20000, "rw-p", "/usr/lib/x.so", 0xC000, anonymous_bytes=0x8000, shared_bytes=0x4000, pss_bytes=0x8400)
    found = divide(Recorded([data]))
    copied, cache = part(found, kinds.COPIED), part(found, kinds.CACHE)
    assert (copied.resident_bytes, copied.shared_bytes, copied.pss_bytes, copied.droppable_bytes) == (0x8000, 0, 0x8000, 0)
    assert (cache.resident_bytes, cache.shared_bytes, cache.pss_bytes, cache.droppable_bytes) == (0x4000, 0x4000, 0x400, 0x4000)


def test_largest_names_files_and_mappings() -> None:
    """A file's mappings together, anonymous memory by address; the unclaimed are listed by themselves."""
    uses = [use(0x10000, 0x20000, "r--p", "/usr/lib/x.so", 0x8000, anonymous_bytes=0), use(0x20000, 0x30000, "rw-p", "/usr/lib/x.so", 0x4000)]
    found = divide(Recorded([*uses, use(0x50000, 0x60000, resident=0x9000), use(0x70000, 0x80000, resident=0x1000)]))
    assert [(one.kind, one.bytes) for one in found.memory.largest] == [("file", 0xC000), ("anonymous", 0x9000), ("anonymous", 0x1000)]
    assert [(one.start, one.resident_bytes) for one in found.memory.unclaimed] == [(0x50000, 0x9000), (0x70000, 0x1000)]


# ---------------------------------------------------------------------------------------------------- claims and bss


def test_a_claim_of_a_part_gets_what_is_resident_there() -> None:
    """And of the other figures the same share."""
    mapping = use(0x10000, 0x20000, resident=0x8000, swapped_bytes=0x1000, pss_bytes=0x4000, huge_bytes=0x4000)
    found = divide(Recorded([mapping]), {"glibc": [(0x16000, 0x1A000)]})
    held, rest = part(found, kinds.ALLOCATOR), part(found, kinds.ANONYMOUS)
    assert (held.resident_bytes, held.swapped_bytes, held.pss_bytes, held.huge_bytes) == (0x2000, 0x1000, 0x1000, 0x1000)
    assert (rest.resident_bytes, rest.swapped_bytes, rest.pss_bytes, rest.huge_bytes) == (0x6000, 0, 0x3000, 0x3000)


def test_some_ranges_by_whose_they_are() -> None:
    """Each owner gets no more than it has of the mapping, and nothing of what lies beside it."""
    found = divide(Recorded([use(0x10000, 0x20000, resident=0x8000), use(0x20000, 0x24000, resident=0x4000)]), {"glibc": [(0x16000, 0x1A000)]})
    held = {owner.kind: size for owner, size in found.held([(0x14000, 0x17000), (0x1F000, 0x22000), (0x90000, 0x91000)]).items()}
    assert held == {kinds.ALLOCATOR: 0x1000, kinds.ANONYMOUS: 0x2000 + 0x2000}
    assert found.held([]) == {} and found.in_ram([(0x20000, 0x21000)]) is not None


def test_bss_ends_where_the_image_does() -> None:
    """What the kernel joined to it behind that is something else; a heap that begins there too."""
    uses = [use(0x10000, 0x20000, "rw-p", "/usr/bin/service", 0x10000), use(0x20000, 0x60000, resident=0x40000)]
    found = divide(Recorded(uses, images=[(0x8000, 0x2FF01)]))
    assert part(found, kinds.BSS).resident_bytes == 0x10000 and part(found, kinds.ANONYMOUS).resident_bytes == 0x30000


# ---------------------------------------------------------------------------------------------------- stacks

STACK, OTHER = (0x7F0000001000, 0x7F0000801000), (0x7F0002000000, 0x7F0002040000)


def with_stacks(threads: List[Thread], memory: bytes = b"") -> Recorded:
    """A main thread's block of its own, a guarded stack of 8 MiB, one of 256 KiB without a guard, and a reservation's piece."""
    uses = [
        use(STACK[0] - 0x1000, STACK[0], "---p"),
        use(*STACK, resident=0x5000),
        use(0x7F0001000000, 0x7F0001200000, "---p"),
        use(0x7F0001200000, 0x7F0001208000, resident=0x8000),
        use(*OTHER, resident=0x6000),
    ]
    last = STACK[1] - 0x1000
    return Recorded(uses, threads=threads, memory={last: memory.ljust(0x1000, b"\0")} if memory else None)


def test_a_thread_on_a_coroutine_still_has_its_stack() -> None:
    """Its control block tells, not its stack pointer."""
    found = divide(with_stacks([Thread(101, "worker", STACK[1] - 0x900, OTHER[0] + 0x30000, 0)]))
    assert part(found, kinds.STACK, "thread stacks").resident_bytes == 0x5000
    assert part(found, kinds.ANONYMOUS).resident_bytes == 0xE000, "the coroutine's memory has no guard: nothing proves it a stack"


def test_a_coroutine_stack_with_a_guard_is_a_stack() -> None:
    """It is told apart from the threads' own."""
    found = divide(with_stacks([Thread(101, "worker", OTHER[0], STACK[1] - 0x2000, 0)]))
    assert part(found, kinds.STACK, "coroutines").resident_bytes == 0x5000


def test_without_control_blocks_the_stack_pointer_tells() -> None:
    """Cores of machines whose thread pointers are not in the notes; the main thread where nothing is labelled."""
    found = divide(with_stacks([Thread(101, None, None, STACK[1] - 0x2000, 0), Thread(100, None, None, OTHER[1] - 0x1000, 0)]))
    assert part(found, kinds.STACK).resident_bytes == 0xB000 and part(found, kinds.STACK).name == "thread stacks"


def test_the_main_threads_control_block_is_no_stack() -> None:
    """ld.so puts it beside the libraries."""
    assert not [one for one in divide(with_stacks([Thread(100, "main", OTHER[0] + 0x740, 0x7FFF00000000, 0)])).parts if one.kind == kinds.STACK]


def test_a_stack_without_a_guard_holds_both_pointers() -> None:
    """As glibc 2.42 makes them, whose guard is no mapping; a thread of Go runs on pieces of its heap, which looks the same."""
    threads = [Thread(101, "worker", OTHER[1] - 0x900, OTHER[1] - 0x3000, 0)]
    assert part(divide(with_stacks(threads)), kinds.STACK).resident_bytes == 0x6000
    go = with_stacks(threads)
    go._modules, go._sections = Recorded([], modules=["/srv/service"]).modules(), (".gopclntab",)
    assert not [one for one in divide(go).parts if one.kind == kinds.STACK]


def test_a_stack_that_an_ended_thread_left() -> None:
    """Its struct pthread is still there, and holds its own address twice."""
    address = STACK[1] - 0x940
    block = address.to_bytes(8, "little") + b"\1" * 8 + address.to_bytes(8, "little")
    target = with_stacks([], b"\0" * (0x1000 - 0x940) + block)
    target.uses = [one._replace(resident_bytes=one.mapping.size_bytes) if one.mapping.start == STACK[0] else one for one in target.uses]
    assert part(divide(target), kinds.STACK).name.startswith("stacks of exited threads")


@pytest.mark.parametrize("depth, past", [(0x2000, 0x4E000), (None, None), (0x100000, 0x50000)])
def test_how_deep_a_thread_is(depth: Optional[int], past: Optional[int]) -> None:
    """What is touched beyond that was used by deeper calls; on another stack it is not known. Of a large frame nothing may be touched."""
    top = STACK[1]
    target = with_stacks([Thread(101, "worker", top - 0x900, OTHER[0] if depth is None else top - depth, 0)])
    target.uses = [one._replace(resident_bytes=0x50000) if one.mapping.start == STACK[0] else one for one in target.uses]
    stacks = divide(target).memory.thread_stacks
    assert stacks is not None and [row[2:] for row in stacks.largest] == [(top - STACK[0], 0x50000, 0, depth, past)]
    assert stacks[:2] == (1, past is not None) and stacks.past_bytes == past


def test_huge_pages_are_touched_by_one_call() -> None:
    """They were not used by deeper calls; what they are of stacks that the kernel joined is not known."""
    thread = Thread(101, "worker", STACK[1] - 0x900, STACK[1] - 0x2000, 0)
    uses = [use(STACK[0] - 0x1000, STACK[0], "---p"), use(*STACK, resident=0x203000)._replace(huge_bytes=0x200000)]
    stacks = divide(Recorded(uses, threads=[thread])).memory.thread_stacks
    assert stacks is not None and stacks.past_bytes == 0x1000
    joined = [thread, Thread(102, "worker", STACK[1] - 0x400900, STACK[1] - 0x402000, 0)]
    stacks = divide(Recorded(uses, threads=joined)).memory.thread_stacks
    assert stacks is not None and stacks[:2] == (2, 0) and stacks.past_bytes is None
    assert {(row.size_bytes, row.depth_bytes, row.huge_bytes) for row in stacks.largest} == {(0x400000, 0x2000, None)}


def test_pieces_of_reservations_are_no_stacks() -> None:
    """A gap of 2 MiB is no guard; without a thread, a flag or a control block even a small one proves nothing."""
    assert not [one for one in divide(with_stacks([])).parts if one.kind == kinds.STACK]


@pytest.mark.parametrize("modules, program", [(["/usr/sbin/nginx", "/usr/lib/libluajit-5.1.so.2.1.0"], "LuaJIT"), (["/usr/sbin/nginx"], None)])
def test_large_mappings_of_a_program_with_luajit_are_its_guess(modules: List[str], program: Optional[str]) -> None:
    """Segments of 128 KiB, which the kernel joins; smaller mappings have no owner."""
    large, little = use(0x7F0000000000, 0x7F0001460000, resident=20 * MIB), use(0x7F0010000000, 0x7F0010010000, resident=0x10000)
    found = divide(Recorded([large, little], modules=modules))
    sizes = {(row.program, row.sure if row.program else ""): row.resident_bytes for row in found.parts}
    assert sizes == ({("LuaJIT", "guess"): 20 * MIB, (None, ""): 0x10000} if program else {(None, ""): 20 * MIB + 0x10000})
