"""A live process, a snapshot of it, and cores of either writer, with holes or zeros where nothing was in memory, get the same verdict, the same sums and the same findings.

Files: glibc/verdict.py, glibc/survey.py.
"""

from typing import Any, Dict, List, Sequence, Tuple

import pytest

from tests.support import kernelcore
from tests.support.gcores import differences, gcore, shares, without_holes
from tests.support.jemallocs import library
from tests.support.processes import Process, Stage
from tests.support.tool import answers, heapx

pytestmark = pytest.mark.once  # what a core lacks that a process has is the kernel's and gdb's doing

MIB = 1 << 20
MANY_ARENAS = {"MALLOC_ARENA_MAX": "64"}
DRAINED = {
    "ended": ("kept", "freed-and-held", ["many-arenas"]),
    "queue": ("kept", "unmerged-fastbins", []),
    "tiles": ("kept", "freed-and-held", ["threshold-raised"]),
    "buried": ("fragmented", "free-between-blocks", ["free-in-small-pieces"]),
}
"""States of drained.c: kind, code, notes."""
PROGRAMS: Sequence[Tuple[str, Tuple[str, ...]]] = (
    *(("drained", (state,)) for state in DRAINED),
    ("left", ("8", "60000")),
    ("recorder", ("9", "2000", "3")),
)


def told(answer: Dict[str, Any]) -> Dict[str, Any]:
    """What a reader concludes from, without how a look was made: only a core is looked at twice, for what pins its pages."""
    data = answer["data"]
    verdicts = {name: (one["kind"], one["code"], one["sure"]) for name, one in data["verdicts"].items()}
    codes = [one["code"] for one in data["findings"] if one["code"] != "pinned-by-blocks"]
    return {"verdict": (data["verdict"]["kind"], data["verdict"]["code"], data["verdict"]["sure"]), "each": verdicts, "findings": codes}


def without_sureness(answer: Dict[str, Any]) -> Dict[str, Any]:
    each = {name: one[:2] for name, one in answer["each"].items()}
    return {**answer, "verdict": answer["verdict"][:2], "each": each}


def report(target: List[str]) -> Dict[str, Any]:
    return dict(heapx(target, "report", "--deep", "--json").envelope)


@pytest.mark.parametrize("name, arguments", PROGRAMS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_the_same_verdict_whatever_is_looked_at(stage: Stage, live: str, name: str, arguments: Sequence[str]) -> None:
    """Whole cores have what decides it: no cause of one verdict makes another of it, and none withdraws it."""
    process = stage.start(name, *arguments, env=MANY_ARENAS)
    snapshot = str(process.folder / "snapshot")
    heapx(process.target(live), "snapshot", snapshot)
    targets = [["--snapshot", snapshot], ["--core", str(gcore(process))]]
    answer = report(process.target(live))
    alive, has_fastbins = told(answer), answer["data"]["totals"]["glibc"]["fast_bytes"] > 0  # glibc 2.43 has none
    targets += [] if kernelcore.reason() else [process.target("core")]
    answers = [told(report(target)) for target in targets]
    assert [without_sureness(one) for one in answers] == [without_sureness(alive)] * len(targets)
    assert [one for one in answers if one["verdict"][2] != alive["verdict"][2]] in ([], answers[1:2])  # gdb's core does not tell which zeros were in RAM
    if name == "drained" and (has_fastbins or arguments[0] != "queue"):
        kind, code, notes = DRAINED[arguments[0]]
        assert alive["verdict"] == (kind, code, "certain") and set(notes) == set(alive["findings"]) - {code}


def sum_of(process: Process, kind: str, name: str) -> int:
    return int(heapx(process.target(kind), "arenas", "--json").data["totals"]["glibc"][name])


def test_the_parts_of_free_memory_are_those_of_pins(stage: Stage, kind: str) -> None:
    """The walk of the verdict and the one of pins are two: what lies between blocks, and what at the ends of arenas, add up to the same."""
    for name, arguments in (("drained", ["ended"]), ("drained", ["queue"]), ("drained", ["buried"])):
        process = stage.start(name, *arguments, env=MANY_ARENAS)
        arenas, pins = answers(process.target(kind), process.folder, "arenas", "pins --no-owners")
        rows = arenas["data"]["arenas"]
        kept: Dict[str, int] = {}
        for group in pins["data"]["groups"]:
            kept[group["where"]] = kept.get(group["where"], 0) + group["kept_bytes"]
        ends = sum(row["top_bytes"] + row["unmerged_bytes"] for row in rows if row["kind"] == "thread")
        between = sum(row["between_bytes"] for row in rows)
        assert sum(kept.values()) == sum(row["free_bytes"] + row["fast_bytes"] + row["top_bytes"] - row["reclaimable_bytes"] for row in rows)
        assert sum(kept.get(word, 0) for word in ("page", "hole", "fastbin", "thread-top", "ended-arena")) == ends + between, (name, arguments)


def test_advice_is_what_helps(stage: Stage, live: str) -> None:
    """Arenas whose threads ended: a trim, which returns what was said. A drained queue: mxfast, with which nothing stays, and no other."""
    process = stage.start("drained", "ended", env=MANY_ARENAS)
    found = report(process.target(live))["data"]
    assert "trim --dry-run" in [step["command"] for step in found["next"]] and "would return" in found["verdict"]["lines"][0]["hint"]
    done = heapx(process.target(live), "trim", "--yes", "--json").data
    assert done["anonymous_diff_bytes"] < -30 * MIB
    queue = stage.start("drained", "queue")
    if not sum_of(queue, live, "fast_bytes"):
        pytest.skip("this glibc has no fastbins")
    found = report(queue.target(live))["data"]
    text = " ".join([found["verdict"]["lines"][0]["hint"], *(str(step["why"]) for step in found["next"])])
    assert "glibc.malloc.mxfast=0" in text and "ARENA_MAX" not in text
    cured = stage.start("drained", "queue", env={"GLIBC_TUNABLES": "glibc.malloc.mxfast=0"})
    held = [sum_of(one, live, "system_bytes") for one in (queue, cured)]
    assert held[0] > 20 * MIB and held[1] < MIB


SHARE_POINTS = 3.0
THREADS = 8


def start(stage: Stage, allocator: str) -> Process:
    """The program on one allocator or the other; jemalloc keeps the addresses that it gives back."""
    env = {"LD_PRELOAD": str(library()), "MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0,retain:true"} if allocator == "jemalloc" else {}
    return stage.start("reserves", str(THREADS), env={**env, "MALLOC_ARENA_MAX": str(THREADS + 1)})


def report_of(*target: str) -> Dict[str, Any]:
    found: Dict[str, Any] = heapx(target, "report", "--json").data_beside_own_memory
    return found


def held(data: Dict[str, Any], allocator: str) -> int:
    return int(data["memory"]["allocators"][allocator])


@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
def test_zeros_are_no_memory(stage: Stage, core: str, allocator: str) -> None:
    """By gdb, by the kernel, and copied without its holes: the shares and the verdict are the living process's, and zeros are told beside them."""
    process = start(stage, allocator)
    live = report_of("--pid", str(process.pid))
    kept, anonymous, shared = process.words()[:3]
    assert live["verdict"]["code"] == "in-use" and kept <= held(live, allocator) < kept + 8 * MIB
    by_gdb = gcore(process)
    zeros: List[int] = []
    for path in (by_gdb, process.core(), without_holes(process.core())):
        found = report_of("--core", str(path))
        sums = found["memory"]
        assert found["verdict"]["code"] == live["verdict"]["code"], path.name
        assert not differences(shares(live), shares(found), SHARE_POINTS), (path.name, shares(live), shares(found))
        assert abs(held(found, allocator) - held(live, allocator)) < MIB, path.name
        assert anonymous <= sums["anonymous_bytes"] < anonymous + MIB and shared <= sums["shared_memory_bytes"] < shared + MIB, path.name
        assert sum(part["dumped_bytes"] for part in found["split"]) == sums["total_bytes"]
        zeros.append(sums["zero_bytes"])
        path.unlink()
    assert live["memory"]["zero_bytes"] is None
    assert zeros[0] > 500 * MIB and 59 * MIB < zeros[1] < 62 * MIB and zeros[2] > 250 * MIB, "the kernel writes untouched shared memory as zeros, and nothing else"


def test_out_of_time(stage: Stage, core: str) -> None:
    """Where --max-seconds ends the look for zeros that is said, with the address from which on all counts; a core whose holes tell needs none."""
    process = start(stage, "glibc")
    dense = without_holes(process.core())
    envelope = heapx(["--core", str(dense)], "report", "--json", "--max-seconds", "0.0001").envelope
    assert envelope["partial"] and any(problem["code"] == "zero-pages-not-searched" and problem["where"] for problem in envelope["problems"])
