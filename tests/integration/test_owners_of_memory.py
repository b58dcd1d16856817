"""Against a program that records what each owner alone keeps alive: `owners` and `refs`."""

import os
import re
import shutil
from typing import Any, Dict, List, NamedTuple, Sequence

import pytest

from tests.support.hidden import hidden
from tests.support.jemallocs import preloads
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import Outcome, heapx

pytestmark = pytest.mark.image  # where its libc keeps thread-local storage, and what its compiler calls variables

GLOBALS = ("g_table", "g_tree", "g_list", "g_vector", "g_one", "g_other", "g_mapping")
KINDS = {"stack": "thread", "register": "thread", "thread-local": "thread-local", "shared": "shared"}
LONG, STEPS = 1_000_000, 302
"""Links of a list, and the way to its last one: another link, 300 blocks, the root."""


class Owner(NamedTuple):
    """What one owner alone keeps."""

    address: int
    blocks: int
    bytes: int


class Told(NamedTuple):
    """What the program told."""

    owners: Dict[str, Owner]
    blocks: Dict[str, str]
    """Addresses by name, as words."""


def told(process: Process) -> Told:
    """The program's record."""
    lines = [line.split() for line in process.record().decode().splitlines()]
    owners = {name: Owner(int(address, 16), int(rest[0]), int(rest[1])) for what, name, address, *rest in lines if what == "owner"}
    return Told(owners, {name: address for what, name, address, *_ in lines if what == "block"})


def said_by(outcome: Outcome) -> List[str]:
    """Lines of its standard error, but for the progress that a busy machine shows."""
    return [line for line in outcome.stderr.splitlines() if not line.endswith(" s so far")]


def owning(stage: Stage, way: str = "glibc", long: int = 0, flags: Sequence[str] = ()) -> Process:
    """The program at rest, on glibc's malloc or jemalloc's."""
    env = preloads(way)
    return stage.start("owning", str(long), env=env, flags=flags)


def is_kept(name: str, row: Dict[str, Any], truth: Owner) -> bool:
    """The row's blocks and bytes are the owner's; a thread may have one or two blocks more, its dtv and the storage of an object
    that came later, which ld.so takes from the process's malloc, or one less, to which a call has left a pointer elsewhere: it reaches that
    one all the same."""
    more = row["retained_blocks"] - truth.blocks
    if more == -1 and KINDS.get(name) in ("thread", "thread-local"):
        return row["reached_blocks"] is not None and row["reached_blocks"] >= truth.blocks
    if more in (1, 2) and KINDS.get(name) == "thread-local":
        return row["retained_bytes"] <= truth.bytes + 1024
    return bool((row["retained_blocks"], row["retained_bytes"]) == truth[1:])


def row_of(name: str, truth: Owner, rows: List[Dict[str, Any]], named: bool) -> Dict[str, Any]:
    """The one owner that has this name, address or kind."""
    if name in GLOBALS:
        found = [one for one in rows if one["address"] and int(one["address"], 16) == truth.address]
        pattern = "%s in owning" % name if named else r"owning(-s)?\+0x[0-9a-f]+"
        assert found and found[0]["kind"] == "global" and re.fullmatch(pattern, found[0]["owner"]), (name, found)
    else:
        found = [one for one in rows if one["kind"] == KINDS[name] and is_kept(name, one, truth)]
    assert len(found) == 1, (name, truth, [(one["owner"], one["retained_blocks"], one["retained_bytes"]) for one in rows if one["kind"] in KINDS.values()])
    return found[0]


def check(process: Process, data: Any, named: bool) -> None:
    """Every owner keeps exactly its blocks; who shares reaches more than it keeps; what is lost is nobody's."""
    truth = told(process).owners
    lost = truth.pop("lost")
    assert (data["leaked"]["blocks"], data["leaked"]["bytes"]) == lost[1:]
    for name, one in truth.items():
        row = row_of(name, one, data["owners"], named)
        assert is_kept(name, row, one), (name, row)
        assert row["reached_blocks"] >= row["retained_blocks"] and row["reached_bytes"] >= row["retained_bytes"]
    both = row_of("g_one", truth["g_one"], data["owners"], named)
    # without symbols nothing tells that two pointers side by side are one variable's: each is an owner, and both are told as holders
    assert both["reached_blocks"] == truth["g_one"].blocks + (truth["shared"].blocks if named else 0)
    holders = sorted(row_of("shared", truth["shared"], data["owners"], named)["holders"])
    if named:
        assert [holder.replace(" in owning", "") for holder in holders] == ["g_one+0x8", "g_other+0x8"]
    else:
        assert abs(int(holders[1].split("+")[1], 16) - int(holders[0].split("+")[1], 16)) == truth["g_one"].address - truth["g_other"].address
    assert data["shared_bytes"] >= truth["shared"].bytes
    table = max(data["suspects"], key=lambda one: one["retained_bytes"])
    assert (table["retained_bytes"], table["accumulation"]["children"]) == (truth["g_table"].bytes, 512)
    assert all(one["share_percent"] >= 20 for one in data["suspects"])


@by_turns("way, flags", [("glibc", ()), ("jemalloc", ()), ("jemalloc", ("-s",)), ("glibc", ("-s",))])
def test_every_owner_keeps_what_it_recorded(stage: Stage, kind: str, way: str, flags: Sequence[str]) -> None:
    """A hash table, a tree with parent pointers, a doubly linked list, a vector, two that share, a mapping, a stack, a register, thread-local
    storage. Of a stripped program the figures are the same, owners are called by their places."""
    process = owning(stage, way, flags=flags)
    named = not flags and not hidden("symbols", "owners have no names")
    check(process, heapx(process.target(kind), "owners", "--limit", "100", "--json").data, named)


def test_one_owner(lasting: Lasting, core: str) -> None:
    """--of takes a name, its address or a block below it; each level adds up to no more than the one above; --depth says how many there are."""
    process = lasting.of(core, owning, "glibc")
    truth, target = told(process).owners["g_table"], process.target(core)
    words = ["0x%x" % truth.address, *([] if hidden("symbols", "no name can be asked for") else ["g_table"])]
    found = [heapx(target, "owners", "--of", word, "--depth", "3", "--limit", "1000", "--json").data["owners"][0] for word in words]
    assert found[0] == found[-1] and found[0]["retained_blocks"] == truth.blocks

    def below(row: Dict[str, Any]) -> int:
        for one in row["children"]:
            assert one["retained_bytes"] <= row["retained_bytes"]
        assert sum(one["retained_bytes"] for one in row["children"]) <= row["retained_bytes"]
        return 1 + max(map(below, row["children"]), default=-1)

    assert below(found[0]) == 3
    head = found[0]["children"][0]
    assert len(head["children"][0]["children"]) == 512
    inside = "0x%x" % (int(head["address"], 16) + 8)
    one = heapx(target, "owners", "--of", inside, "--json").data["owners"][0]
    assert (one["address"], one["retained_blocks"]) == (head["address"], truth.blocks)


@pytest.mark.once  # the tool's own sentences
def test_what_is_asked_for_is_not_there(lasting: Lasting, core: str) -> None:
    """One line each: an unknown name and a free address are no answer, a word that is no address is wrong usage."""
    target = lasting.of(core, owning, "glibc").target(core)
    for command, word, code, said in (
        ("owners --of", "nonsense", 1,  " owners` lists the owners"),
        ("owners --of", "4096", 1, "0x1000"),
        ("owners --of", "0x0g", 2, "is not an address"),
        ("refs", "0x1000", 1, " whatis 0x1000` says what is there"),
        ("refs", "no_such_name", 1, "is called no_such_name"),
        ("refs", "0x1ffffffffffffffff", 2, "is not an address"),
        ("refs 4096 --depth", "-1", 2, "-1 is not a number of 0 or more"),
        ("leaks --limit", "-1", 2, "-1 is not a number of 0 or more"),
        ("owners --limit", "many", 2, "many is not a number of 0 or more"),
    ):
        outcome = heapx(target, *command.split(), word)
        lines = said_by(outcome)
        assert (outcome.code, outcome.stdout, len(lines)) == (code, b"", 1), (command, word, outcome.stderr)
        assert said in outcome.stderr


def refs(process: Process, kind: str, name: str, *words: str) -> Dict[str, Any]:
    """Who holds the block that was recorded by this name."""
    data = heapx(process.target(kind), "refs", told(process).blocks[name], *words, "--json").data
    assert isinstance(data, dict) and data["address"] == told(process).blocks[name] and data["offset"] == 0
    return data


@pytest.mark.parametrize(
    "way, name, root, place",
    [
        ("jemalloc", "leaf", "g_tree in owning", ""),
        ("glibc", "mapped", "g_mapping in owning", "349"),
        ("jemalloc", "stacked", "stack of thread ", "449"),
        ("glibc", "local", "thread-local storage of thread ", "549"),
        ("glibc", "registered", "registers of thread ", "249"),
    ],
)
def test_the_way_back_to_a_root(lasting: Lasting, core: str, way: str, name: str, root: str, place: str) -> None:
    """A global by its name, a mapping under one, a stack, thread-local storage, a register: which element the block is, the one before it,
    and what holds all of them."""
    process = lasting.of(core, owning, way)
    data = refs(process, core, name, "--depth", "1000")
    chain = data["chains"][0]
    assert len(chain) == (3 if name == "mapped" else 2) and not any(step["left_out"] for step in chain)
    is_named = not (root.endswith("owning") and hidden("symbols", "roots have no names"))
    if is_named:
        assert chain[-1]["root"].startswith(root)
    form, holder = ("list", "mapping" if name == "mapped" else root) if place else ("tree", "g_tree")
    for element, at in ((data["element"], place), (chain[0]["element"], str(int(place) - 1) if place else "")):
        assert element.startswith("%s of the %s %s" % ("element " + at if at else "an element", form, holder if is_named else "")), element
    assert chain[-1]["signature"] is None and all(step["root"] is None for step in chain[:-1])
    assert {step["evidence"] for step in chain} == {"start"}
    if name == "mapped":
        assert "mapping 0x" in chain[-2]["signature"] and chain[-2]["offset"] == 0


@by_turns("flags", [("-O2",), ("-O0",), ("-O2", "-static-pie")])
def test_frames_and_thread_local_variables_have_names(stage: Stage, kind: str, flags: Sequence[str]) -> None:
    """A pointer in a stack names its frame, also below a signal handler; one in thread-local storage its variable."""
    process = stage.start("frames", flags=flags)
    blocks = dict(line.split() for line in process.record().decode().splitlines())
    numbers = {}
    for name, address in blocks.items():
        chains = heapx(process.target(kind), "refs", address, "--json").data["chains"]
        roots = [chain[-1]["root"] for chain in chains if len(chain) == 1]
        if name == "t_holder":
            assert any(re.fullmatch(r"thread-local storage of thread \d+.*, t_holder\+0x8 in frames\S*", root) for root in roots), roots
            continue
        found = [re.search(r"stack of thread \d+.*, frame (\d+), (\w+)[.\w]*\+0x[0-9a-f]+ in frames\S*$", root) for root in roots]
        numbers[name] = min((int(one.group(1)) for one in found if one is not None and one.group(2) == name), default=None)
        assert numbers[name] is not None, (name, roots)
    assert 0 < numbers["handles"] < numbers["calls_inner"] == numbers["calls_outer"] - 1


def test_a_place_in_a_stack_without_frames(stage: Stage, core: str) -> None:
    """Where nothing tells the frames, its distance from the stack pointer does."""
    process = stage.start("frames", flags=("-O2", "-fno-asynchronous-unwind-tables", "-static-pie", "-Wl,--no-eh-frame-hdr"))
    address = dict(line.split() for line in process.record().decode().splitlines())["calls_inner"]
    roots = [chain[-1]["root"] for chain in heapx(process.target(core), "refs", address, "--json").data["chains"]]
    assert any(re.search(r"stack of thread \d+.*, sp\+0x[0-9a-f]+$", root) for root in roots), roots


def test_a_lost_block_has_no_root(lasting: Lasting, core: str) -> None:
    """The chain ends at the block that was lost."""
    process = lasting.of(core, owning, "glibc")
    data = refs(process, core, "lost", "--depth", "100")
    assert data["evidence"] == "none" and [len(chain) for chain in data["chains"]] == [59]
    assert all(step["root"] is None for step in data["chains"][0])
    text = heapx(process.target(core), "refs", told(process).blocks["lost"]).stdout.decode()
    assert "leaked: unreachable" in text and "and no root" in text
    first = heapx(process.target(core), "refs", data["chains"][0][-1]["address"]).stdout.decode()
    assert "no references" in first


@pytest.mark.once  # the graph's own depth
def test_a_list_of_a_million(stage: Stage, core: str) -> None:
    """It is one step; of the long way to it the middle is left out, the root is shown, and how long it is. owners and leaks get to its end
    as well."""
    process = owning(stage, long=LONG)
    target, last = process.target(core), told(process).blocks["last"]
    lines = heapx(target, "refs", last, "--depth", "6").stdout.decode().splitlines()
    assert lines[1].startswith("It is element {:,} of the list ".format(LONG - 1)) and "element {:,} of".format(LONG - 2) in lines[4]
    assert "{} steps to a root".format(STEPS) in lines[3] and len([line for line in lines if "<-" in line]) == 6
    assert [line.strip() for line in lines if "not shown" in line] == ["... {} steps not shown: gdbheapx {} refs {} --depth 200".format(STEPS - 6, " ".join(target), last)]
    if not hidden("symbols", "roots have no names"):
        assert lines[-1].strip() == "<- g_long in owning"
    for depth in (1, 7, 1000):
        chain = refs(process, core, "last", "--depth", str(depth))["chains"][0]
        assert len(chain) == min(depth, 200) and chain[-1]["root"] and len(chain) + sum(step["left_out"] for step in chain) == STEPS
    address, kept = "0x%x" % told(process).owners["g_long"].address, told(process).owners["g_long"].blocks
    one = heapx(target, "owners", "--of", address, "--json").data["owners"][0]
    assert one["retained_blocks"] == kept >= LONG
    leaked = heapx(target, "leaks", "--no-weak", "--json").data["classes"]["leaked"]
    assert leaked["blocks"] == told(process).owners["lost"].blocks


# ---------------------------------------------------------------------------------------------------- forms


def test_fail_on_leak(stage: Stage, core: str) -> None:
    """Exit code 3 from so many leaked bytes on, with the same answer."""
    process = owning(stage)
    lost = told(process).owners["lost"].bytes
    for limit, code in ((lost + 1, 0), (lost, 3), (1, 3), ("1M", 0)):
        outcome = heapx(process.target(core), "leaks", "--fail-on-leak", str(limit), "--json")
        assert outcome.code == code and outcome.envelope["data"]["classes"]["leaked"]["bytes"] == lost
    assert heapx(process.target(core), "leaks", "--fail-on-leak", "much").code == 2


def test_what_was_not_read_may_hold(stage: Stage, core: str) -> None:
    """A core whose end is cut off has no stacks: what is leaked is so at most, each command says it, and it is no finding for CI."""
    process = owning(stage)
    whole = process.core()
    cut = whole.with_name("cut.core")
    shutil.copyfile(whole, cut)
    os.truncate(cut, whole.stat().st_size - (64 << 10))
    outcome = heapx(["--core", str(cut)], "leaks", "--fail-on-leak", "1", "--json")
    leaked = outcome.envelope["data"]["classes"]["leaked"]
    assert outcome.code == 4 and leaked["bytes"] and leaked["is_upper_bound"]
    assert heapx(process.target(core), "leaks", "--json").data["classes"]["leaked"]["is_upper_bound"] is False
    for words in ("leaks", "owners"):
        assert "eaked: at most " in heapx(["--core", str(cut)], words).stdout.decode(), words
        assert "at most" not in heapx(process.target(core), words).stdout.decode(), words


# ---------------------------------------------------------------------------------------------------- CPython

SCRIPT = """
import sys
class Session:
    def __init__(self, n):
        self.user, self.items = "user-%d" % n, [n, str(n)]
SESSIONS = {"session-%d" % n: Session(n) for n in range(120000)}
INDEX = [{"id": n, "text": "document %d " % n * 4} for n in range(80000)]
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
"""


def test_two_structures_of_python(stage: Stage, kind: str) -> None:
    """Both are suspects, and keep nine tenths of the heap together; each piles up at its own table."""
    process = stage.spawn_text("app.py", SCRIPT, ["/usr/bin/python3", "app.py"], {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "1"})
    data = heapx(process.target(kind), "owners", "--json").data
    suspects = data["suspects"]
    assert sum(one["share_percent"] for one in suspects) >= 90, suspects
    if len(suspects) == 1:  # from 3.14 on one dictionary owns both, and is said to divide
        parts = suspects[0]["accumulation"]["parts"]
        assert len(parts) == 2 and sum(one["share_percent"] for one in parts) >= 90
    else:
        assert len(suspects) == 2 and min(one["accumulation"]["children"] for one in suspects) >= 0.9 * 80000
    assert data["used"]["bytes"] > 50 << 20
    point = max(suspects, key=lambda one: one["retained_bytes"])["accumulation"]
    shown = heapx(process.target(kind), "owners", "--of", point["name"], "--json").data["owners"]
    assert point["retained_bytes"] <= shown[0]["retained_bytes"] < 1.01 * point["retained_bytes"], "the object, or the table that it has"
