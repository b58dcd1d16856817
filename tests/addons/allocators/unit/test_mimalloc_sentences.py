"""Sentences of mimalloc's findings, with figures that lead to each."""

from typing import Any, Callable, Dict, Iterable

import pytest

from gdbheapx import findings as codes
from gdbheapx.addons.allocators.mimalloc import entry as mimalloc_judgement
from gdbheapx.addons.allocators.mimalloc.records import ABANDONED, THREAD, MimallocArena, MimallocFacts
from gdbheapx.allocators.records import Surroundings
from gdbheapx.model import AllocatorInfo, Finding
from tests.support.said import Case, check_case, unsaid

MB = 1 << 20

def mimalloc(*rows: Dict[str, Any], has_ended: bool = True) -> Callable[[], Iterable[Finding]]:
    """What is said of such arenas."""
    arenas = [MimallocArena("mimalloc", *([0] * (len(MimallocArena._fields) - 1)))._replace(index=index, **row) for index, row in enumerate(rows)]  # type: ignore[arg-type]
    info: Any = None
    return lambda: mimalloc_judgement.make_mimalloc_findings(
        MimallocFacts(info, arenas, {}, (), (), has_ended=has_ended), sum(row.held_bytes for row in arenas)
    )


def mimalloc_steps() -> Iterable[Any]:
    """Each way to return free memory, and the option that keeps MADV_FREE from hiding it."""
    row = MimallocArena("mimalloc", *([0] * (len(MimallocArena._fields) - 1)))._replace(  # type: ignore[arg-type]
        owner=THREAD, held_bytes=100 * MB, used_blocks=1, free_bytes=50 * MB, collectable_resident_bytes=20 * MB, unowned_collectable_resident_bytes=30 * MB
    )
    info = AllocatorInfo("mimalloc", "mimalloc", "2.3.2", "libmimalloc.so", None, "table", "probe", True)
    facts = MimallocFacts(info, [row], {}, (), (), delay=("purge_delay", 10), returned=[(0, 1)], is_reset=True)
    (judged,) = mimalloc_judgement.ALLOCATOR.judge([facts], Surroundings(1, [], None, taken_bytes={"mimalloc": 190 * MB}, taken=lambda ranges: 90 * MB))
    return judged.next_steps


WAITING = {"owner": THREAD, "lwp": 71, "held_bytes": 100 * MB, "remote_free_bytes": 40 * MB, "uncollected_bytes": 32 * MB}
LEFT = {"owner": ABANDONED, "lwp": None, "held_bytes": 50 * MB, "used_bytes": 10 * MB, "free_bytes": 40 * MB}
MIMALLOC = {
    "freed by others": Case(mimalloc(WAITING), [codes.UNCOLLECTED], ["40.0 MiB were freed by other threads", "40.0 MiB of it belong to thread 71", "32.0 MiB of it whole pages", "have it call mi_collect"]),
    "of two threads": Case(mimalloc(WAITING, {**WAITING, "lwp": None, "remote_free_bytes": 41 * MB}), [codes.UNCOLLECTED], ["belong to arena 1", "have each of 2 threads call"]),
    "little is freed by others": Case(mimalloc({**WAITING, "remote_free_bytes": MB}), []),
    "left behind": Case(mimalloc(LEFT), [codes.ABANDONED_PAGES], ["40.0 MiB of free blocks are in pages that no thread owns: their threads have ended"]),
    "ways on": Case(
        mimalloc_steps,
        ["MIMALLOC_PURGE_DECOMMITS=1", "mi_collect(true)", "MIMALLOC_PURGE_DELAY=0", "pins"],
        ["any one thread returns 30.0 MiB that no thread owns to the OS, by each thread that owns pages returns 20.0 MiB"],
    ),
    "full pages": Case(mimalloc(LEFT, has_ended=False), [codes.ABANDONED_PAGES], ["no thread owns: they were full, or their threads have ended"]),
}


@pytest.mark.parametrize("name", sorted(MIMALLOC))
def test_a_sentence_is_whole(name: str) -> None:
    """Each figure has its place, under the codes of the case."""
    check_case(MIMALLOC[name])


def test_no_sentence_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of Finding and of Step is made by a case above."""
    assert not unsaid(mimalloc_judgement, list(MIMALLOC.values()), monkeypatch)
