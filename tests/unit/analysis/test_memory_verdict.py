"""What is large comes first; an allocator is spoken of only if it holds enough.

Files: analysis/memory/kinds.py, analysis/memory/kinds.py, analysis/inside.py, analysis/memory_verdict.py.
"""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from gdbheapx.allocators.records import AllocatorJudgement
from gdbheapx.analysis import inside, memory_verdict
from gdbheapx.analysis.inside import RuntimeTable
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.overview import _make_verdict, _with_leaked
from gdbheapx.common import findings as codes
from gdbheapx.common import hints, problems, verdict
from gdbheapx.common.model import Finding, MemoryPart, SplitPart, StepSentence
from gdbheapx.inferior.base import Module
from gdbheapx.kernel.blocks.graph import NativeSum
from tests.support.builders.records import MB, part, split

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "parts, code",
    [
        ([part(kinds.ALLOCATOR, 60 * MB), part(kinds.CACHE, 40 * MB)], None),
        (
            [part(kinds.ALLOCATOR, 1 * MB), part(kinds.RUNTIME, 90 * MB, program="V8"), part(kinds.JIT, 9 * MB, program="V8")],
            "mostly-runtime",
        ),
        ([part(kinds.ALLOCATOR, 10 * MB), part(kinds.SHARED, 90 * MB)], "mostly-shared-memory"),
        ([part(kinds.ALLOCATOR, 10 * MB), part(kinds.CACHE, 50 * MB), part(kinds.COPIED, 40 * MB)], "mostly-page-cache"),
        ([part(kinds.ALLOCATOR, 10 * MB), part(kinds.ANONYMOUS, 90 * MB)], "mostly-anonymous"),
        ([part(kinds.ALLOCATOR, 10 * MB, swapped_bytes=200 * MB), part(kinds.CACHE, 90 * MB)], None),
        ([part(kinds.HUGETLB, 0, hugetlb_bytes=500 * MB, allocator="glibc"), part(kinds.CACHE, 90 * MB)], None),
        ([part(kinds.ALLOCATOR, 1 * MB), part(kinds.CACHE, 5 * MB)], None),
        ([part(kinds.ALLOCATOR, 40 * MB), part(kinds.CACHE, 30 * MB), part(kinds.STACK, 30 * MB)], None),
        ([part(kinds.ALLOCATOR, 39 * MB), part(kinds.CACHE, 41 * MB), part(kinds.COPIED, 20 * MB)], None),
        ([part(kinds.ALLOCATOR, 10 * MB), part(kinds.CACHE, 45 * MB), part(kinds.STACK, 42 * MB)], "mostly-stack"),
    ],
)
def test_the_verdict_speaks_of_what_is_large(parts: List[MemoryPart], code: Optional[str]) -> None:
    """The largest group decides, swap and hugetlb pages with it; where allocators are it, or the process is small, they are judged."""
    found = memory_verdict.judge_memory(split(parts))
    assert (found[0].code if found else None) == code


def test_page_cache_that_is_less_than_half_is_not_the_verdict() -> None:
    """The kernel drops it: the program's own memory is judged. Nothing that could not be read makes that uncertain, and a script of 1.0 sees
    what it saw."""
    shares = split([part(kinds.CACHE, 41 * MB), part(kinds.ALLOCATOR, 39 * MB), part(kinds.ANONYMOUS, 10 * MB), part(kinds.COPIED, 10 * MB)])
    assert memory_verdict.judge_memory(shares, is_open=True) is None
    beside = memory_verdict.find_beside(shares)
    assert [line.code for line in beside] == [codes.BESIDE_MALLOC] and "41.0 MiB in page-cache" in str(beside[0].evidence)
    judged = verdict.of_lines([Finding("In use", "", None, codes.IN_USE)])
    old = memory_verdict.with_verdict_1_0(judged, shares)
    assert (old.code, old.kind_1_0, old.code_1_0) == (codes.IN_USE, "not-malloc", codes.MOSTLY + kinds.CACHE)
    for parts in ([part(kinds.CACHE, 4 * MB), part(kinds.ALLOCATOR, 3 * MB), part(kinds.COPIED, 2 * MB)], [part(kinds.CACHE, 40 * MB), part(kinds.ALLOCATOR, 60 * MB)]):
        assert memory_verdict.with_verdict_1_0(judged, split(parts)) == judged


@pytest.mark.parametrize(
    "title, options",
    [
        ("'/usr/bin/redis-server 127.0.0.1:6380'", " -p 6380"),
        ("redis-server *:6379", ""),
        ("valkey-server 10.0.0.5:7000 [cluster]", " -h 10.0.0.5 -p 7000"),
        ("redis-server unixsocket:/run/redis/r.sock", " -s /run/redis/r.sock"),
        ("redis-server $(id):6379", " -h '$(id)'"),
        ("mysqld --port 6380", ""),
        (None, ""),
    ],
)
def test_a_client_asks_the_server_where_it_listens(title: Optional[str], options: str) -> None:
    """The usual place needs no options; what a process calls itself is no command."""
    assert memory_verdict.make_client_options(title) == options
    asked = memory_verdict.add_client_options("redis-cli MEMORY PURGE", options)
    assert asked == "redis-cli%s MEMORY PURGE" % options


def test_a_small_suspect_is_no_next_step() -> None:
    """864 KiB of a process of 51 MiB explain nothing of it."""
    where: Any = SimpleNamespace(address=0x40)
    for kept_bytes, is_named in ((864 << 10, False), (3 * MB, True)):
        suspect: Any = SimpleNamespace(kind="shared", accumulation=where, retained_bytes=kept_bytes)
        found: Any = SimpleNamespace(suspect=suspect)
        steps = inside.steps_to_suspect(found, 51 * MB)
        assert bool(steps) is is_named


def test_file_pages_of_a_core_are_no_memory() -> None:
    """They are in it because the process wished so, in RAM or not: neither the verdict nor whether an allocator matters counts them."""
    parts = [part(kind, None, dumped_bytes=size * MB) for kind, size in ((kinds.CACHE, 900), (kinds.RUNTIME, 60), (kinds.ALLOCATOR, 20))]
    found = memory_verdict.judge_memory(split(parts))
    assert found is not None and found[0].code == "mostly-runtime" and "60.0 MiB of 80.0 MiB" in found[0].lines[0].evidence
    assert memory_verdict.has_much_memory(split(parts), ["glibc"])


def test_one_per_cent_does_not_matter() -> None:
    """An allocator is spoken of from a tenth on, if that is not next to nothing, and where nothing is known of the memory."""
    for held, rest, matters in ((1, 99, False), (9, 91, False), (10, 90, True), (2, 18, False), (2, 2, True)):
        found = split([part(kinds.ALLOCATOR, held * MB), part(kinds.CACHE, rest * MB)])
        assert memory_verdict.has_much_memory(found, ["glibc"]) is matters, (held, rest)
    assert memory_verdict.has_much_memory(None, ["glibc"])


def test_unclaimed_memory_may_be_an_unread_allocators() -> None:
    """So may what is guessed; shared memory and page cache may not."""
    for kind, more, may in (
        (kinds.ANONYMOUS, {}, True),
        (kinds.RUNTIME, {"program": "GCC", "sure": "guess"}, True),
        (kinds.SHARED, {}, False),
        (kinds.CACHE, {}, False),
    ):
        found = memory_verdict.judge_memory(split([part(kind, 90 * MB, **more)]))
        assert found is not None and memory_verdict.may_be_mallocs(found[0]) == may


class Live:
    kind, pid = "live", 77

    def modules(self) -> List[Module]:
        return [Module("/usr/lib/libcoreclr.so", 0, False, None, None)]


def test_objects_of_a_runtime_are_in_use() -> None:
    """Whether they are a leak is the question: the verdict says who knows, and of pools that were read what is in use."""
    parts = [part(kinds.ALLOCATOR, 5 * MB), part(kinds.RUNTIME, 45 * MB, program="CPython")]
    found = memory_verdict.judge_memory(split(parts))
    assert found is not None and str(found[0].evidence).endswith("are Python objects (CPython's allocator)") and found[0].kind == verdict.RUNTIME
    assert hints.hint_command("owners") in (found[0].lines[0].hint or "")
    rows = [SplitPart(inside.USED, "", 40 * MB), SplitPart(inside.FREE, "", 3 * MB)]
    tables = [RuntimeTable("CPython", rows, 0, 0)]
    assert memory_verdict.find_largest_program(split(parts)) == "CPython"
    read = inside.with_objects(found[0], "CPython", tables)
    assert read.evidence == read.lines[0].evidence and "its objects use 40.0 MiB, 3.0 MiB are free" in str(read.lines[0].details)
    assert inside.with_objects(found[0], "JVM", tables) == inside.with_objects(found[0], "CPython", None) == found[0]


def test_no_step_opens_a_port_or_may_end_the_process() -> None:
    """SIGUSR1 opens node's inspector; SIGUSR2 ends a node that was not started for it."""
    steps = [*memory_verdict.make_memory_steps(Live(), "mostly-runtime", "V8"), *memory_verdict.in_malloc(Live(), ["V8"])]  # type: ignore[arg-type]
    assert steps and not [step for step in steps if isinstance(step, StepSentence) and step.command.startswith("kill")]


def test_of_page_cache_the_next_step_is_mallocs() -> None:
    """Nothing is to be done about page cache: what goes on is what malloc's own verdict asks for, not a table of its sizes."""
    judged = AllocatorJudgement(
        "glibc", ["glibc"], 40 * MB, verdict.of_lines([Finding("In use", "", None, codes.IN_USE)]), [], [StepSentence("chunks --histogram", "")]
    )
    session: Any = SimpleNamespace(
        target=SimpleNamespace(kind="live", pid=77, modules=list, lost_bytes=lambda: 0),
        heaps=SimpleNamespace(all=list),
        discovery=SimpleNamespace(may_be_hidden=lambda: False, foreign_owner=lambda: None, unread=list),
        stands_still=lambda reads: "",
    )
    shares = split([part(kinds.CACHE, 90 * MB), part(kinds.ALLOCATOR, 40 * MB)])
    largest, steps = _make_verdict(session, shares, [judged], [judged])
    commands = [hints.strip_targets(step.command) for step in steps if isinstance(step, StepSentence)]
    assert largest.code == codes.MOSTLY + kinds.CACHE and commands == ["owners", "census", "leaks", "chunks --histogram"]


@pytest.mark.parametrize("code, first", [(codes.FREED_AND_HELD, "trim"), (codes.FREE_BETWEEN, "trim"), (codes.IN_USE, "owners")])
def test_what_explains_the_verdict_comes_first(code: str, first: str) -> None:
    """Of a node whose memory is free in malloc the trim, before what node says of its Buffers; of one in use owners and census."""
    target: Any = Live()
    judged = AllocatorJudgement("glibc", ["glibc"], 90 * MB, verdict.of_lines([Finding("", "", None, code)]), [], [StepSentence("trim --dry-run", "")])
    session: Any = SimpleNamespace(
        target=SimpleNamespace(kind="live", pid=77, modules=target.modules, lost_bytes=lambda: 0),
        discovery=SimpleNamespace(may_be_hidden=lambda: False, foreign_owner=lambda: None, unread=list),
        stands_still=lambda reads: "",
    )
    attribution: Any = SimpleNamespace(here=[SimpleNamespace(name="V8")])
    with_v8 = split([part(kinds.ALLOCATOR, 90 * MB)])._replace(attribution=attribution)
    commands = [hints.strip_targets(step.command).split()[0] for step in _make_verdict(session, with_v8, [judged], [judged])[1] if isinstance(step, StepSentence)]
    order = [command for command in commands if command in (first, "process.memoryUsage()")]
    assert order == [first, "process.memoryUsage()"], commands


STANDING: Any = SimpleNamespace(stands_still=lambda reads: "", problems=[])


@pytest.mark.parametrize("code", [codes.IN_USE, codes.PART_HELD])
def test_no_verdict_says_more_than_was_looked_at(code: str) -> None:
    """Where the look at all blocks would make it `leaked`, or might, the first line says what is lacking, and Next begins with what decides."""
    usual = verdict.usual_verdict(100 * MB, (90 if code == codes.IN_USE else 65) * MB, 100 * MB)
    used, much, little = NativeSum(9, 90 * MB), NativeSum(3, 28 * MB), NativeSum(3, MB // 2)
    open_ = [None, inside.InsideAnswer(used, None, None, ()), inside.InsideAnswer(used, much, None, (), leaked_is_upper_bound=True)]
    open_ += [inside.InsideAnswer(used, lost, None, (), may_be_garbage=True) for lost in (much, little)]
    settled = [inside.InsideAnswer(used, little, None, ()), inside.InsideAnswer(used, little, None, (), leaked_is_upper_bound=True), inside.InsideAnswer(used, much, None, ())]
    for found in [*open_, *settled]:
        two = [AllocatorJudgement(name, [name], 90 * MB, usual, [], []) for name in ("jemalloc", "glibc")]
        main, judged, steps = _with_leaked(STANDING, usual, two, [StepSentence("owners", "")], found)
        assert judged[0].verdict == main  # the verdict of the whole is its
        is_leaked = main.kind == verdict.LEAKED
        assert (main.kind, is_leaked) == (usual.kind if found is not settled[2] else verdict.LEAKED, found is settled[2])
        assert ("leaked" in str(main.lines[0].hint) or "garbage" in str(main.lines[0].hint) or "not read" in str(main.lines[0].hint)) == (found in open_), found
        assert ("normal unless" in str(main.lines[0].hint)) == (code == codes.IN_USE and not is_leaked), found
        assert (main.kind_1_0, main.code_1_0) == (("leaked", "leaked") if is_leaked else (usual.kind_1_0, usual.code_1_0))
        assert hints.strip_targets(steps[0].command) == ("leaks" if found in open_ or is_leaked else "owners")  # type: ignore[attr-defined]
    lacking: Any = SimpleNamespace(stands_still=lambda reads: "", problems=[SimpleNamespace(code=problems.FILES_NOT_DUMPED)])
    assert "coredump_filter" in _with_leaked(lacking, usual, [], [], open_[2])[2][1].command  # type: ignore[attr-defined]


def test_leaks_comes_first_where_much_is_leaked() -> None:
    """Also where most of the memory is a runtime's."""
    main = verdict.of_lines([Finding("Runtime", "", None, codes.MOSTLY_RUNTIME)])
    for leaked, first, kind in ((92, "leaks", "leaked"), (15, "leaks", "runtime"), (3, "owners", "runtime")):
        found = inside.InsideAnswer(NativeSum(9, 100 * MB), NativeSum(3, leaked * MB), None, ())
        judged, _, steps = _with_leaked(STANDING, main, [], [StepSentence("owners", ""), StepSentence("leaks", "")], found, 900 * MB)
        assert judged.kind == kind and isinstance(steps[0], StepSentence) and hints.strip_targets(steps[0].command) == first


def test_every_verdict_and_finding_has_a_code() -> None:
    """So that no script needs to read a sentence: each call of Finding in analysis/ gives four arguments."""
    wrong = []
    for path in sorted((ROOT / "gdbheapx" / "analysis").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding" and len(node.args) + len(node.keywords) < 4:
                wrong.append("%s:%d" % (path.name, node.lineno))
    assert not wrong


class Core:
    kind, pid, has_memory, executable, core_path = "core", 77, True, "/opt/a b/java", "/tmp/the.core"

    def modules(self) -> List[Module]:
        return [Module("/opt/a b/java", 0, True, None, None)]

    def module_file(self, module: Module) -> Optional[str]:
        return None


def test_nothing_is_asked_of_a_core_that_only_a_process_can_answer() -> None:
    """What a core can be asked is to be typed as it stands, the rest is said of the live process; no step has a process's number."""
    for program in [key for key in memory_verdict._LIVE if "-" not in key]:
        steps = memory_verdict.make_memory_steps(Core(), "mostly-runtime", program, has_heap=True, has_much=True)  # type: ignore[arg-type]
        typed = [hints.strip_targets(step.command) for step in steps if isinstance(step, StepSentence)]
        assert not [command for command in typed if "PID" in command or "77" in command], program
        assert typed[:2] == ["owners", "census"] if memory_verdict.is_seen(program) else ("owners" in typed) == (program in memory_verdict._WITH_C_BESIDE)
        assert [step for step in steps if "live process" in step] or typed
    (jhsdb,) = [step for step in memory_verdict.make_memory_steps(Core(), "mostly-runtime", "JVM") if isinstance(step, StepSentence)]  # type: ignore[arg-type]
    assert jhsdb.command == "jhsdb jmap --histo --exe '/opt/a b/java' --core /tmp/the.core"
    crashed = Core()
    crashed.core_path = "/proc/7/mem"
    (jhsdb,) = [step for step in memory_verdict.make_memory_steps(crashed, "mostly-runtime", "JVM") if isinstance(step, StepSentence)]  # type: ignore[arg-type]
    assert jhsdb.command.endswith("--core CORE"), "the process is gone"


def test_a_core_without_its_program_says_what_the_file_would_give() -> None:
    """And a process never does."""
    assert "--exe FILE" in memory_verdict.in_malloc(Core(), [])[0]  # type: ignore[arg-type]
    assert not memory_verdict.in_malloc(Live(), [])  # type: ignore[arg-type]


def test_own_commands_only_where_there_are_blocks() -> None:
    """A runtime without an allocator that was read has none to go through, and beside a large heap of Go's what C has may be next to nothing."""
    beside = [memory_verdict.make_memory_steps(Live(), "mostly-runtime", "Go", True, has_much=much)[2:] for much in (True, False)]  # type: ignore[arg-type]
    assert [hints.strip_targets(step.command) for step in beside[0] if isinstance(step, StepSentence)] == ["owners", "leaks"] and not beside[1]
    with_blocks, without = (memory_verdict.make_memory_steps(Live(), "mostly-runtime", "CPython", has_heap) for has_heap in (True, False))  # type: ignore[arg-type]
    assert [hints.strip_targets(str(step)).split()[0] for step in with_blocks] == ["owners", "census", "tracemalloc"] and str(without[0]).startswith(
        "tracemalloc"
    )
    assert not any("PYTHONMALLOC" in step for step in with_blocks)
