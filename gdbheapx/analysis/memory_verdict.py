"""What is large: a verdict on the memory as a whole, before anything is said of an allocator. Parts in, sentences out."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx.analysis import next_steps
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.split import Memory, Split
from gdbheapx.hints import ask
from gdbheapx.model import GUESS, SURENESS, Finding, MemoryPart
from gdbheapx.units import Size, join_sentences, number, plural, say, share
from gdbheapx.verdict import SMALL_BYTES, UNBOUNDED, Verdict, inconclusive, of_lines

MATTERS, MATTERS_BYTES = 0.1, 8 * SMALL_BYTES
"""An allocator with a smaller share of the memory gets no verdict of its own, nor one with fewer bytes that are not half of it."""
MUCH = 0.25
"""From this share on something else is named beside an allocator that has most, and shared pages are spoken of."""
SMALL_PROCESS_BYTES = 16 * SMALL_BYTES
MANY_UNJOINED = 8

_WHAT = {
    kinds.STACK: "thread stacks",
    kinds.JIT: "generated code",
    kinds.BSS: "bss",
    kinds.BRK: "program break ([heap]) without blocks of a known allocator",
    kinds.NAMED: "memory that the program has named",
    kinds.ANONYMOUS: "anonymous memory of unknown owner",
    kinds.SHARED: "shared memory",
    kinds.COPIED: "private copies of file pages",
    kinds.CACHE: "page cache of mapped files",
    kinds.LOCKED: "locked pages of mapped files",
    kinds.DEVICE: "memory of a device or a driver",
    kinds.KERNEL: "pages of the kernel",
    kinds.HUGETLB: "huge pages of hugetlbfs",
}

_OBJECTS = {
    "CPython": "Python objects (CPython's allocator)",
    "JVM": "Java's (the JVM)",
    "V8": "JavaScript's (V8)",
    "Go": "Go's heap and stacks",
    "Ruby": "Ruby objects (Ruby's heap)",
    "PHP": "PHP values (Zend's allocator)",
}
"""Whose objects most of a runtime's memory is for."""

UNCLAIMED = (kinds.ANONYMOUS, kinds.BRK, kinds.NAMED)
"""Kinds of memory that may be an allocator's that is not read, or not whole."""
_HINTS = {
    kinds.CACHE: "the kernel drops it when memory is short; it is not a leak",
    kinds.LOCKED: "mlock or mlockall keeps it in RAM; the kernel drops it after munlock",
    kinds.SHARED: "it counts in the RSS of every process that maps it; PSS shows this process's share",
    kinds.STACK: "to reduce it, use fewer threads or smaller stacks",
    kinds.BSS: "the program's own variables: run `nm --size-sort` on its file to find the largest",
}
_OBJECTS_HINT = "that is normal unless they keep growing: %s shows what keeps them, %s what grew" % (ask("owners"), ask("diff OLD"))
_HUGE_STACKS_HINT = (
    "prctl(PR_SET_THP_DISABLE) before the program runs, madvise(MADV_NOHUGEPAGE) on each stack, or stacks without a whole aligned huge page"
)
"""Each measured on 60 stacks of 2 MiB (docs/reference/verdicts.md): 121.4 MiB before, 2.1 MiB after."""


class Group(NamedTuple):
    """Parts that are spoken of as one: all allocators, all of one runtime, all of one kind."""

    kind: str
    program: Optional[str]
    bytes: int
    parts: Sequence[MemoryPart]
    """Largest first."""

    @property
    def sure(self) -> str:
        """As sure as most of its bytes are."""
        best = {word: sum(judged(part) for part in self.parts if part.sure == word) for word in SURENESS}
        return max(SURENESS, key=lambda word: best[word])


def weight(part: MemoryPart) -> int:
    """What the part takes of the machine: RAM, swap, huge pages; of a core its bytes in the file."""
    return (part.resident_bytes or 0) + (part.swapped_bytes or 0) + (part.hugetlb_bytes or 0) + (part.dumped_bytes or 0)


def lazily_free(part: MemoryPart) -> int:
    """Bytes in RAM that the program gave to MADV_FREE."""
    return 0 if part.kind in kinds.FILE else part.droppable_bytes or 0


def judged(part: MemoryPart) -> int:
    """The same for a verdict. Pages of a file as they are on disk are in a core if the process wished so (coredump_filter), in RAM or not:
    no part of it."""
    return 0 if part.kind == kinds.CACHE and part.dumped_bytes is not None else weight(part)


def groups(parts: Sequence[MemoryPart]) -> List[Group]:
    """Largest first."""
    by_owner: Dict[str, List[MemoryPart]] = {}
    for part in parts:
        key = kinds.ALLOCATOR if part.allocator is not None else part.program or part.kind
        by_owner.setdefault(key, []).append(part)
    made = []
    for members in by_owner.values():
        members.sort(key=lambda part: -judged(part))
        first = members[0]
        kind = kinds.ALLOCATOR if first.allocator is not None else first.kind
        made.append(Group(kind, first.program, sum(map(judged, members)), members))
    return sorted(made, key=lambda group: -group.bytes)


def matters(split: Optional[Split], allocators: Sequence[str]) -> bool:
    """They hold enough to be judged; so they do where nothing is known of the memory."""
    total = sum(map(judged, split.parts)) if split is not None else 0
    if split is None or not total:
        return True
    held = sum(judged(part) for part in split.parts if part.allocator in allocators)
    return held >= max(MATTERS * total, min(MATTERS_BYTES, total / 2))


def taken(split: Optional[Split], allocators: Sequence[str], kind: Optional[str] = None) -> Dict[str, int]:
    """What takes memory of all that each of them claims, or of its parts of one kind; nothing where that is not known."""
    if split is None:
        return {}
    parts = [part for part in split.parts if kind in (None, part.kind)]
    return {name: sum(weight(part) for part in parts if part.allocator == name) for name in allocators}


def droppable(split: Optional[Split], allocators: Sequence[str]) -> Dict[str, int]:
    """What the kernel may take of each without swap; nothing of those where that is not known."""
    if split is None:
        return {}
    parts = [part for part in split.parts if part.allocator is not None]
    unknown = {part.allocator for part in parts if part.droppable_bytes is None}
    return {name: sum(part.droppable_bytes or 0 for part in parts if part.allocator == name) for name in set(allocators) - unknown}


def beyond(split: Optional[Split], lost_bytes: Optional[int]) -> int:
    """The most that an allocator may hold beyond what was read of it: what nobody else is known to have, and what a core lost."""
    if split is None or lost_bytes is None:
        return UNBOUNDED
    return lost_bytes + sum(weight(part) for part in split.parts if _may_be_mallocs(part))


def _may_be_mallocs(part: MemoryPart) -> bool:
    """Of nobody who is known."""
    return part.allocator is None and (part.kind in UNCLAIMED or part.sure == GUESS)


class Large(NamedTuple):
    """Something that is larger than all allocators together."""

    verdict: Verdict
    kind: str
    program: Optional[str]

    @property
    def may_be_mallocs(self) -> bool:
        """An allocator that is not read could have it."""
        return self.kind in UNCLAIMED or self.verdict.sure == GUESS


def judge(split: Optional[Split], lost_bytes: Optional[int] = 0, is_open: bool = False, is_malloc_free: bool = False) -> Optional[Large]:
    """What is larger than all allocators together; None where they are what is large, and where the whole process is small.

    `lost_bytes`: what a core lacks, which may be anybody's; `is_open`: what nobody is known to have may be an allocator's. No verdict
    where that decides it. `is_malloc_free`: no allocator was found, so that a small process is its runtime's.
    """
    if split is None or (not split.parts and not is_open and lost_bytes == 0):
        return None
    by_size = groups(split.parts)
    total = sum(group.bytes for group in by_size)
    if not _stands(split, by_size, UNBOUNDED if lost_bytes is None else lost_bytes, is_open):
        return Large(of_lines([_lacking(split, by_size, lost_bytes)]), kinds.ANONYMOUS, None)
    if not by_size:
        return None
    largest = by_size[0]
    held = sum(group.bytes for group in by_size if group.kind == kinds.ALLOCATOR)
    is_small = total <= SMALL_PROCESS_BYTES and not (is_malloc_free and largest.kind == kinds.RUNTIME)
    if largest.kind == kinds.ALLOCATOR or is_small:
        return None
    line = _main_line(largest, total, held, split)
    return Large(of_lines([line], largest.sure), largest.kind, largest.program)


def _stands(split: Split, by_size: Sequence[Group], lost: int, is_open: bool) -> bool:
    """The same group is the largest, whoever has what was lost, and whether allocators have what nobody is known to have."""
    unclaimed = {group.kind: sum(judged(part) for part in group.parts if _may_be_mallocs(part)) for group in by_size} if is_open else {}
    total = sum(group.bytes for group in by_size)
    if not lost and not any(unclaimed.values()):
        return True
    if total + lost <= SMALL_PROCESS_BYTES:
        return True
    if total <= SMALL_PROCESS_BYTES:
        return False
    first, rest = by_size[0], by_size[1:]
    moved = sum(unclaimed.values())
    if first.kind == kinds.ALLOCATOR:
        return all(group.bytes + lost < first.bytes for group in rest) and lost < first.bytes
    least = first.bytes - unclaimed.get(first.kind, 0)
    held = sum(group.bytes for group in rest if group.kind == kinds.ALLOCATOR) + (moved if is_open else 0)
    return lost < least and all(group.bytes + lost < least for group in rest) and held + lost < least


def _lacking(split: Split, by_size: Sequence[Group], lost_bytes: Optional[int]) -> Finding:
    """Why there is no verdict on the memory as a whole."""
    total = sum(group.bytes for group in by_size)
    read = say("%s were read", Size(total))
    if lost_bytes is not None and _stands(split, by_size, lost_bytes, False):
        what = "malloc's state is incomplete, and memory of unknown owner may belong to it"
    elif lost_bytes is None:
        what = "the core is truncated, and it is unknown how much is missing"
    else:
        what = say("the core is truncated; %s (%s) are missing", Size(lost_bytes), share(lost_bytes, total + lost_bytes))
    return inconclusive(what, read, "take a whole core: check disk space and ulimit -c")


def _main_line(largest: Group, total: int, held: int, split: Split) -> Finding:
    owner = _WHAT.get(largest.kind, "%s's own memory" % largest.program)
    cause = stack_cause(split) if largest.kind == kinds.STACK else None
    if cause is not None and cause.code == codes.NEVER_JOINED:
        owner = largest.parts[0].name
    if largest.kind == kinds.SHARED and largest.program is not None:
        owner += " of %s" % largest.program
    is_runtime = largest.kind == kinds.RUNTIME
    if is_runtime and next_steps.has_objects(largest.program):
        owner = _OBJECTS.get(largest.program or "", "objects of %s" % largest.program)
    lazy = sum(map(lazily_free, largest.parts))
    freed = say("%s of it freed with MADV_FREE; ", Size(lazy)) if lazy >= max(SMALL_BYTES, MATTERS * largest.bytes) else ""
    evidence = say("%s of %s (%s) are %s", Size(largest.bytes), Size(total), share(largest.bytes, total), owner)
    details = say("%smalloc holds %s (%s)", freed, Size(held), share(held, total))
    what, code = "Runtime" if is_runtime else "In use", codes.MOSTLY + largest.kind
    return Finding(what, evidence, _hint(largest, split), code, details, largest.bytes)


def _name(part: MemoryPart) -> str:
    if part.mappings <= 1:
        return part.name
    name, _, inner = part.name.partition(" (")
    name = "%s: %s" % (name, inner[:-1]) if inner.endswith(")") else part.name
    return "%s, %s" % (name, plural(part.mappings, "mapping"))


def _hint(largest: Group, split: Split) -> Optional[str]:
    unclaimed = split.memory.unclaimed
    if largest.kind == kinds.ANONYMOUS and unclaimed:
        return "largest mapping: %s-%s" % (unclaimed[0].start, unclaimed[0].end)
    if largest.sure == GUESS:
        return "%s as the owner is a guess: a program like this has no other known owner of such memory" % largest.program
    if largest.kind == kinds.STACK and stack_cause(split) is not None:
        return None  # the finding's own
    if largest.kind == kinds.RUNTIME and next_steps.is_seen(largest.program):
        return _OBJECTS_HINT
    return _HINTS.get(largest.kind)


def stack_cause(split: Optional[Split]) -> Optional[Finding]:
    """The finding that most of the stacks' memory is due to."""
    memory = split.memory if split is not None else None
    if split is None or memory is None:
        return None
    ended = memory.ended_threads
    are_unjoined = ended is not None and 2 * ended.unjoined_bytes >= memory.stack_bytes
    return next(_never_joined(memory) if are_unjoined else _huge_stacks(split, memory), None)


def largest_program(split: Optional[Split]) -> Optional[str]:
    """Return the program whose memory is the largest part."""
    by_size = groups(split.parts) if split is not None else []
    return by_size[0].program if by_size else None


def behind_cache(split: Optional[Split]) -> Optional[str]:
    """The program that has much where page cache, about which there is nothing to do, has most."""
    by_size = groups(split.parts) if split is not None else []
    if len(by_size) < 2 or by_size[0].kind != kinds.CACHE or by_size[1].bytes < MUCH * sum(group.bytes for group in by_size):
        return None
    return by_size[1].program


def beside(split: Optional[Split]) -> List[Finding]:
    """What is to be said where allocators are the largest part, and have not nearly all."""
    if split is None:
        return []
    by_size = groups(split.parts)
    total = sum(group.bytes for group in by_size)
    others = [group for group in by_size if group.kind != kinds.ALLOCATOR and group.bytes >= MUCH * total]
    if not others or total <= SMALL_PROCESS_BYTES or by_size[0].kind != kinds.ALLOCATOR:
        return []
    outside = sum(group.bytes for group in by_size if group.kind != kinds.ALLOCATOR)
    named = join_sentences(", ", [say("%s in %s", Size(group.bytes), _name(group.parts[0])) for group in others])
    evidence = say("%s of %s (%s); %s", Size(outside), Size(total), share(outside, total), named)
    return [Finding("much of the memory is outside malloc", evidence, None, codes.BESIDE_MALLOC, size_bytes=outside)]


def were_deeper(memory: Optional[Memory]) -> bool:
    """Threads have touched much of their stacks in which they are no longer."""
    stacks = memory.thread_stacks if memory is not None else None
    past = stacks.past_bytes if stacks is not None else None
    return memory is not None and past is not None and past >= max(SMALL_PROCESS_BYTES, MATTERS * memory.total_bytes)


def findings(split: Optional[Split]) -> List[Finding]:
    """What a reader of RSS must know."""
    memory = split.memory if split is not None else None
    if split is None or memory is None:
        return []
    return [*_never_joined(memory), *_huge_stacks(split, memory), *_deeper(memory), *_lazily_free(split, memory), *_shared(split, memory)]


def _never_joined(memory: Memory) -> Iterator[Finding]:
    """Fewer threads may be waited for in turn."""
    ended = memory.ended_threads
    if ended is None or (ended.unjoined < MANY_UNJOINED and ended.unjoined_bytes < SMALL_BYTES):
        return
    where = "of RAM" if memory.measure == "resident" else "of the core"
    ran = join_sentences("", [say("; %s ran %s", number(start.threads), start.function) for start in ended.starts])
    sizes = Size(ended.unjoined_bytes), where, Size(ended.unjoined_virtual_bytes)
    evidence = say("their stacks take %s %s and %s of address space%s", *sizes, ran)
    what = "%s ended and %s never joined" % (plural(ended.unjoined, "thread"), "was" if ended.unjoined == 1 else "were")
    yield Finding(
        what,
        evidence,
        "pthread_join or pthread_detach frees the stack of such a thread; nothing else does",
        codes.NEVER_JOINED,
        size_bytes=ended.unjoined_bytes,
    )


def _huge_stacks(split: Split, memory: Memory) -> Iterator[Finding]:
    """Of a core the pages of zeros that the kernel took from RAM: a thread that has touched a page has rarely left it so."""
    parts = [part for part in split.parts if part.kind == kinds.STACK]
    stacks, told = sum((part.resident_bytes or 0) + (part.dumped_bytes or 0) for part in parts), memory.thread_stacks
    is_core = memory.measure == "dumped"
    huge = sum(part.huge_bytes or 0 for part in parts)
    if is_core:
        huge = stacks - (told.touched_bytes or 0) if told is not None and told.measured_threads == told.threads else 0
    if 2 * huge < stacks or huge < max(SMALL_PROCESS_BYTES, MATTERS * memory.total_bytes):
        return
    what, where = ("%s, most likely", " are pages of zeros that were in RAM") if is_core else ("%s", "")
    evidence = say("%s of %s%s: one touch of a stack fills a whole huge page", Size(huge), Size(stacks), where)
    yield Finding(what % "thread stacks are in huge pages", evidence, _HUGE_STACKS_HINT, codes.HUGE_STACKS, size_bytes=huge)


def _lazily_free(split: Split, memory: Memory) -> Iterator[Finding]:
    """In memory of any owner: droppable though it is no page cache."""
    lazy = sum(map(lazily_free, split.parts))
    if lazy < max(SMALL_BYTES, MATTERS * memory.total_bytes):
        return
    largest = max(split.parts, key=lazily_free)
    evidence = say("%s of %s, most of it in %s", Size(lazy), Size(memory.total_bytes), largest.name)
    hint = "the kernel reclaims it when memory is short, without swap; it counts in RSS until then and is not a leak"
    yield Finding("memory was freed with MADV_FREE and is still in RSS", evidence, hint, codes.LAZY_FREE, size_bytes=lazy)


def _deeper(memory: Memory) -> Iterator[Finding]:
    stacks = memory.thread_stacks
    if stacks is None or not were_deeper(memory):
        return
    touched, past = stacks.touched_bytes or 0, stacks.past_bytes or 0
    evidence = say("%s touched by %s, %s in use now", Size(touched), plural(stacks.measured_threads, "thread"), Size(touched - past))
    hint = "the rest was used by deeper calls and stays until each thread ends, or returns it with madvise; a smaller stack size limits it"
    yield Finding("thread stacks were deeper before", evidence, hint, codes.DEEPER_STACKS, size_bytes=past)


def _shared(split: Split, memory: Memory) -> Iterator[Finding]:
    if memory.pss_bytes is None:
        return
    shared = sum(
        part.shared_bytes or 0 for part in split.parts if part.kind not in (kinds.CACHE, kinds.KERNEL)
    )  # every process shares its libraries
    if shared < max(SMALL_PROCESS_BYTES, MUCH * memory.total_bytes):
        return
    evidence = say("%s of RSS %s, not counting page cache; PSS %s", Size(shared), Size(memory.total_bytes), Size(memory.pss_bytes))
    hint = "RSS counts such a page in every process, and once for each mapping; to add up a group of processes, use PSS"
    yield Finding(
        "much of RSS is mapped more than once, by other processes or by this one", evidence, hint, codes.SHARED_PAGES, size_bytes=shared
    )
