"""Call sites: a class's vtable ties its blocks to the function that made them, in programs with and without symbols.

Files: addons/labs/sites/join.py, analysis/addon_answers.py, addons/labs/sites/x86_64.py, addons/labs/sites/flow.py,
addons/labs/sites/scan.py, inferior/elf/images.py.
"""

import os
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gdbheapx
from gdbheapx.addons.labs.sites import join
from gdbheapx.addons.labs.sites import scan as code
from gdbheapx.addons.labs.sites.flow import NUMBER, Flow, FlowFollower, Instruction, Pointers, Value
from gdbheapx.addons.labs.sites.x86_64 import READER, READERS, Operand, decode_instruction
from gdbheapx.analysis.addon_answers import ADDRESS, BEGIN, BEYOND, CHAIN, ITSELF, PUSHED, TREE, Site, Word
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.census.world import Signature
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.base import Module
from gdbheapx.inferior.target import open_elf_target
from tests.support import pages
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx
from tests.support.unchanged import unchanged

pytestmark = pytest.mark.once  # capstone is in no image
CLASSES = ("shop::Car", "Holder<int, 5>", "(anonymous namespace)::Hidden")
MODULE = Module("/bin/app", 0, True, None, None)


class Nothing(Pointers):
    """A file that tells nothing but which argument functions return."""

    def __init__(self, given: Mapping[int, int]) -> None:
        self._given = given

    def at(self, address: int) -> None:
        return None

    def pointed_address(self, address: int) -> None:
        return None

    def ends(self, target: object, slot: object) -> bool:
        return False

    def gives(self, target: Optional[int], slot: object) -> Optional[int]:
        return self._given.get(target or 0)



def flow(*instructions: str, gives: Mapping[int, int] = {}) -> Flow:
    """Of a function whose instructions have four bytes each, from 0x1000 on."""
    end = 0x1000 + 4 * len(instructions)
    listed: Sequence[Instruction] = [
        (0x1000 + 4 * at, 4, list(decode_instruction(0x1000 + 4 * at, 4, *(text.split(" ", 1) + [""])[:2]))) for at, text in enumerate(instructions)
    ]
    return FlowFollower(READER, 0x1000, end, Nothing(gives)).follow(listed)


def test_a_size_is_followed_to_its_call() -> None:
    """A number in a register, through the stack, and not beyond a call that may change it."""
    made = flow("push rbx", "mov dword ptr [rsp - 8], edi", "mov ebx, 0x38", "mov edi, ebx", "call 0x9000", "call 0x9000", "ret")
    assert made.calls[0].arguments[0] == Value(NUMBER, 0, 0x38)
    assert made.calls[1].arguments[0].root[0] == "unknown"


def test_where_ways_meet_only_what_they_share_is_known() -> None:
    """Two sizes on two ways are no size: one or the other, and that only as long as nothing is added."""
    made = flow("test rsi, rsi", "je 0x1010", "mov edi, 8", "jmp 0x1014", "mov edi, 16", "call 0x9000", "ret")
    assert made.calls[0].arguments[0].root[0] == "either" and made.merged_numbers == [frozenset({8, 16})]


def test_code_behind_a_function_that_comes_back_loses_nothing() -> None:
    """A way that is seldom taken stands behind the return and jumps back: the register that keeps the argument is no loop's."""
    made = flow("mov rbx, rdi", "test rsi, rsi", "je 0x101c", "mov edi, 24", "call 0x9000", "mov qword ptr [rax], rbx", "ret", "jmp 0x100c")
    assert [value for _, value, _, _ in made.stores] == [Value(("argument", 0), 1, 0)]


def test_where_malloc_gave_none_there_is_no_block() -> None:
    """The way on which the pointer is 0 does not end what is known of the other: a block behind a head of 8 bytes."""
    asks = ("call 0x9000", "mov rbx, rax", "test rax, rax", "je 0x1018")
    made = flow(*asks, "add rbx, 8", "jmp 0x101c", "call 0x9100", "mov rax, rbx", "ret")
    assert made.returned == {Value(("result", 0x1000), 1, 8)}


def test_a_function_that_returns_what_it_got_is_looked_through() -> None:
    """As memcpy does: its result is the block."""
    made = flow("call 0x9000", "mov rdi, rax", "call 0x9008", "mov qword ptr [rax + 8], 1", "ret", gives={0x9008: 0})
    assert made.stores[0][0] == Value(("result", 0x1000), 1, 8)


def test_a_loop_forgets_what_it_writes() -> None:
    """A size that grows from turn to turn is unknown, one that stays is known."""
    made = flow("mov edi, 8", "mov ebx, 24", "add rdi, 8", "call 0x9000", "mov rdi, rbx", "call 0x9000", "jne 0x1008", "ret")
    assert made.calls[0].arguments[0].root[0] == "unknown"
    assert made.calls[1].arguments[0] == Value(NUMBER, 0, 24)


def test_what_does_not_settle_soon_is_lost() -> None:
    """Numbers that go from register to register, one with each turn of a loop: more turns than are followed."""
    names = ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "rbx", "r12", "r13", "r14"]
    loop = 0x1000 + 4 * len(names)
    turn = ["mov %s, %s" % pair for pair in zip(names, names[1:])]
    made = flow(*("mov %s, %d" % (name, 8 * at) for at, name in enumerate(names)), *turn, "mov qword ptr [rbp], rdi", "jne 0x%x" % loop, "ret")
    assert [value.root[0] for _, value, _, _ in made.stores] == ["unknown"]


def test_an_argument_that_is_handed_on_shows() -> None:
    """So a wrapper is known: its size is its own argument, what it returns is what it got."""
    made = flow("mov eax, 1", "test rdi, rdi", "cmove rdi, rax", "jmp 0x9000")
    assert made.calls[0].arguments[0].root == ("argument", 0) and made.returned == {Value(("result", 0x100C), 1, 0)}


def test_two_pointers_are_stored_by_one_vector() -> None:
    """As compilers do it with a vtable and the member behind it."""
    made = flow("call 0x9000", "lea rdx, [rip + 0x100]", "movq xmm0, rdx", "punpcklqdq xmm0, xmm1", "movups xmmword ptr [rax], xmm0", "ret")
    assert (Value(("result", 0x1000), 1, 0), Value(NUMBER, 0, 0x1108)) in [store[:2] for store in made.stores]


def test_memory_of_a_thread_is_no_place_here() -> None:
    """An operand with a segment register is not followed."""
    assert decode_instruction(0, 9, "mov", "rax, qword ptr fs:[0x28]")[0].first == Operand("other", "", 0x28)


def test_other_machines_have_no_reader() -> None:
    """Nothing is known of their code."""
    assert "i386" not in READERS


def _row(name: str, sure: str, size: int) -> CensusRow:
    return CensusRow(signature=name, module="app", sure=sure, size_bytes=None, blocks=9, bytes=9 * size, share_percent=1.0, sample=None)


def test_size_alone_makes_no_candidate() -> None:
    """It is counted; an address that the blocks have with a size that no block has is not taken either."""
    vtable = (Word(0, ADDRESS, 0x5010),)
    small, large = (Site(MODULE, start, None, start + 8, size, words=vtable) for start, size in ((0x1000, 40), (0x2000, 400)))
    samples = [(0x9000, (0x5010).to_bytes(8, "little") + bytes(32))]
    found = join.find_row_candidates(_row("Item", "exact", 40), {0x5010: [small, large]}, [small, large], {40: 9}, samples, False)
    assert [(one.address, one.why) for one in found.sites] == [(0x1000, [join.STORES % 0, join.SIZE])]
    found = join.find_row_candidates(_row("string", "shape", 40), {}, [small, large], {40: 9}, samples, False)
    assert (found.sites, found.size_functions) == ([], 1)


def test_a_pointer_into_the_block_itself_ties_but_not_that_of_a_string() -> None:
    """A header that points behind itself is this function's; each std::string points 16 bytes behind itself."""
    own = Site(MODULE, 0x1000, "make", 0x1008, None, words=(Word(8, ITSELF, 19),))
    string = Site(MODULE, 0x2000, "other", 0x2008, None, words=(Word(0, ITSELF, 16),))
    samples = [(at, (at + 16).to_bytes(8, "little") + (at + 19).to_bytes(8, "little")) for at in (0x9000, 0x9100, 0x9200)]
    found = join.find_row_candidates(_row("text", "exact", 40), {}, [own, string], {40: 9}, samples, False)
    assert [(one.function, one.why) for one in found.sites] == [("make", [join.INNER % 8])]
    found = join.find_row_candidates(_row("text", "exact", 40), {}, [own, string], {40: 9}, samples[:2], False)
    assert not found.sites  # two may be by chance


def test_a_block_that_is_put_before_others_is_tied_by_its_link() -> None:
    """As entries of hash tables are; a link at another place, or to blocks of another sort, ties nothing."""
    links = ((0x1000, 16), (0x2000, 8))
    first, second = (Site(MODULE, start, None, start + 8, 24, words=(Word(at, PUSHED, 0),)) for start, at in links)
    chain = [0x9000, 0x9100, 0x9200, 0x9300]
    samples = [(at, bytes(8) + (0x7000).to_bytes(8, "little") + after.to_bytes(8, "little")) for at, after in zip(chain, [*chain[1:], 0])]
    is_one = set(chain).__contains__
    found = join.find_row_candidates(_row("entry", "shape", 24), {}, [first, second], {24: 4}, samples, False, is_one)
    assert [(one.address, one.why) for one in found.sites] == [(0x1000, [join.PUSHES % 16, join.SIZE])]
    assert not join.find_row_candidates(_row("entry", "shape", 24), {}, [first], {24: 4}, samples[-2:], False, is_one).sites  # one link is none
    third = first._replace(start=0x3000, size_bytes=None)
    for sizes, starts in (({24: 4}, [0x1000]), ({24: 4, 40: 1}, [0x1000, 0x3000])):  # it asks for what differs, so not only for 24 bytes
        found = join.find_row_candidates(_row("entry", "shape", 24), {}, [first, third], sizes, samples, False, is_one)
        assert [one.address for one in found.sites] == starts


def test_a_link_leads_to_blocks_that_are_not_among_those_looked_at() -> None:
    """Of a large heap a part is looked at: what a link leads to is asked of the graph. Nothing is a block of its row where there is none."""
    graph = SimpleNamespace(find={0x9000: (0, 0), 0x9008: (0, 8), 0x9100: (1, 0), 0x9200: (7, 0)}.get)
    reach, names = SimpleNamespace(graph=graph, numbers=SimpleNamespace(blocks=2)), [Signature("entry", "app", "shape"), None]
    told: Any = SimpleNamespace(reach=reach, labels=[1, 2], names=names)
    asked = join._make_row_test(_row("entry", "shape", 24), told)
    assert [asked(address) for address in (0x9000, 0x9008, 0x9100, 0x9200, 0x9300, -8, 1 << 70)] == [True] + [False] * 6
    assert not join._make_row_test(_row("entry", "shape", 24), None)(0x9000)


@given(st.sampled_from((ADDRESS, ITSELF, PUSHED, BEGIN, BEYOND)), st.integers(-(1 << 70), 1 << 70), st.integers(-300, 300), st.binary(max_size=48))
def test_whatever_code_and_memory_have_there_is_an_answer(kind: str, value: int, offset: int, data: bytes) -> None:
    """Numbers in damaged code, or code that was not understood, may be any; a block may not be readable to its end."""
    words = (Word(offset, kind, value), Word(0, BEYOND, -value), Word(8, BEGIN, value))
    site = Site(MODULE, 0x1000, None, 0x1008, None, words=words, loose=(value,))
    for module in ("app", "python"):
        row = _row("x", "exact", 40)._replace(module=module)
        join.find_row_candidates(row, {value: [site], 0: [site]}, [site], {40: 9}, [(0x9000, data), (0, b"")], False)


def test_there_is_room_for_code_or_no_answer(lasting: Lasting, live: str, reads_code: None) -> None:
    """The process that is looked at may be in the same control group: the kernel would end one of both."""
    target = open_elf_target(pid=lasting.of(live, classes).pid)
    with pytest.raises(HeapxError, match="memory") as raised:
        code.read_object_code(target, 1 << 20)
    assert raised.value.code == "out-of-memory" and code.read_object_code(target, 1 << 40)[0]


def test_a_block_that_names_its_begin_is_tied_wherever_that_stands() -> None:
    """As pages of SQLite: the size of what stands before differs from program to program."""
    words = (Word(0, BEGIN, 8), Word(8, BEYOND, 56))
    page = Site(MODULE, 0x1000, None, 0x1008, None, words=words)
    ties = [(at, bytes(64) + (at + 8).to_bytes(8, "little") + (at + 64 + 56).to_bytes(8, "little")) for at in (0x9000, 0xA000)]
    other = [(at, bytes(64) + (at + 8).to_bytes(8, "little") + (at + 64 + 40).to_bytes(8, "little")) for at in (0x9000, 0xA000)]
    found = join.find_row_candidates(_row("page", "exact", 4096), {}, [page], {4096: 2}, ties, False)
    assert [(one.address, one.why) for one in found.sites] == [(0x1000, [join.BEGINS % 64])]
    assert not join.find_row_candidates(_row("page", "exact", 4096), {}, [page], {4096: 2}, other, False).sites


def test_a_type_of_python_may_be_stored_into_what_was_not_followed() -> None:
    """The function counts, for it asks for memory, too; not for what is no object of Python."""
    site = Site(MODULE, 0x1000, "PyThing_New", 0x1008, None, loose=(0x5010,))
    samples = [(0x9000, bytes(24) + (0x5010).to_bytes(8, "little"))]
    row = _row("thing", "exact", 40)
    found = join.find_row_candidates(row._replace(module="python"), {0x5010: [site]}, [site], {40: 9}, samples, False)
    assert [one.function for one in found.sites] == ["PyThing_New"]
    assert not join.find_row_candidates(row, {0x5010: [site]}, [site], {40: 9}, samples, False).sites


def test_nodes_are_told_by_what_links_them_and_by_size() -> None:
    """Nodes of several containers stand in one row: each size has its own candidates."""
    sites = [
        Site(MODULE, start, None, start + 8, size, link)
        for start, size, link in ((0x1000, 48, TREE), (0x2000, 80, TREE), (0x3000, 48, CHAIN), (0x4000, 48, None))
    ]
    row = _row("node of a map or set", "shape", 56)
    found = join.find_row_candidates(row, {}, sites, {56: 9, 88: 1}, [], False)
    assert [one.address for one in found.sites] == [0x1000, 0x2000]
    assert [one.address for one in join.at_size(row, found.sites, 56, False)] == [0x1000]


def test_a_jump_back_to_a_return_is_no_loop() -> None:
    """What is returned there is still known: so malloc's own caller is seen to hand its result on."""
    made = flow("call 0x9000", "mov rbx, rax", "test rax, rax", "je 0x101c", "mov rax, rbx", "pop rbx", "ret", "call 0x9004", "jmp 0x1010")
    assert Value(("result", 0x1000), 1, 0) in made.returned


def test_what_a_list_of_free_ones_may_give_is_what_malloc_gives() -> None:
    """A block from one or the other is followed as malloc's."""
    made = flow("mov rax, qword ptr [rdi]", "test rax, rax", "jne 0x1010", "call 0x9000", "mov qword ptr [rax], 0x7777", "ret")
    assert made.stores[-1][0] == Value(("result", 0x100C), 1, 0)


@pytest.fixture
def reads_code() -> None:
    """Where the test runs, code can be taken apart."""
    pytest.importorskip("capstone")
    if platform.machine() != "x86_64":
        pytest.skip("no other machine's code is read")


def classes(stage: Stage) -> Process:
    """A program with some classes, each made by main alone."""
    return stage.start("census", flags=("-O2", "-s"))


def listed(process: Process) -> List[Dict[str, Any]]:
    """The rows of the census of its core, which several tests compare with."""
    if "sites" not in process.told:
        process.told["sites"] = heapx(process.target("core"), "census", "--sites", "--json").data["rows"]
    return list(process.told["sites"])


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-no-pie", "-fno-pie", "-s")], ids=" ".join)
def test_the_function_that_makes_a_class_is_found(stage: Stage, reads_code: None, flags: Sequence[str]) -> None:
    """Each class of the program is made by main alone: it is the one candidate, by its name or by where it begins."""
    process = stage.start("census", flags=flags)
    data = heapx(process.target("live"), "census", "--sites", "--json").data
    rows = {row["signature"]: row["sites"] for row in data["rows"]}
    found = [rows[name] for name in CLASSES]
    assert [len(sites) for sites in found] == [1, 1, 1]
    assert "-s" in flags or {site["function"] for sites in found for site in sites} == {"main"}
    assert len({site["address"] for sites in found for site in sites}) == 1


def test_all_is_read_in_the_one_stop(stage: Stage, live: str, reads_code: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends when its code is to be read: the answer is the same, for its memory was copied while it stood still."""
    from gdbheapx.addons.labs.sites import join as find

    process = classes(stage)
    before = gdbheapx.open(pid=process.pid).ask("census", "--sites")
    read = find.scan_code

    def ended(*given: Any) -> Any:
        process.popen.kill()
        process.popen.wait()
        return read(*given)

    monkeypatch.setattr(find, "scan_code", ended)
    after = gdbheapx.open(pid=process.pid).ask("census", "--sites")
    assert process.popen.returncode and not after.is_partial and after.target["stops"] == 1
    assert after.document()["data"] == before.document()["data"]
    assert any(row["sites"] for row in after.document()["data"]["rows"])


def test_it_costs_the_process_nothing(stage: Stage, live: str, reads_code: None) -> None:
    """No page, page table or page fault more."""
    process = classes(stage)
    with unchanged(process.pid):
        assert heapx(process.target(live), "census", "--sites", "--json").code == 0


def test_without_a_copy_there_is_no_answer(lasting: Lasting, live: str, reads_code: None) -> None:
    """A process does not stand still for as long as its code takes: one line says so, and it runs on."""
    process = lasting.of(live, Stage.start, "recorder", "2", "50000", "5")
    outcome = heapx(process.target(live), "census", "--sites", "--json", env={"GDBHEAPX_MEMORY": "24000000"})
    assert (outcome.code, outcome.envelope["error"]["code"]) == (1, "not-copied")


def test_no_time_is_no_answer(lasting: Lasting, kind: str, reads_code: None) -> None:
    """Where half of the code was read one candidate may be one of many: that is not told."""
    target = lasting.of(kind, classes).target(kind)
    outcome = heapx(target, "--max-seconds", "0.3", "census", "--sites", "--json")
    assert (outcome.code, outcome.envelope["error"]["code"]) == (1, "stopped-early")


def test_what_cannot_be_is_said_before_a_process_is_stopped(lasting: Lasting, live: str) -> None:
    """Options that go with rows of another kind."""
    target = lasting.of(live, classes).target(live)
    for words in (("census", "--sites", "--by", "size"), ("report", "--sites"), ("report", "--page", "--sites", "--no-deep")):
        outcome = heapx(target, *words, "--json")
        assert outcome.envelope["error"]["code"] == "usage" and not outcome.envelope["target"]["stops"]


def test_sql_has_what_the_census_has(lasting: Lasting, core: str, reads_code: None) -> None:
    """A row of the table for each candidate of each row; a join with the classes has the bytes."""
    pytest.importorskip("duckdb")
    process = lasting.of(core, classes)
    sql = "SELECT sites.*, bytes FROM sites LEFT JOIN classes USING (signature, module) ORDER BY signature, module, address"
    found = heapx(process.target(core), "query", sql, "--json").data["rows"]
    assert found and found == [
        {
            "bytes": row["bytes"],
            "signature": row["signature"],
            "module": row["module"],
            "function": site["function"],
            "site_module": site["module"],
            **{name: site[name] for name in ("address", "offset", "calls", "is_open")},
            "sizes_bytes": site["sizes"],
            "why": "; ".join(site["why"]),
        }
        for row in sorted(listed(process), key=lambda row: (row["signature"] or "", row["module"]))
        for site in sorted(row["sites"], key=lambda site: int(site["address"], 16))
    ]


def test_the_page_has_what_the_census_has(lasting: Lasting, core: str, reads_code: None, tmp_path: Path) -> None:
    """With the option alone, of each row that is shown; every block is read for it."""
    pytest.importorskip("jinja2")
    process, path = lasting.of(core, classes), tmp_path / "page.html"
    target = process.target(core)
    census = heapx(target, "report", "--html", str(path), "--sites", "--json").data["page"]["census"]
    told = {row["signature"]: row["sites"] for row in listed(process) if row["sites"]}
    assert {row["signature"]: row["sites"] for row in census["sites"]["rows"] if row["sites"]} == told
    text = "".join(pages.check(path.read_text()).text)
    assert "Candidates by the program's code, no stack" in text and all("+0x%x" % sites[0]["offset"] in text for sites in told.values())
    assert heapx(target, "report", "--deep", "--page", "--json").data["page"]["census"]["sites"] is None


ASKING = [("census", "--sites"), ("query", "SELECT function FROM sites"), ("report", "--page", "--sites")]


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_what_is_lacking_is_said_before_a_process_is_stopped(lasting: Lasting, live: str, tmp_path: Path, words: Sequence[str]) -> None:
    """Without the library that takes code apart: one line with the next step."""
    pytest.importorskip("duckdb")
    (tmp_path / "capstone.py").write_text("raise ImportError")
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    outcome = heapx(lasting.of(live, classes).target(live), *words, "--json", env=env)
    assert (outcome.code, outcome.envelope["error"]["code"]) == (1, "missing-package") and "gdbheapx[sites]" in outcome.stderr
    assert not outcome.envelope["target"]["stops"] and len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_a_snapshot_has_no_code(lasting: Lasting, core: str, tmp_path: Path, words: Sequence[str]) -> None:
    """One line says so, and what to ask instead."""
    pytest.importorskip("duckdb")
    file = str(tmp_path / "one.snap")
    assert heapx(lasting.of(core, classes).target(core), "snapshot", file).code == 0
    outcome = heapx(["--snapshot", file], *words, "--json")
    assert (outcome.code, outcome.envelope["error"]["code"]) == (1, "not-in-snapshot")
