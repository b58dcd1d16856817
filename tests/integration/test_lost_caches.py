"""Thread caches that cannot be found: never counted as empty, whatever is damaged; and threads that have none, which are no damage.

Files: glibc/freelists.py.
"""

import random
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests.support.damaged_glibc import Damaged
from tests.support.glibc import glibc_arenas
from tests.support.processes import Stage, by_turns
from tests.support.tool import Asked, heapx

pytestmark = pytest.mark.once  # the rules by which damage is told are the tool's own

EVERY = "arenas, tcache, report, chunks, chunks --histogram, bins, malloc-info, malloc-stats, tunables, doctor, trim --dry-run, leaks, owners"
COMMANDS = [tuple(words.split()) for words in EVERY.split(", ")]
SEEDS, MANY = 40, 140
NOWHERE = 0x0000600000001000


@pytest.fixture(scope="module")
def damaged(core_stage: Stage) -> Iterator[Damaged]:
    """One core for all: seven arenas, each with a thread whose cache is full of things."""
    made = Damaged(core_stage.start("accounts", "seven").core())
    yield made
    made.close()


@pytest.fixture(autouse=True)
def healed(damaged: Damaged) -> Iterator[None]:
    """No test leaves damage behind."""
    yield
    damaged.heal()


def caches(asked: Asked) -> Tuple[Optional[int], Optional[int]]:
    """What `arenas` says of all thread caches."""
    totals = asked.envelope["data"]["totals"]["glibc"]
    return totals["tcache_chunks"], totals["tcache_bytes"]


def problems(asked: Asked, code: str, *words: str) -> List[Dict[str, Any]]:
    """The problems with this code, and these words, where the answer is partial."""
    envelope = asked.envelope
    assert asked.code == 4 and envelope["partial"], envelope["problems"]
    return [one for one in envelope["problems"] if one["code"] == code and all(word in one["what"] for word in words)]


def test_the_undamaged_core(damaged: Damaged) -> None:
    """Is whole, and has caches to be lost."""
    asked = damaged.ask("arenas")
    chunks, _ = caches(asked)
    assert asked.code == 0 and chunks is not None and chunks > 100
    assert len(damaged.fs_base) == len(damaged.thread_local("tcache")) == 7


@pytest.mark.parametrize("pointer", [0, 8, NOWHERE, 1 << 63, (1 << 64) - 8, "another", "stack"])
def test_a_lost_thread_pointer(damaged: Damaged, pointer: Any) -> None:
    """Of 0, outside all memory, another thread's (then neither is believed), or leading to no control block: that thread's cache is unknown, with the
    reason, and the others are told."""
    lwps = sorted(damaged.fs_base)
    lost, other = lwps[3], next(thread for thread in damaged.target.threads() if thread.lwp == lwps[2])
    value = {"another": other.thread_pointer, "stack": other.stack_pointer}.get(pointer, pointer)
    damaged.write(damaged.fs_base[lost], int(value).to_bytes(8, "little"))
    asked = damaged.ask("arenas")
    assert caches(asked) == (None, None) and problems(asked, "cache-unknown", "thread %d" % lost, "thread pointer")
    asked = damaged.ask("tcache")
    rows = {row["lwp"]: row for row in asked.envelope["data"]["threads"]}
    assert asked.code == 4 and rows[lost]["chunks"] is None and rows[lost]["bytes"] is None
    assert all(rows[lwp]["chunks"] for lwp in lwps[1:] if lwp != lost and (lwp != other.lwp or pointer != "another"))


POINTERS = (1, 8, 15, 16, NOWHERE, 1 << 63, (1 << 64) - 1, (1 << 64) - 16, "zeros", "another")


@pytest.mark.parametrize("pointer, command", [*((one, ("arenas",)) for one in POINTERS), *((8, command) for command in COMMANDS[1:])])
def test_a_damaged_tcache_pointer(damaged: Damaged, pointer: Any, command: Tuple[str, ...]) -> None:
    """One problem, with the address and the reason; no command fails."""
    places = damaged.thread_local("tcache")
    lwp, other = sorted(places)[3], sorted(places)[2]
    empty = damaged.get(damaged.thread_local("thread_arena")[lwp]) + 0x4000000 - 0x10000  # of its heap's reserve
    value = {"zeros": empty, "another": damaged.get(places[other])}.get(pointer, pointer)
    damaged.put(places[lwp], int(value))
    asked = damaged.ask(*command)
    assert asked.line is None and asked.code in (0, 4)
    if command[0] in ("arenas", "tcache", "report", "chunks"):
        (problem,) = problems(asked, "cache-unknown", "thread %d" % lwp, "tcache")
        assert problem["where"] in ("0x%x" % value, *("0x%x" % place for place in places.values()))
    if command == ("arenas",):
        assert caches(asked) == (None, None)


def test_a_tcache_pointer_of_0(damaged: Damaged) -> None:
    """The thread's own cache is found in its arena, and belongs to nobody: it is not said that there is none."""
    places = damaged.thread_local("tcache")
    for lwp in sorted(places)[1:3]:
        damaged.put(places[lwp], 0)
        asked = damaged.ask("arenas")
        assert caches(asked) == (None, None) and problems(asked, "cache-unknown", "thread %d" % lwp)
        damaged.heal()


def test_threads_that_are_not_there(damaged: Damaged) -> None:
    """An arena to which more threads are attached than the core has tells of them: a note was lost."""
    arena = next(row for row in glibc_arenas(damaged.ask("arenas").envelope["data"]) if row["kind"] == "thread")
    field = int(arena["address"], 16) + damaged.glibc.malloc_state.members["attached_threads"].offset
    damaged.put(field, 2)
    asked = damaged.ask("arenas")
    assert caches(asked) == (None, None) and problems(asked, "attached-threads-not-found")[0]["where"] == arena["address"]


@pytest.mark.parametrize("mmaps, bytes_", [(0, 1 << 20), (3, 0), (3, 4096), (-1, 4096), (-5, 0), (1 << 30, 1 << 20)])
def test_counters_of_mapped_chunks_that_contradict_each_other(damaged: Damaged, mmaps: int, bytes_: int) -> None:
    """None of one and some of the other, less than a page each, or below 0: not a whole answer, and no figure."""
    fields, mp = damaged.glibc.malloc_par.members, damaged.glibc.mp.address
    damaged.put(mp + fields["n_mmaps"].offset, mmaps, 4)
    damaged.put(mp + fields["mmapped_mem"].offset, bytes_)
    for command in (("arenas",), ("report",), ("chunks",), ("malloc-info",), ("malloc-stats",)):
        asked = damaged.ask(*command)
        assert problems(asked, "mp-mismatch")[0]["where"] == "0x%x" % mp
        if command == ("arenas",):
            assert asked.envelope["data"]["mmapped"] == {"chunks": None, "bytes": None}


# ---------------------------------------------------------------------------------------------------- nothing is wrong


@by_turns("mode", ["idle", "aligned"])
def test_threads_without_a_cache(stage: Stage, kind: str, mode: str) -> None:
    """That never called malloc, or that asked for aligned memory alone: 0, and a whole answer."""
    process = stage.start("cacheless", mode)
    totals = heapx(process.target(kind), "arenas", "--json").data["totals"]["glibc"]
    assert totals["tcache_chunks"] is not None and (mode != "idle" or totals["tcache_struct_chunks"] == 1)
    rows = heapx(process.target(kind), "tcache", "--json").data["threads"]
    assert len(rows) == 5 and all(row["chunks"] is not None for row in rows)


def test_a_page_size_that_cannot_be(damaged: Damaged) -> None:
    """A damaged mp_.hp_pagesize is no measure of heaps: they would be looked for everywhere, for minutes."""
    if "hp_pagesize" not in damaged.glibc.malloc_par.members:
        pytest.skip("this release has no huge pages of its own")
    true = caches(damaged.ask("arenas"))
    damaged.put(damaged.glibc.mp.address + damaged.glibc.malloc_par.members["hp_pagesize"].offset, 0x40)
    assert caches(damaged.ask("arenas", "--max-seconds", "20")) == true


def test_a_process_that_switched_caches_off(stage: Stage, kind: str) -> None:
    """glibc.malloc.tcache_count=0: nothing is in them, and that is whole."""
    process = stage.start("accounts", "seven", env={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"})
    assert heapx(process.target(kind), "arenas", "--json").data["totals"]["glibc"]["tcache_chunks"] == 0


def test_threads_that_nobody_detached(stage: Stage, kind: str) -> None:
    """They ended by the system call alone, and left caches behind that nobody can find: said, with the arena, and no figure."""
    outcome = heapx(stage.start("cacheless", "left").target(kind), "arenas", "--json")
    assert outcome.code == 4 and outcome.envelope["data"]["totals"]["glibc"]["tcache_bytes"] is None
    assert all(problem["code"] == "attached-threads-not-found" and problem["where"] for problem in outcome.envelope["problems"])


# ---------------------------------------------------------------------------------------------------- at random


def words_of_caches(damaged: Damaged) -> List[List[Tuple[int, bool]]]:
    """(place, whether it is an offset in the file) of words on which caches depend; each list is as likely to be hit as another."""
    tcaches = {lwp: damaged.get(place) for lwp, place in damaged.thread_local("tcache").items()}
    pointers = {thread.lwp: thread.thread_pointer or 0 for thread in damaged.target.threads()}
    size = damaged.glibc.tcache.size_bytes
    arenas = [int(row["address"], 16) for row in glibc_arenas(damaged.ask("arenas").envelope["data"])]
    found = [
        [(offset, True) for offset in damaged.fs_base.values()],
        [(address, False) for name in ("tcache", "thread_arena") for address in damaged.thread_local(name).values()],
        [(pointer + word, False) for pointer in pointers.values() for word in (0, 8, 16)],
        [(address + word, False) for address in tcaches.values() for word in range(-16, size, 8) if damaged.get(address + word)],
        [(address + word, False) for address in arenas for word in range(0, damaged.glibc.malloc_state.size_bytes, 8)],
        [(damaged.glibc.mp.address + word, False) for word in range(0, damaged.glibc.malloc_par.size_bytes, 8)],
    ]
    heaps = [address - damaged.glibc.heap_info.size_bytes for address in arenas[1:]]
    return [*found, [(heap + word, False) for heap in heaps for word in range(0, damaged.glibc.heap_info.size_bytes, 8)]]


def another(numbers: random.Random, old: int, some: int) -> int:
    """What stands there instead: a bit flipped, noise, zero, ones, small, a little more or less, or another word of these."""
    if numbers.random() < 0.4:
        return old ^ 1 << numbers.randrange(64)
    choices = (numbers.getrandbits(64), 0, (1 << 64) - 1, numbers.randrange(32), old + numbers.choice((1, -1, 8, -16, 4096, 1 << 20)), some)
    return numbers.choice(choices) & (1 << 64) - 1


@pytest.mark.parametrize("seeds", [range(SEEDS), pytest.param(range(SEEDS, MANY), marks=pytest.mark.wild)], ids=["few", "many"])
def test_random_damage(damaged: Damaged, seeds: range) -> None:
    """A whole answer has the undamaged core's figures of thread caches; all commands answer, in words."""
    places, whole = words_of_caches(damaged), 0
    true = caches(damaged.ask("arenas"))
    threads = {row["lwp"]: (row["chunks"], row["bytes"]) for row in damaged.ask("tcache").envelope["data"]["threads"]}
    for seed in seeds:
        with damaged.harmed(seed) as numbers:
            for _ in range(numbers.choice((1, 1, 1, 2, 5))):
                place, is_offset = numbers.choice(numbers.choice(places))
                other, other_is_offset = numbers.choice(numbers.choice(places))
                old, some = (read(damaged, *one) for one in ((place, is_offset), (other, other_is_offset)))
                value = another(numbers, old, some)
                if is_offset:
                    damaged.write(place, value.to_bytes(8, "little"))
                else:
                    damaged.put(place, value)
            for command in COMMANDS if seed % 10 == 0 else COMMANDS[:2]:
                asked = damaged.ask(*command)
                assert asked.code in (0, 1, 4) and "internal error" not in (asked.line or ""), (command, asked.line)
                if command == ("arenas",) and asked.code == 0:
                    whole += 1
                    assert caches(asked) == true, command
                if command == ("tcache",) and asked.code == 0:
                    rows = {row["lwp"]: (row["chunks"], row["bytes"]) for row in asked.envelope["data"]["threads"]}
                    assert rows == threads, command
    assert whole < len(seeds)


def read(damaged: Damaged, place: int, is_offset: bool) -> int:
    """The word there."""
    if not is_offset:
        return damaged.get(place)
    with open(damaged.path, "rb") as file:
        file.seek(place)
        return int.from_bytes(file.read(8), "little")
