"""What is the same of one process, live and as a core of it: classes of blocks and their bytes, broken rules, sums."""

from typing import Any, Dict, List, Sequence, Tuple

from tests.support.tool import heapx

PROGRAMS: Sequence[Tuple[str, Tuple[str, ...]]] = (
    ("mapped", ()),
    ("damage", ("rich",)),
    ("coroutine", ()),
    ("disguised", ()),
    ("holders", ("3",)),
)
"""Those that say much, for each run of the tests."""
MORE_PROGRAMS: Sequence[Tuple[str, Tuple[str, ...]]] = (
    ("accounts", ("fragmented",)),
    ("asleep", ()),
    ("owning", ("100",)),
    ("tops", ("2",)),
    ("accounts", ("mmapped",)),
    ("accounts", ("exit",)),
    ("accounts", ("big-top",)),
    ("cacheless", ("idle",)),
    ("cacheless", ("aligned",)),
    ("census", ()),
    ("contents", ()),
    ("damage", ("size",)),
    ("damage", ("bin-cycle",)),
    ("frames", ()),
    ("heap_end", ("4", "0")),
    ("kept", ()),
    ("inside", ()),
    ("kinds", ()),
    ("leaker", ()),
    ("left", ("2", "40")),
    ("lists", ("random", "1000")),
    ("mapper", ()),
    ("pinned", ("waves",)),
    ("recorder", ("4", "400", "3")),
    ("reserves", ("3",)),
    ("sparse", ("4",)),
    ("tables", ()),
    ("trimmer", ("main",)),
    ("untouched", ()),
    ("wide", ()),
)
WITH_JEMALLOC: Sequence[Tuple[str, Tuple[str, ...]]] = (
    ("recorder", ("4", "400", "3")),
    ("leaker", ()),
    ("holders", ("3",)),
    ("disguised", ()),
    ("owning", ("100",)),
    ("kept", ()),
    ("trimmer", ("main",)),
    ("asleep", ()),
)
OF_RAM = ("resident", "huge", "exclusive", "locked")


def told(target: Sequence[str]) -> Dict[str, Any]:
    """Of a process or core: leaks by class, what check finds, the arenas' sums, what owners add up to."""

    def asked(*command: str) -> Any:
        return heapx(target, *command, "--json").envelope["data"]

    leaks, owners = asked("leaks", "--weak"), asked("owners")
    arenas = asked("arenas")
    findings: List[Any] = asked("check")["findings"]
    return {
        "leaks": {name: (one["blocks"], one["bytes"]) for name, one in leaks["classes"].items()},
        "maybe": {word: one["blocks"] for word, one in leaks["classes"]["maybe"]["by_evidence"].items()},
        "mappings": sorted((one["start"], one["bytes"]) for one in leaks["mappings"] if not one["name"]),
        "check": sorted((one["rule"], one["address"] or "") for one in findings),
        "arenas": {
            (name, key): value for name, sums in arenas["totals"].items() for key, value in sums.items() if not any(word in key for word in OF_RAM)
        },
        "mmapped": arenas["mmapped"],
        "owners": owners["used"],
    }
