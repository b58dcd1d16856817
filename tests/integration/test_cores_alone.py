"""Cores without the files of their machine, cores that were cut, cores that leave memory out: what is missing is said, nothing breaks.

What cannot be seen is unknown, in every answer that says it: a core without a program's variables, and a program with an allocator of its own.

Cores as systemd-coredump and apport leave them: the same answers as from the core itself, and nothing is left behind.

Files: analysis/checkup.py, analysis/inside.py, analysis/reachability/leaks.py, inferior/core_file.py, inferior/source.py,
snapshot/diff.py.
"""

import gzip
import os
import signal
import struct
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import pytest

from gdbheapx.inferior.source import CoreSource
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from tests.support import gcores
from tests.support.builders.packed import PACKERS, pack
from tests.support.busy import stretch
from tests.support.glibc import check_identity
from tests.support.paths import GDB
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import TOOL_SECONDS, Outcome, alone, heapx, run, tool_command, tool_environment

pytestmark = pytest.mark.image  # its kernel's and gdb's cores, its libc

RECORDER = ("recorder", "3", "1000", "3")
READING = ("doctor", "report", "arenas", "chunks", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "tickers", "decay", "trim --dry-run")


def filtered(stage: Stage, bits: str) -> Path:
    """A kernel core with this coredump_filter."""
    process = stage.start(*RECORDER)
    Path("/proc/%d/coredump_filter" % process.pid).write_text(bits)
    return process.core()


def hidden(folder: Path) -> List[str]:
    """Options by which no file of the core's machine is found: neither programs nor libraries nor debug files."""
    nothing = folder / "nothing"
    nothing.mkdir(exist_ok=True)
    return ["--sysroot", str(nothing), "--no-debug-info"]


def sane(outcome: Outcome) -> Dict[str, Any]:
    """An answer, a partial one, or a line that says why there is none; never an error of the tool's own. The envelope."""
    assert outcome.code in (0, 1, 4) and "internal error" not in outcome.stderr, outcome.stderr
    envelope = outcome.envelope
    assert (envelope["data"] is None) == (outcome.code == 1) == bool(outcome.stderr) and envelope["partial"] >= (outcome.code == 4)
    assert outcome.code != 0 or envelope["partial"] is False
    return envelope


@pytest.mark.parametrize("bits", ["0x33", "0x3", "0x0", *(pytest.param(bits, marks=pytest.mark.once) for bits in ("0x23", "0x7f", "0x30"))])
def test_whatever_the_filter_left_out(stage: Stage, core: str, folder: Path, bits: str) -> None:
    """With the machine's files and without any: clean pages of files, headers of images, private memory may all be absent."""
    path = filtered(stage, bits)
    for options in ([], hidden(folder)):
        found = {words: sane(alone(["--core", str(path), *options], *words.split(), "--json")) for words in (READING if options else ("doctor", "arenas"))}
        codes = [one["code"] for one in found["doctor"]["problems"]]
        assert ("memory-left-out" in codes) == (bits in ("0x30", "0x0"))
        if not options and bits not in ("0x30", "0x0"):
            check_identity(found["arenas"]["data"])
            assert codes == []


@pytest.mark.parametrize("bits", ["0x33", "0x3"])
def test_objects_are_known_without_files(stage: Stage, core: str, folder: Path, bits: str) -> None:
    """By the dynamic linker's list in memory; where no program header is in the core, by the names of mapped files in it."""
    target = open_elf_target(str(filtered(stage, bits)), sysroot=str(folder))
    modules = target.modules()
    assert modules[0].is_executable and os.path.basename(modules[0].name).startswith("recorder")
    libc = next(one for one in modules if os.path.basename(one.name).startswith(("libc.", "libc-")))
    assert (libc.build_id is None) == (bits == "0x3")
    named = {one.start for one in target.mappings() if os.path.basename(one.name).startswith(("libc.", "libc-")) and one.writable}
    spans = target.writable_segments(libc)
    assert named and all(any(start <= address < end for start, _, end in spans) or bits == "0x33" for address in named)
    assert all(end > file_end for _, file_end, end in spans)  # its .bss
    assert len(target.threads()) == 3 and all(one.thread_pointer for one in target.threads())


@pytest.mark.parametrize("ask", [alone, heapx], ids=["alone", "gdb"])
def test_doctor_says_what_each_file_would_bring(stage: Stage, core: str, folder: Path, ask: Any) -> None:
    """The program, the library of the allocator, its debug file; the others are counted."""
    outcome = ask([*stage.start(*RECORDER).target(core), *hidden(folder)], "doctor", "--json")
    rows = {row["what"]: row for row in outcome.envelope["data"]["checks"]}
    assert outcome.code == 4 and rows["core"]["ok"] is True
    for what in ("executable", "library", "libraries"):
        assert rows[what]["ok"] is not True and "--" in rows[what]["hint"]
    assert "libc" in rows["library"]["found"] and "build-id" in rows["library"]["found"]


def test_with_all_files_nothing_is_missing(stage: Stage, core: str) -> None:
    """On the machine that wrote it doctor misses no file."""
    checks = alone(stage.start(*RECORDER).target(core), "doctor", "--json").data["checks"]
    assert not {"library", "libraries"} & {row["what"] for row in checks} and all(row["ok"] is not False for row in checks)


# ---------------------------------------------------------------------------------------------------- cut


HEADER = struct.Struct("<IIQQQQQQ")


def headers(path: Path) -> Dict[int, List[int]]:
    """A core's program headers by their places in it, in order."""
    data = path.read_bytes()[: 1 << 20]
    offset, count = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    return {place: list(HEADER.unpack_from(data, place)) for place in range(offset, offset + 56 * count, 56)}


def put_header(path: Path, address: int, **changed: int) -> None:
    """The segment that has the address gets another type, or another size in the file."""
    place, entry = next((place, one) for place, one in headers(path).items() if one[0] == 1 and one[3] <= address < one[3] + one[6])
    entry[0], entry[5] = changed.get("type", entry[0]), changed.get("file_bytes", entry[5])
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(HEADER.pack(*entry))


def places(path: Path) -> Dict[str, int]:
    """Where to cut a core, and whether doctor must say so."""
    table = headers(path)
    offset, count = min(table), len(table)
    note = next(one for one in table.values() if one[0] == 4)
    loads = sorted((one[2], one[5]) for one in table.values() if one[0] == 1 and one[5])
    return {
        "no program header": 64,
        "one program header": offset + 56,
        "half the program headers": offset + 56 * (count // 2),
        "all program headers": offset + 56 * count,
        "half the notes": note[2] + note[5] // 2,
        "into the first segment": loads[0][0] + 100,
        "half of all": max(start + size for start, size in loads) // 2,
        "but one byte of memory": max(start + size for start, size in loads) - 1,
    }


@pytest.fixture(params=["kernel", "gcore"])
def whole(request: Any, stage: Stage, core: str) -> Path:
    """A core of each sort; gcore's has its notes at the end."""
    process = stage.start(*RECORDER)
    if request.param == "kernel":
        return process.core()
    return gcores.gcore(process)


def test_a_cut_core_is_told(whole: Path) -> None:
    """Wherever it is cut, doctor's exit code is 4 and every command says that the core is truncated; whole it is complete."""
    where = places(whole)
    assert alone(["--core", str(whole)], "doctor", "--json").code == 0
    for name, size in sorted(where.items(), key=lambda one: -one[1]):
        os.truncate(whole, size)
        for words in ("doctor", "arenas"):
            outcome = alone(["--core", str(whole)], words, "--json")
            codes = [one["code"] for one in sane(outcome)["problems"]]
            assert codes.count("core-truncated") == 1 and (words != "doctor" or outcome.code == 4), (name, outcome.code, codes)


def test_a_jemalloc_may_be_in_what_is_cut_off(whole: Path) -> None:
    """None is in a whole core of a program of glibc's; in a cut one none was found, which is no proof that there is none."""
    core = ["--core", str(whole)]
    assert alone(core, "tickers", "--json").data["affected"] is False
    os.truncate(whole, places(whole)["half of all"])
    outcome = alone(core, "tickers", "--json")
    assert outcome.code == 4 and outcome.envelope["data"]["affected"] is None
    assert "are missing" in alone(core, "tickers").stdout.decode()


def test_a_stack_that_was_not_dumped_is_named(stage: Stage, core: str) -> None:
    """Without a thread's control block its cache is unknown, and the next step is one that brings it: another core."""
    path = stage.start(*RECORDER).core()
    thread = open_elf_target(core=str(path)).threads()[-1]
    assert thread.thread_pointer
    put_header(path, thread.thread_pointer, file_bytes=0)  # like gdb's where it leaves a mapping out
    outcome = alone(["--core", str(path)], "tcache", "--json")
    told = [one["hint"] for one in outcome.envelope["problems"] if one["what"].startswith("thread %d:" % thread.lwp)]
    assert outcome.code == 4 and told and all("the kernel writes" in hint and "newer gdb" in hint for hint in told), outcome.envelope["problems"]


def test_damage_of_libcs_dynamic_section_hides_no_cache(stage: Stage, core: str) -> None:
    """It says where thread-local storage lies; without it structure finds every thread's cache, or the answer is partial."""
    path = stage.start(*RECORDER).core()
    whole = alone(["--core", str(path)], "tcache", "--json").data["threads"]
    target = open_elf_target(core=str(path))
    assert isinstance(target, ElfTarget) and isinstance(target.source, CoreSource) and len(whole) == 3
    libc = next(one for one in target.link_map().objects() if os.path.basename(one.name).startswith(("libc.", "libc-")))
    segment = next(one for one in target.source.core.segments() if one.address <= libc._dynamic_at < one.address + one.size_bytes)
    for filling in (b"\0", b"\xff"):
        with open(path, "r+b") as file:
            file.seek(segment.file_offset + libc._dynamic_at - segment.address)
            file.write(filling * 0x1C0)
        outcome = alone(["--core", str(path)], "tcache", "--json")
        assert outcome.data["threads"] == whole or outcome.code == 4, outcome.envelope


def test_what_is_no_header_any_more(stage: Stage, core: str) -> None:
    """Less than an ELF header is no core: one line, exit code 1."""
    path = stage.start(*RECORDER).core()
    for size in (63, 10, 0):
        os.truncate(path, size)
        outcome = alone(["--core", str(path)], "doctor")
        assert outcome.code == 1 and outcome.stderr.count("\n") == 1


def test_python_alone_in_an_empty_namespace(stage: Stage, core: str, folder: Path) -> None:
    """In a mount namespace where the program and the debug files are empty the core is read as with --sysroot."""
    process = stage.start(*RECORDER)
    path, program = process.core(), process.executable
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("a mount namespace takes root")
    empty = folder / "empty"
    empty.touch()
    hide = "mount --bind %s %s && { [ ! -d /usr/lib/debug ] || mount -t tmpfs none /usr/lib/debug; }" % (empty, program)
    outcome = run(["unshare", "-m", "sh", "-c", hide + ' && exec "$@"', "sh", *tool_command(), "--core", str(path), "--gdb", "none", "doctor", "--json"])
    assert outcome.code == 4 and sane(outcome)["data"]
    rows = {row["what"]: row["ok"] for row in outcome.envelope["data"]["checks"]}
    assert rows["executable"] is False and rows["core"] is True


def test_a_hole_of_terabytes_takes_no_time(stage: Stage, core: str) -> None:
    """A reserve of 3 TiB of which one page was touched is a hole in the core's file: only the page is read, and what it holds is held."""
    path, start, size = stage.start(*RECORDER).core(), 1 << 44, 3 << 40
    table, end = list(headers(path).values()), path.stat().st_size  # where the last mapping ends: the next one's bytes follow
    table.insert(sum(one[3] < start for one in table), [1, 6, end, start, 0, size, size, 4096])
    with open(path, "r+b") as file:
        file.seek(end + size)
        file.write(b"".join(HEADER.pack(*one) for one in table))
        file.seek(32)
        file.write(struct.pack("<Q", end + size))
        file.seek(56)
        file.write(struct.pack("<H", len(table)))
        file.seek(end)
        file.write(b"a page that was touched")
    for words in ("report", "leaks"):
        began = time.monotonic()
        envelope = alone(["--core", str(path)], words, "--json").envelope
        assert envelope["partial"] is False and envelope["data"], envelope["problems"]
        assert time.monotonic() - began < stretch(20), words


@pytest.mark.once  # gdb 10 gives them headers
def test_what_gdb_left_out_comes_from_the_files(stage: Stage, live: str) -> None:
    """gcore gives no program header to read-only mappings of files: their bytes are those of the files, if these are still the same."""
    target = open_elf_target(core=str(gcores.gcore(stage.start("untouched"))))
    assert isinstance(target.source, CoreSource)
    core = target.source.core
    left_out = [one for one in core.notes().files if core.find(one.start) is None]
    assert left_out
    found = 0
    for one in left_out:
        with open(one.name, "rb") as file:
            file.seek(one.offset)
            data = target.read_prefix(one.start, 64)
            assert data in (b"", file.read(64))
            found += bool(data)
    assert found >= 2  # the program's, libc's


@pytest.fixture
def lost(stage: Stage, core: str, folder: Path) -> Path:
    """A core whose program header of the program's .bss has lost its type."""
    path = stage.start(*RECORDER).core()
    target = open_elf_target(core=str(path))
    assert target.problems() == []
    put_header(path, target.writable_segments(target.modules()[0])[-1][2] - 1, type=0)
    return path


def test_leaks_are_unknown(lost: Path, folder: Path) -> None:
    """leaks, owners, report: null in JSON, unknown in the text, exit code 4; --fail-on-leak does not say that all is well."""
    target = ["--core", str(lost)]
    answers = {words: alone(target, *words.split(), "--json") for words in ("leaks", "owners", "report", "leaks --fail-on-leak 1T", "leaks --fail-on-leak 1")}
    assert {answer.code for answer in answers.values()} == {4}
    data = {words: answer.envelope["data"] for words, answer in answers.items()}
    assert data["leaks"]["classes"]["leaked"] == {"blocks": None, "bytes": None, "roots": None, "is_upper_bound": True} and data["leaks"]["groups"] == []
    assert data["owners"]["leaked"] is None and (data["report"]["inside"] is None or data["report"]["inside"]["leaked"] is None)
    for answer in answers.values():
        assert {"roots-missing", "core-damaged"} <= {problem["code"] for problem in answer.envelope["problems"]}
    assert b"Leaked: unknown" in alone(target, "leaks").stdout and b"leaked: unknown" in alone(target, "owners").stdout


def test_a_snapshot_says_so_too(lost: Path, folder: Path) -> None:
    """A snapshot of such a core, and what it is compared with."""
    taken = str(folder / "lost.snap")
    assert alone(["--core", str(lost)], "snapshot", taken).code == 4
    leaks = alone(["--snapshot", taken], "leaks", "--json")
    assert leaks.code == 4 and leaks.envelope["data"]["classes"]["leaked"]["bytes"] is None
    assert heapx([], "diff", taken, taken, "--json").envelope["data"]["leaks"] is None


@pytest.fixture
def program(stage: Stage) -> Process:
    """24 MB that no reader knows."""
    return stage.start("own_arena")


def target(process: Process, kind: str) -> List[str]:
    """Live, its core, or a snapshot of it."""
    if kind != "snapshot":
        return process.target(kind)
    path = str(process.folder / "snap")
    assert heapx(process.target("live"), "snapshot", path).code == 4
    return ["--snapshot", path]


@pytest.mark.parametrize("kind", ["live", "core", "snapshot"])
def test_zero_is_unknown(program: Process, kind: str) -> None:
    """Exit code 4 and null, never "nothing"."""
    options = target(program, kind)
    for words in (["leaks", "--fail-on-leak", "1M"], ["owners"], ["census"], *([["check"]] if kind != "snapshot" else [])):
        outcome = heapx(options, *words, "--json")
        envelope = outcome.envelope
        assert outcome.code == 4 and "memory-unread" in [problem["code"] for problem in envelope["problems"]], words
        coverage = envelope["coverage"]
        assert coverage["anonymous_bytes"] >= 24 << 20 and coverage["share_percent"] < 10, words
        if words[0] == "leaks":
            assert envelope["data"]["classes"]["leaked"]["bytes"] is None
    assert b"Leaked: unknown (looked at " in heapx(options, "leaks").stdout


def test_a_healthy_program_is_whole(stage: Stage, kind: str) -> None:
    """Its answer has the field, and no null."""
    outcome = heapx(stage.start("untouched").target(kind), "leaks", "--json")
    assert outcome.envelope["coverage"]["read_bytes"] <= outcome.envelope["coverage"]["anonymous_bytes"]
    assert outcome.code == 0 and outcome.envelope["data"]["classes"]["leaked"]["bytes"] == 0

PACKED_RECORDER = ("recorder", "9", "1000", "3")
WAYS = (("--gdb", "none"), ("--gdb", GDB))


@pytest.fixture
def packed(lasting: Lasting, core: str, folder: Path) -> "Tuple[Path, Path]":
    """A core, and the same as .gz, under a name that does not say so."""
    whole = lasting.of(core, Stage.start, *PACKED_RECORDER).core()
    path = folder / "core.of-something"
    path.write_bytes(pack(".gz", whole.read_bytes()))
    return whole, path


def one_line(outcome: Outcome) -> str:
    """The error: exit code 1, one line."""
    assert outcome.code == 1 and outcome.stderr.count("\n") == 1, (outcome.code, outcome.stderr)
    return outcome.stderr


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_the_same_answers(lasting: Lasting, core: str, folder: Path, name: str) -> None:
    """Inside gdb and without; the core goes by the name that the user gave, and the folder of temporary files is empty afterwards."""
    process = lasting.of(core, Stage.start, *PACKED_RECORDER)
    whole = process.core()
    path, temporary = folder / "core.of-something", folder / "temporary"
    temporary.mkdir()
    path.write_bytes(pack(name, whole.read_bytes()))
    env = {"TMPDIR": str(temporary)}
    for way in WAYS:
        outcome = heapx([*way, "--core", str(path)], "arenas", "--json", env=env)
        of_core = heapx([*way, "--core", str(whole)], "arenas", "--json")
        check_identity(outcome.data)
        assert outcome.data == of_core.data
        assert outcome.envelope["target"] == {**of_core.envelope["target"], "core": str(path), "time": outcome.envelope["target"]["time"]}
    assert list(temporary.iterdir()) == []


def test_what_was_never_touched_is_not_counted(packed: "Tuple[Path, Path]") -> None:
    """The holes of a core are lost when it is packed; a page of zeros counts as one of them, so `report` counts no more than before."""
    whole, path = packed
    reports = [alone(["--core", str(one)], "report", "--json").data for one in (whole, path)]
    totals = [sum(part["dumped_bytes"] for part in one["split"]) for one in reports]
    assert totals[0] * 0.75 < totals[1] <= totals[0] < whole.stat().st_size / 2


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_cut_file(packed: "Tuple[Path, Path]", way: Sequence[str]) -> None:
    """What is there is read; the answer is partial, and doctor says what is missing."""
    _, path = packed
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    outcome = heapx([*way, "--core", str(path)], "doctor", "--json")
    told = [problem for problem in outcome.envelope["problems"] if problem["code"] == "core-truncated"]
    assert outcome.code == 4 and len(told) == 2 and str(path) in told[0]["what"]


@pytest.mark.parametrize("where", ["middle", "end"])
def test_a_file_whose_check_sum_is_wrong(packed: "Tuple[Path, Path]", where: str) -> None:
    """Damage that still unpacks is found by the check sum behind the data: everything is shown, and that it may be wrong. In the middle
    of it even the headers may be lost."""
    _, path = packed
    data = bytearray(path.read_bytes())
    changed = bytearray(data)
    changed[-6] ^= 0x55  # the check sum itself
    if where == "middle":  # a bit of a distance between zeros changes nothing
        changed = next(one for one in damaged(data) if not same(data, one))
    path.write_bytes(bytes(changed))
    outcome = alone(["--core", str(path)], "doctor", "--json")
    found = [one for one in outcome.envelope["problems"] if one["code"] == "core-truncated"]
    assert (outcome.code == 4 and found) or (where == "middle" and outcome.code == 1)


def damaged(data: bytearray) -> Iterator[bytearray]:
    """The file with another byte of its second half changed each time."""
    for at in range(len(data) // 2, len(data)):
        yield data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def same(data: bytearray, changed: bytearray) -> bool:
    """Both unpack, to the same."""
    try:
        return gzip.decompress(bytes(changed)) == gzip.decompress(bytes(data))
    except (OSError, EOFError, zlib.error):
        return False


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_no_room(packed: "Tuple[Path, Path]", folder: Path, way: Sequence[str]) -> None:
    """A limit on the size of files stands for a full disk: one line, with JSON an envelope too, and nothing is left."""
    _, path = packed
    temporary = folder / "temporary"
    temporary.mkdir()
    words = [*tool_command(), "--core", str(path), *way, "arenas", "--json"]
    limited = ["sh", "-c", 'ulimit -f 2048; exec "$@"', "sh", *words]
    outcome = run(limited, env={"TMPDIR": str(temporary)})
    assert str(temporary) in one_line(outcome) and "TMPDIR" not in outcome.envelope["target"] and outcome.envelope["data"] is None
    assert list(temporary.iterdir()) == []


def test_a_folder_that_is_not_there(packed: "Tuple[Path, Path]") -> None:
    """TMPDIR is named."""
    assert "/nowhere" in one_line(alone(["--core", str(packed[1])], "arenas", env={"TMPDIR": "/nowhere"}))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_signal_while_it_is_unpacked(stage: Stage, core: str, folder: Path, name: str) -> None:
    """Nothing is left in the folder of temporary files, which had no name in it at any time."""
    path, temporary = folder / "core.gz", folder / "temporary"
    temporary.mkdir()
    head = stage.start("untouched").core().read_bytes()[:4096]
    os.mkfifo(folder / "slow")
    path.write_bytes(pack(".gz", head + os.urandom(1 << 24)))
    env = tool_environment({"TMPDIR": str(temporary), "PYTHONPATH": "%s:%s" % (folder, tool_environment()["PYTHONPATH"])})
    (folder / "sitecustomize.py").write_text(
        "import os\nput = os.pwrite\ndef slow(*given):\n    open(%r).read()\n    return put(*given)\nos.pwrite = slow\n" % str(folder / "slow")
    )  # it waits where it would write
    with subprocess.Popen([*tool_command(), "--core", str(path), "--gdb", "none", "arenas"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        gate = os.open(folder / "slow", os.O_WRONLY)  # opens when the tool waits
        assert list(temporary.iterdir()) == []
        tool.send_signal(getattr(signal, name))
        _, errors = tool.communicate(timeout=TOOL_SECONDS)
        os.close(gate)
    assert list(temporary.iterdir()) == [] and b"Traceback" not in errors
    assert (tool.returncode, errors.count(b"\n")) == ((-signal.SIGKILL, 0) if name == "SIGKILL" else (1, 1))
