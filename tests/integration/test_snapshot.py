"""`snapshot`, what `--snapshot FILE` answers, and `diff`: held against the process or core that it was taken of.

Files: report/analysis_text.py, snapshot/take.py.
"""

import json
import os
import random
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Tuple

import pytest

from gdbheapx.common.errors import HeapxError
from gdbheapx.snapshot import container
from tests.support.bare import doorless
from tests.support.jemallocs import contents
from tests.support.processes import Lasting, Stage
from tests.support.tool import heapx, in_gdb

pytestmark = pytest.mark.image  # types are read back by what typing of its Python tells

COMMANDS = (
    "arenas", "bins", "tcache", "tunables", "tickers", "decay", "malloc-info", "malloc-stats", "chunks --histogram", "report --deep",
    "pins", "pins --limit 2", "census", "census --by module", "census --by size", "census --like same", "leaks", "leaks --limit 1",
    "leaks --list", "leaks --interior-holds", "leaks --no-weak", "owners", "owners --depth 3 --wide", "owners --of placed",
    "owners --limit 2", "owners --depth 7 --limit 100 --wide", "export --format folded", "export --format folded --of census",
)
OF_GRAPH = (
    *("owners", "owners --depth 5", "owners --of placed", "leaks --list", "leaks --no-weak", "export --format folded"),
    *("refs 0x100000000020", "whatis 0x100100000010", "refs 0x100300002000"),
)
ADDRESS = re.compile(r"0x[0-9a-f]{9,16}")


HEAD = re.compile("(?:Snapshot|Core|Process|Command|Read) ")
"""What `report` begins with: which file or process, when."""


def bare(text: str) -> List[str]:
    """Lines without addresses, which a snapshot moves, and without what depends on the moment. A snapshot compares contents, which `report`
    and `pins` alone do not."""
    text = doorless(text.replace("the same text", "text"))
    kept = [line for line in text.split("\n") if "PSS" not in line and "pauses the process" not in line and not HEAD.match(line)]
    return [re.sub("[ -]+", " ", ADDRESS.sub("ADDRESS", line)) for line in kept]


def without_types(text: str) -> str:
    """The table of owners without what the blocks are: a snapshot knows more of them."""
    lines = text.split("\n")
    head = next((line for line in lines if line.startswith("owner ") and line.rstrip().endswith("  type")), None)
    return text if head is None else "\n".join(line[: head.index("  type")] if line not in lines[: lines.index(head)] else line for line in lines)


def untyped(text: str) -> str:
    """The JSON of owners without the same."""
    return re.sub(r', "signature": ("(?:[^"\\\\]|\\\\.)*"|null)(?=[,}])', "", text)


@pytest.mark.parametrize(
    "kind, way",
    [("live", "glibc"), pytest.param("core", "jemalloc", marks=pytest.mark.once)],  # each kind, each allocator
)
def test_it_answers_as_its_target(stage: Stage, way: str, kind: str, tmp_path: Path) -> None:
    """Every command that needs no memory says the same of the file, of a process in text, of a core in JSON, and with its exit code."""
    target, path = contents(stage, way).target(kind), str(tmp_path / "one.snap")
    made = heapx(target, "snapshot", path, "--json")
    assert made.code == 0, made.stderr
    assert made.data["file_bytes"] == os.path.getsize(path) < 200_000 and stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for command in COMMANDS:
        words = [*command.split(), *(["--json"] if kind == "core" else [])]
        whole, kept = heapx(target, *words), heapx(["--snapshot", path], *words)
        assert kept.code == whole.code, (command, kept.stderr, whole.stderr)
        assert kept.stderr.split(";")[0] == whole.stderr.split(";")[0], command
        if kind == "core":
            whole_data, data = (json.dumps(one.envelope["data"]) for one in (whole, kept))
            assert bare(untyped(data)) == bare(untyped(whole_data)), command
        elif "report" not in command:  # what is in RAM changes while a process sleeps
            assert bare(without_types(kept.stdout.decode())) == bare(without_types(whole.stdout.decode())), command
    envelope = heapx(["--snapshot", path], "arenas", "--json").envelope
    assert (envelope["target"]["kind"], envelope["target"]["snapshot"]) == ("snapshot", path) and envelope["allocators"]


def test_by_a_url(stage: Stage, core: str, tmp_path: Path) -> None:
    """A URL stands for the file where it is written, asked, compared and listed; the answers are the file's."""
    pytest.importorskip("fsspec", reason="URLs require fsspec")
    target, path = contents(stage, "glibc").target(core), str(tmp_path / "one.snap")
    url = "file://" + path
    assert heapx(target, "snapshot", url, "--json").data["file_bytes"] == os.path.getsize(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.listdir(tmp_path) == ["one.snap"]
    for words in ("report", "census"):
        of_url, of_path = (doorless(json.dumps(heapx(["--snapshot", one], words, "--json").data)) for one in (url, path))
        assert of_url == of_path
    assert heapx([], "diff", path, url, "--json").data["states"] == heapx([], "diff", path, path, "--json").data["states"]
    assert heapx([], "snapshot", "--show", url).stdout == heapx([], "snapshot", "--show", path).stdout
    lacks = heapx(["--snapshot", url + ".none"], "report")
    assert lacks.code == 1 and len(lacks.stderr.splitlines()) == 1 and lacks.stdout == b""


@pytest.mark.once  # the tool's own sentences
@pytest.mark.parametrize(
    "words, said",
    [
        ("check", "a snapshot does not answer `check`"),
        ("whatis 0x5", "no block in use has the address 0x5 in this snapshot"),
        ("refs 0x5", "no block in use has the address 0x5"),
        ("export --format pprof --of profile -o other", "a snapshot has no memory, and this needs some"),
        ("leaks --weak --allocator glibc", "the allocators together"),
        ("export --format csv", "snapshots contain only used blocks"),
        ("trim --dry-run", "a snapshot does not answer `trim`"),
        ("chunks", "only with --histogram"),
        ("arenas --allocator glibc", "the allocators together"),
        ("owners --of nobody", "no used block or symbol matches"),
        ("snapshot other", "a snapshot does not answer `snapshot`"),
        ("doctor", "a snapshot does not answer `doctor`"),
    ],
)
def test_what_needs_memory_is_refused(lasting: Lasting, core: str, words: str, said: str) -> None:
    """One line: why, and what to do."""
    process = lasting.of(core, contents, "glibc")
    path = process.folder / "one.snap"
    assert path.exists() or heapx(process.target(core), "snapshot", str(path)).code == 0
    outcome = heapx(["--snapshot", str(path)], *words.split())
    assert outcome.code == 1 and said in outcome.stderr and outcome.stderr.count("\n") == 1 and ";" in outcome.stderr


def test_without_names(stage: Stage, live: str, tmp_path: Path) -> None:
    """Names and places stay here; figures go."""
    process, paths = contents(stage, "glibc"), [str(tmp_path / name) for name in ("with", "without")]
    heapx(process.target("live"), "snapshot", paths[0])
    heapx(process.target("live"), "snapshot", paths[1], "--no-names")
    shown = [heapx([], "snapshot", "--show", path).stdout.decode() for path in paths]
    shown.append(heapx(["--snapshot", paths[1]], "report", "--page", "--json").stdout.decode().replace(paths[1], ""))
    for name in ("contents", "placed", "libc.so.6"):
        assert name in shown[0].split("\n")
        assert not [text for text in shown[1:] if name in re.split(r"[^\w.]+", text.replace("the same contents", ""))]
    maps = {line.split("-")[0] for line in Path("/proc/%d/maps" % process.pid).read_text().split("\n")}
    assert not [start for start in maps if len(start) > 8 and any(start in text for text in shown)]
    whole, bare_ = (heapx(["--snapshot", path], "census", "--json").data for path in paths)
    assert [(row["blocks"], row["bytes"], row["sure"]) for row in whole["rows"]] == [(row["blocks"], row["bytes"], row["sure"]) for row in bare_["rows"]]


def test_diff(stage: Stage, live: str, tmp_path: Path) -> None:
    """Of snapshots, cores and processes; growth ends with the code that was asked for."""
    # more than all file pages that a process has here: how many of them are in RAM differs from start to start
    small, large = stage.start("owning", "10", "0"), stage.start("owning", "110000", "0")
    paths = [str(tmp_path / name) for name in ("old", "new")]
    for process, path in zip((small, large), paths):
        assert heapx(process.target("live"), "snapshot", path).code == 0
    core = large.target("core")[-1]
    outcome = heapx([], "diff", *paths, "--json")
    data = outcome.data
    assert data["verdict"]["code"] == "used-grew" and data["growth_bytes"] > 3_000_000
    used = [heapx(one.target("live") if one is small else ["--core", core], "arenas", "--json").data["totals"]["glibc"]["used_bytes"] for one in (small, large)]
    row = next(one for one in data["states"] if (one["what"], one["whose"]) == ("used", "glibc"))
    assert [row["old_bytes"], row["new_bytes"], row["diff_bytes"]] == [*used, used[1] - used[0]]
    for operands in ([paths[0], core], [str(small.pid), paths[1]], [str(small.pid), core]):
        other = heapx([], "diff", *operands, "--json").data
        assert (other["growth_bytes"], len(other["classes"])) == (data["growth_bytes"], len(data["classes"]))
    of_new: Dict[Tuple[str, str], int] = {}
    for one in heapx(["--snapshot", paths[1]], "census", "--by", "owner", "--json").data["rows"]:
        key = one["owner"], one["signature"] or "not named"
        of_new[key] = of_new.get(key, 0) + one["bytes"]
    named = [one for one in data["held"] if not one["whose"].startswith("[") and one["only"] != "old"]
    assert named and all(of_new[one["whose"], one["what"]] == one["new_bytes"] for one in named), "as census tells it"
    text = heapx([], "diff", *paths).stdout.decode()
    assert "class of owner" in text and re.search(r"^new: .* later$", text, re.MULTILINE)
    assert "Growing: memory in use" in text and re.search(r"^ *\+[\d.,]+ \w+ +.* -> .* +\+[\d,]+  ", text, re.MULTILINE)
    assert [heapx([], "diff", *paths, "--fail-on-growth", size).code for size in ("1K", "1G")] == [3, 0]
    assert heapx([], "diff", paths[1], paths[1], "--json").data["verdict"]["code"] == "same"


def test_mapped_chunks_are_held(live: str, tmp_path: Path) -> None:
    """They are in use and in no arena: what is kept is what the arenas have beside what is in use, and never below 0."""
    words = [sys.executable, "-c", "a = [bytes(1 << 20) for _ in range(30)]; print(flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        data = heapx([], "diff", str(process.pid), str(process.pid), "--json").envelope["data"]
        process.kill()
    states = {one["what"]: one["new_bytes"] for one in data["states"] if not one["whose"]}
    parts = {one["what"]: one["new_bytes"] for one in data["states"] if one["whose"] == "glibc"}
    assert parts["mmapped"] >= 30 << 20 and states["in use"] == parts["used"] + parts["mmapped"]
    assert states["kept by the allocator"] == parts["system"] - parts["used"] >= 0


GROWS = """
import mmap, sys
for step in range(int(sys.argv[1])):
    kept = [[float(n), str(n)] for n in range(30000)]  # in the interpreter's pools
    mapped = mmap.mmap(-1, 14 << 20)
    mapped.write(bytes(range(1, 256)) * (len(mapped) // 255))
print("ready", flush=True)
input()
"""


@pytest.mark.once  # a sum of mappings
def test_growth_outside_malloc_fails_the_gate(stage: Stage, live: str, tmp_path: Path) -> None:
    """A service whose pools and mappings grow by 20 MB while malloc stands still: by default that is growth, of processes, snapshots and
    cores; `--of malloc` looks at malloc alone. A core against a process: what is not malloc's is unknown, which is no pass."""
    small, large = (stage.spawn([sys.executable, "-c", GROWS, steps]) for steps in ("0", "1"))
    for process in (small, large):
        process.wait_ready()
    paths = [str(tmp_path / name) for name in ("old", "new")]
    for process, path in zip((small, large), paths):
        assert heapx(process.target("live"), "snapshot", path).code == 0
    limit = ["--fail-on-growth", "15M"]
    assert heapx(large.target("live"), "diff", paths[0], *limit).code == 3, "the process that --pid names is the later side"
    cores = [one.target("core")[-1] for one in (small, large)]
    os.utime(cores[0], (1700000000, 1700000000))
    for target, operands in (([], paths), (["--core", cores[1]], cores[:1])):
        outcome = heapx(target, "diff", *operands, *limit, "--json")
        assert outcome.code == 3 and not outcome.envelope["partial"]
        data = outcome.envelope["data"]
        grown = {one["what"]: one["diff_bytes"] for one in data["growth"]["parts"]}
        assert data["growth"]["all_bytes"] > 15 << 20 and data["growth_bytes"] < 10 << 20, data["growth"]
        assert sum(size for name, size in grown.items() if "CPython" in name) > 3 << 20, grown
        assert data["verdict"]["code"] == "elsewhere-grew"
    assert data["old"]["taken"] == "2023-11-14T22:13:20Z"
    assert [heapx([], "diff", *paths, *limit, "--of", one).code for one in ("rss", "malloc")] == [3, 0]
    unknown = heapx([], "diff", paths[0], cores[1], *limit, "--json")
    assert unknown.code == 4 and "growth-unknown" in [one["code"] for one in unknown.envelope["problems"]]
    assert heapx([], "diff", paths[0], cores[1]).code == 0


def test_diff_inside_gdb_is_that_of_the_shell(stage: Stage, tmp_path: Path, kind: str) -> None:
    """OLD against what gdb has, process or core: the same parts, classes and owners."""
    process, old = stage.start("owning", "10", "0"), str(tmp_path / "old")
    assert heapx(stage.start("owning", "400", "0").target("live"), "snapshot", old).code == 0
    target = process.target(kind)
    outcome = in_gdb(target, ["heapx diff %s --json -o %s" % (old, tmp_path / "inside")])
    assert outcome.code == 0, outcome.stderr
    inside, outside = json.loads((tmp_path / "inside").read_text())["data"], heapx(target, "diff", old, "--json").envelope["data"]
    assert inside["classes"] and inside["verdict"]["code"] == outside["verdict"]["code"]
    for part in ("classes", "owners", "held", "leaks"):
        assert inside[part] == outside[part], part


@pytest.mark.once  # the tool's own sentences
def test_an_older_one_that_is_not_there_is_told_first(stage: Stage, live: str) -> None:
    """No snapshot is taken of the process for it."""
    from gdbheapx.snapshot import take

    outcome = heapx(stage.start("owning", "10", "0").target(live), "diff", "/nowhere", "--json")
    assert outcome.code == 1 and outcome.envelope["error"]["code"] == "file-not-found"
    for name in ("/nowhere", "1x"):
        with pytest.raises(HeapxError):
            take.check_source(name)
    take.check_source("1")


@pytest.mark.once  # of the file alone
def test_damaged_files_bring_no_traceback(stage: Stage, core: str, tmp_path: Path) -> None:
    """What passes the checksums was made by hand: every command still ends with an answer or one line."""
    path, rng = str(tmp_path / "one.snap"), random.Random(1)
    assert heapx(contents(stage, "glibc").target("core"), "snapshot", path).code == 0
    parts, values = container.read_file(path), [b"null", b"{}", b"[]", b'"x"', b"-1", b"1e9", b"true", b"4294967295"]
    for number in range(48):
        changed, of_graph = dict(parts), number % 2
        for name in ("models",) if of_graph else ("outcomes", "models"):
            data = bytearray(parts[name].bytes(path))
            begin = data.index(b'"graph":') if of_graph else 0
            for _times in range(3):
                places = [found.start() for found in re.finditer(rb"(?<=:)(\d+|null|true|\"[^\"]*\")(?=[,}])", bytes(data)) if found.start() > begin]
                at = rng.choice(places)
                end = re.compile(rb"[,}]").search(data, at)
                data[at : end.start()] = rng.choice(values)
            changed[name] = container.pack_part([bytes(data)])
        if of_graph and number % 4 == 1:
            changed["models"] = parts["models"]
            name = rng.choice([one for one in parts if one.startswith(container.STREAMS)])
            data = bytearray(parts[name].bytes(path))
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.randbytes(rng.randrange(1, 9))
            changed[name] = container.pack_part([bytes(data)])
        container.write_file(path, changed)
        words = rng.choice(OF_GRAPH if of_graph else COMMANDS).split()
        outcome = heapx(["--snapshot", path], *words)
        assert outcome.code in (0, 1, 3, 4) and "internal error" not in outcome.stderr and "Traceback" not in outcome.stderr, outcome.stderr


@pytest.mark.once  # the tool's own sentences
def test_rows_of_another_allocator(stage: Stage, core: str, tmp_path: Path) -> None:
    """A file made by hand that has glibc's rows under jemalloc's name: what would show them says so, in one line or as a partial report."""
    path = str(tmp_path / "one.snap")
    assert heapx(stage.start("recorder", "9", "1000", "3").target(core), "snapshot", path).code == 0
    parts = container.read_file(path)
    models = parts["models"].bytes(path).replace(b'"glibc"', b'"jemalloc"')
    container.write_file(path, {**parts, "models": container.pack_part([models])})
    for words, code in (("arenas", 1), ("tunables", 1), ("report", 4)):
        outcome = heapx(["--snapshot", path], words)
        said = outcome.stderr if code == 1 else outcome.stdout.decode()
        assert outcome.code == code and "records of another allocator" in said, outcome
        assert code == 4 or outcome.stderr.count("\n") == 1


WITHOUT_OFFSETS = """
from gdbheapx.app import cli
from gdbheapx.kernel.blocks.graph import Graph
from gdbheapx.snapshot import graph
pack, keep = Graph.pack, graph._keep_graph
Graph.pack = lambda self, moves, slots: pack(self, moves, False)

def keep_without(*given):
    model, streams = keep(*given)
    return model._replace(has_slots=False), streams

graph._keep_graph = keep_without
raise SystemExit(cli.main(%r))
"""
"""As earlier releases took snapshots."""


@pytest.mark.parametrize("with_offsets", [True, False])
def test_ways_to_a_block(stage: Stage, core: str, with_offsets: bool, tmp_path: Path) -> None:
    """`refs` and `whatis` say of a block what they say of it in the core; files of earlier releases do not tell offsets in blocks."""
    target, path = stage.start("owning", "300", "0").target("core"), str(tmp_path / "one.snap")
    if with_offsets:
        assert heapx(target, "snapshot", path, "--with-offsets").code == 0
    else:
        subprocess.run([sys.executable, "-c", WITHOUT_OFFSETS % ["--gdb", "none", *target, "snapshot", path]], check=True, timeout=120)
    shown = []
    for one in (target, ["--snapshot", path]):
        rows = heapx(one, "owners", "--depth", "3", "--json").data["owners"]
        blocks = [below for row in rows for child in row["children"] for below in [child, *child["children"]]]
        assert len(blocks) > 4
        chosen = [block["address"] for block in blocks[:4:3]]
        ways = [heapx(one, "refs", address, "--json").data for address in chosen]
        text = [heapx(one, "refs", address).stdout.decode() for address in chosen]
        held = [heapx(one, "whatis", address, "--json").data["held_by"] for address in chosen]
        shown.append((ways, text, held))
    (ways, text, held), (kept_ways, kept_text, kept_held) = shown
    assert bare(json.dumps(kept_held)) == bare(json.dumps(held)) or not with_offsets
    if with_offsets:
        assert [bare(one) for one in kept_text] == [bare(one) for one in text]
        return
    offsets = [step["offset"] for way in kept_ways for chain in way["chains"] for step in chain if not step["root"]]
    assert offsets and set(offsets) == {None} and not any(step["container"] for way in kept_ways for chain in way["chains"] for step in chain)
    usable = heapx(["--snapshot", path], "whatis", kept_held[0]["block"], "--json").data["used"]
    assert usable["offset"] == 0 and usable["usable_bytes"] == kept_ways[0]["size_bytes"]


def test_its_graph_is_small(stage: Stage, live: str, tmp_path: Path) -> None:
    """At most 16 bytes for each block in use, where pointers stand in their blocks included."""
    path = str(tmp_path / "one.snap")
    assert heapx(stage.start("owning", "20000", "0").target("live"), "snapshot", path).code == 0
    used = sum(row["blocks"] for row in heapx(["--snapshot", path], "census", "--json").data["rows"])
    assert used > 20_000 and os.path.getsize(path) < 16 * used


NO_ROOM_FOR_OWNERS = "from gdbheapx.analysis.reachability import heap_graph; heap_graph.LITTLE_BYTES = 0; from gdbheapx.app import cli; raise SystemExit(cli.main(%r))"


@pytest.mark.once  # the limit is the tool's own
def test_weak_pointers_are_kept_where_owners_have_no_room(stage: Stage, core: str, tmp_path: Path) -> None:
    """The second look's evidence is that of the core, though the graph is marked once more for the file."""
    target = stage.start("disguised").target(core)
    path, whole = str(tmp_path / "one.snap"), heapx(target, "leaks", "--json").data["classes"]
    blocks = sum(whole[name]["blocks"] for name in ("held", "maybe", "leaked"))
    assert {"masked", "unaligned"} <= set(whole["maybe"]["by_evidence"])
    words = [sys.executable, "-c", NO_ROOM_FOR_OWNERS % ["--gdb", "none", *target, "snapshot", path]]
    done = subprocess.run(words, env={**os.environ, "GDBHEAPX_MEMORY": str(50 * blocks)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 4 and "\nowners: " in done.stdout, done
    found = heapx(["--snapshot", path], "leaks", "--list", "--json", env={"GDBHEAPX_MEMORY": "1"})
    assert found.data["classes"] == whole and not found.envelope["partial"]
    assert len(found.data["blocks"]) == whole["maybe"]["blocks"] + whole["leaked"]["blocks"]
    assert "whatis 0x" in heapx(["--snapshot", path], "leaks").stdout.decode()


def test_owners_have_types(stage: Stage, live: str, tmp_path: Path) -> None:
    """The file tells of its owners what they are, as `owners` of the process does; so they stand in SQL."""
    path = str(tmp_path / "one.snap")
    body = "kept = {number: (str(number), [number]) for number in range(50000)}; print('ready', flush=True); input()"
    process = stage.spawn_ready([sys.executable, "-c", body])
    assert heapx(process.target(live), "snapshot", path).code == 0
    data = heapx(["--snapshot", path], "owners", "--depth", "2", "--json").data
    rows = [one for row in data["owners"] for one in (row, *row["children"])]
    what = {row["owner"]: row["signature"] for row in rows}
    assert what["__main__.kept"] == "dict of 50,000 entries" and {"type", "tuple"} <= set(what.values())
    suspect = data["suspects"][0]
    assert (suspect["owner"], suspect["signature"], suspect["accumulation"]["children"] > 50_000) == ("__main__.kept", what["__main__.kept"], True)
    alone = heapx(["--snapshot", path], "owners", "--of", suspect["accumulation"]["address"], "--json").data["owners"][0]
    assert alone["signature"] == "dict keys" and "__main__.kept, dict of 50,000 entries keeps" in heapx(["--snapshot", path], "owners").stdout.decode()
    rows_of_process = heapx(process.target(live), "owners", "--json").data["owners"]
    assert {row["owner"]: row["signature"] for row in rows_of_process[:3] if row["path"]}.items() <= what.items()
    pytest.importorskip("duckdb")
    sql = "select count(*) as n from owners where signature = 'dict of 50,000 entries'"
    assert heapx(["--snapshot", path], "query", sql, "--json").data["rows"][0]["n"] > 0
