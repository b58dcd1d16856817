"""What each setting that is advised does to programs of known shapes: `make advice` measures, and writes docs/reference/advice.md and the cases
of gdbheapx/allocators/measured.py.

One program runs without and with each setting at the same time; RSS is taken when all are idle. GDBHEAPX_JEMALLOCS and
GDBHEAPX_MIMALLOCS name further builds.
"""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from bench.what_if import JEMALLOC, ROOT, SEPARATORS, ask, rests, rss_bytes, standing
from gdbheapx.allocators import measured
from gdbheapx.allocators.measured import Case, Setting
from gdbheapx.common import findings as codes

TABLE, MODULE = ROOT / "docs" / "reference" / "advice.md", ROOT / "gdbheapx" / "allocators" / "measured.py"
MARKS = {TABLE: ("<!-- made by make advice -->\n", "<!-- end -->"), MODULE: ("    # made by `make advice`\n", "    # end")}
DIRECTORY = "/usr/lib/x86_64-linux-gnu/"
DECAYS_SECONDS = 12.0
"""jemalloc's decay time is 10 s: so long after the last of its work a background thread has returned all."""


class Program(NamedTuple):
    """A heap of bench/what_if.c, and what is tried."""

    allocator: str
    """With its release where that is no system's."""
    shape: str
    words: str
    """Of bench/what_if.c."""
    cause: str
    """A code of `report`: what keeps the memory."""
    settings: Sequence[Setting]
    base: Mapping[str, str] = {}


class Row(NamedTuple):
    """One setting of one program."""

    program: Program
    release: str
    setting: str
    is_ours: bool
    """Of the registry; False: tried, and never advised."""
    before: int
    after: int
    said: str
    """What `what-if` said that RSS would be."""
    is_named: bool
    """`report` names it in Next."""
    is_found: bool
    """`report` found the cause."""


def other(variable: str, value: str) -> Setting:
    """What is tried, and advised nowhere."""
    return Setting(variable, value, 0)


M = measured
FIXED = (M.MMAP_THRESHOLD, M.TRIM_THRESHOLD)
ARENAS = (M.ARENA_ONE, M.ARENA_TWO)
GLIBC = (M.MXFAST, *FIXED, *ARENAS, M.TCACHE_COUNT)
DECAYS = (M.BACKGROUND, M.DECAY_NONE)
JE = (*DECAYS, M.ONE_ARENA, M.NO_TCACHE)
THIN = "1 40000 600 900 40 1"
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=33554432"}
NEVER = {"MALLOC_CONF": "background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:-1"}
DECOMMITS = other("MIMALLOC_PURGE_DECOMMITS", "0")
EAGER = other("MIMALLOC_ARENA_EAGER_COMMIT", "0")
LAZY = {"MIMALLOC_PURGE_DECOMMITS": "0", "MIMALLOC_PURGE_DELAY": "0"}
ONE_BLOCK = other("the texts in one bytes object", "")
RATE = other("TCMALLOC_RELEASE_RATE", "10")
TC = (M.AGGRESSIVE_DECOMMIT, RATE, M.CACHE_BYTES)
PROGRAMS = (
    Program("glibc", "a queue that has drained, in a thread", "1 120000 112 632 0 1 queue", codes.UNMERGED, GLIBC),
    Program(
        "glibc",
        "3 tiles of 10.7 MiB in each of 4 threads, 300 bytes kept behind each",
        "4 6 300 11184810 2 1 queue after",
        codes.THREAD_TOPS,
        GLIBC,
    ),
    Program("glibc", "blocks of 20 to 600 KiB in 8 threads", "8 30 20000 600000 0 4 after", codes.THREAD_TOPS, (*FIXED, *ARENAS)),
    Program(
        "glibc",
        "a burst of 31 MiB in the first thread, after a block of 24 MiB",
        "1 20000 100 3000 0 1 main after",
        codes.MAIN_TOP,
        (*FIXED, M.MXFAST, M.TCACHE_COUNT),
    ),
    Program("glibc", "16 threads keep every fourth block", "16 1500 64 4000 4 2", codes.MANY_ARENAS, GLIBC),
    Program(
        "glibc",
        "7 blocks of each size in 200 thread caches",
        "200 448 24 1032 0 1",
        codes.THREAD_CACHES,
        (M.TCACHE_COUNT, *ARENAS, M.MXFAST),
    ),
    Program(
        "glibc", "threads that ended, blocks of 20 to 600 KiB", "8 30 20000 600000 0 4 ended after", codes.ARENAS_LEFT, (*FIXED, *ARENAS)
    ),
    Program("glibc", "threads that ended, every 50th block in use", "8 8000 32 2000 50 1 ended", codes.MANY_ARENAS, ARENAS),
    Program(
        "glibc", "every seventh small block in use", "1 120000 24 200 7 2", codes.FREE_BETWEEN, (M.MXFAST, M.TRIM_THRESHOLD, M.TCACHE_COUNT)
    ),
    Program("glibc", "all blocks in use", "2 20000 16 2000 1 1", codes.IN_USE, (M.MXFAST, M.ARENA_ONE, M.TCACHE_COUNT, M.HUGETLB_ON)),
    Program(
        "glibc",
        "1,000 blocks of 20 to 40 KiB, of which a byte was written, freed",
        "1 1000 20000 40000 0 1 main after sparse",
        codes.BLOCKLESS,
        (M.HUGETLB_OFF,),
        HUGE,
    ),
    Program("jemalloc", "8 threads idle after a burst", "8 12000 16 8000 0 1", codes.PURGED_BY_CALLS, (*JE, M.NO_HUGE)),
    Program(
        "jemalloc",
        "8 threads idle after a burst, decay off",
        "8 12000 16 8000 0 1",
        codes.PURGING_OFF,
        (*DECAYS, M.DECAY_USUAL),
        {"MALLOC_CONF": "dirty_decay_ms:-1"},
    ),
    Program(
        "jemalloc",
        "muzzy pages, decay off",
        "8 12000 16 8000 0 1",
        codes.UNUSED_PAGES,
        (M.MUZZY_NONE, M.DECAY_NONE, M.BACKGROUND, M.ONE_ARENA),
        NEVER,
    ),
    Program(
        "jemalloc",
        "dirty pages in huge pages (HPA)",
        "8 12000 16 8000 0 1",
        codes.UNUSED_PAGES,
        (M.HPA_BOUND, M.BACKGROUND, M.DECAY_NONE),
        {"MALLOC_CONF": "hpa:true,hpa_dirty_mult:-1"},
    ),
    Program("jemalloc", "200 thread caches", "200 448 24 1032 0 1", codes.THREAD_CACHES, JE),
    Program("jemalloc", "16 threads keep every 16th block", "16 20000 24 300 16 1", codes.MANY_ARENAS, JE),
    Program("jemalloc", "every seventh small block in use", "1 120000 24 200 7 2", codes.FREE_REGIONS, JE),
    Program("jemalloc", "blocks of 16 KiB, all in use", "1 4000 16384 16384 1 1", codes.IN_USE, (M.NO_TCACHE, M.ONE_ARENA, M.DECAY_NONE)),
    Program(
        "jemalloc",
        "blocks of 16 KiB, all in use, and a page more for each",
        "1 4000 16384 16384 1 1",
        codes.LARGE_ROUNDING,
        (M.NO_OBLIVIOUS,),
    ),
    Program("jemalloc", "little in use, huge pages", THIN, codes.PART_HELD, (M.NO_HUGE, M.DECAY_NONE), {"MALLOC_CONF": "thp:always"}),
    Program(
        "jemalloc",
        "many arenas, little in use",
        "32 20 100 3000 1 1",
        codes.SMALL_HEAP,
        (other("MALLOC_CONF", "metadata_thp:always"), M.ONE_ARENA),
    ),
    Program(
        "mimalloc",
        "4 threads idle after a burst",
        "4 60000 64 1964 0 3",
        codes.FREED_AND_HELD,
        (M.PURGE_DELAY, DECOMMITS, EAGER, M.DECOMMIT_DELAY),
    ),
    Program("mimalloc", "every seventh small block in use", "1 120000 24 200 7 2", codes.FREED_AND_HELD, (M.PURGE_DELAY, M.DECOMMIT_DELAY)),
    Program(
        "mimalloc",
        "threads that ended, every 50th block in use",
        "8 8000 32 2000 50 1 ended",
        codes.FREED_AND_HELD,
        (M.PURGE_DELAY, M.DECOMMIT_DELAY),
    ),
    Program(
        "mimalloc",
        "4 threads idle, purged by MADV_FREE",
        "4 60000 64 1964 0 3",
        codes.GIVEN_BACK_IN_RAM,
        (M.PURGE_DECOMMITS, M.PURGE_DELAY),
        LAZY,
    ),
    Program("tcmalloc", "4 threads idle after a burst", "4 12000 16 8000 0 1", codes.UNUSED_PAGES, TC),
    Program("tcmalloc", "large blocks freed", "1 200 100000 900000 0 2", codes.UNUSED_PAGES, TC),
    Program("tcmalloc", "60 thread caches", "60 1500 24 1032 0 8", codes.THREAD_CACHES, TC),
    Program("tcmalloc", "every seventh small block in use", "1 120000 24 200 7 2", codes.FREE_REGIONS, TC),
    Program("CPython", "a worker collects beside 100,000 of the parent's objects (PSS)", "collector", codes.COPIED_ON_WRITE, (M.FREEZE,)),
    Program("CPython", "a worker reads 40,000 of the parent's texts (PSS)", "counts", codes.COPIED_ON_WRITE, (M.FREEZE, ONE_BLOCK)),
)


def libraries(allocator: str) -> Iterator[str]:
    """What is preloaded; empty: nothing."""
    if allocator in ("glibc", "CPython"):
        yield ""
    elif allocator == "jemalloc":
        yield from (JEMALLOC, *filter(None, os.environ.get("GDBHEAPX_JEMALLOCS", "").split(":")))
    elif allocator == "tcmalloc":
        yield DIRECTORY + "libtcmalloc_minimal.so.4"
    else:
        yield from (DIRECTORY + "libmimalloc.so.2", *filter(None, os.environ.get("GDBHEAPX_MIMALLOCS", "").split(":")))


def with_setting(base: Mapping[str, str], setting: Setting) -> Dict[str, str]:
    """The environment with it; of options that hold several, what the program has comes first."""
    variable = setting.variable
    parts = [base[variable]] if variable in base and variable in SEPARATORS else []
    return {**base, variable: SEPARATORS.get(variable, "").join([*parts, setting.value])}


def is_read(setting: Setting, library: str) -> bool:
    """Whether this build knows the variable: a name without its prefix, in any case, stands in it."""
    if not setting.variable.startswith("MIMALLOC_"):
        return True
    word, text = setting.variable[len("MIMALLOC_") :].lower().encode(), Path(library).read_bytes()
    return b"\0" + word + b"\0" in text or b"_" + word + b"\0" in text


def last_child(pid: int) -> int:
    """The youngest process that it forked."""
    return int(Path("/proc/%d/task/%d/children" % (pid, pid)).read_text().split()[-1])


def pss_bytes(pid: int) -> int:
    """What the process has of its memory where others have it, too."""
    lines = Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure(program: Program, made: str, library: str) -> Iterator[Row]:
    """Without and with each setting, all at once; then what a call returns."""
    base = {**program.base, **({"LD_PRELOAD": library} if library else {})}
    tried = [one for one in program.settings if is_read(one, library)]
    with ExitStack() as stack:
        is_forked = program.allocator == "CPython"
        words = [*([sys.executable, str(ROOT / "bench" / "forked.py")] if is_forked else [made]), *program.words.split()]
        pids = [stack.enter_context(standing(words, env, "")) for env in (base, *(with_setting(base, one) for one in tried))]
        if is_forked:
            pids = [last_child(pid) for pid in pids]
        if program.allocator == "jemalloc":
            time.sleep(DECAYS_SECONDS)
        for pid in pids:
            rests(pid)
        before, *after = map(pss_bytes if is_forked else rss_bytes, pids)
        told, looked = ask(pids[0], "what-if"), ask(pids[0], "report")
        said = {one["setting"].partition(" (")[0]: one for one in told["settings"]} if told is not None else {}
        heaps = [one for one in looked["allocators"] if one["name"] == program.allocator] if looked is not None else []
        versions = ["%d.%d" % sys.version_info[:2]] if is_forked else [one["version"] for one in heaps[:1]]
        release = " ".join([program.allocator, *filter(None, versions)])
        next_ = " ".join("%s %s" % (one["command"], one["why"]) for one in looked["next"]) if looked is not None else ""
        if is_forked and looked is not None:  # a finding's hint
            next_ += " ".join(one["hint"] or "" for one in looked["findings"] if one["code"] == program.cause)
        has = {one["code"] for one in (*looked["findings"], looked["verdict"])} if looked is not None else set()
        for setting, then in zip(tried, after):
            ours = setting in measured.SETTINGS
            yield Row(
                program,
                release,
                setting.text,
                ours,
                before,
                then,
                _ends(said.get(setting.text)),
                setting.text in next_,
                program.cause in has,
            )
        command = {"glibc": "trim", "jemalloc": "purge", "tcmalloc": "purge"}.get(program.allocator)
        if command is not None and ask(pids[0], command, "--yes") is not None:
            text = _ends(next((one for one in said.values() if one["code"] == command), None))
            yield Row(
                program,
                release,
                "`gdbheapx %s --yes`" % command,
                False,
                before,
                rss_bytes(pids[0]),
                text,
                command in next_,
                program.cause in has,
            )


def _ends(one: Optional[Mapping[str, Any]]) -> str:
    if one is None:
        return ""
    low, high = one["then_least_bytes"], one["then_most_bytes"]
    return "%s to %s" % tuple("?" if value is None else _mib(value) for value in (low, high))


def _mib(value: int) -> str:
    return "%.1f" % (value / (1 << 20))


def table(rows: Sequence[Row]) -> str:
    """docs/reference/advice.md's."""
    head = ("allocator", "program", "cause", "setting", "MiB without", "with", "saved", "`what-if`", "Next")
    lines = ["| %s |" % " | ".join(head), "| %s |" % " | ".join("---" for _ in head)]
    for row in rows:
        base = "".join(", `%s=%s`" % pair for pair in row.program.base.items())
        setting = row.setting if row.setting.startswith("`") else "`%s`" % row.setting
        saved = Case("", "", row.before, row.after).saved_percent
        cells = (row.release, row.program.shape + base, "`%s`" % row.program.cause + ("" if row.is_found else " (not found)"), setting)
        figures = (_mib(row.before), _mib(row.after), "%d %%" % saved, row.said or "-", "named" if row.is_named else "-")
        lines.append("| %s |" % " | ".join((*cells, *figures)))
    return "\n".join(lines) + "\n"


def cases(rows: Sequence[Row]) -> str:
    """The product's: every row of a setting of its registry."""
    names = {one.text: name for name, one in vars(measured).items() if isinstance(one, Setting)}
    cause = {value: name for name, value in vars(codes).items() if name.isupper()}
    shown = [(names[row.setting], cause[row.program.cause], _mib(row.before), _mib(row.after)) for row in rows if row.is_ours]
    return "".join("    Case(%s.text, codes.%s, %s, %s),\n" % one for one in shown)


def put(path: Path, text: str) -> None:
    """Between the marks of a file."""
    first, last = MARKS[path]
    whole = path.read_text()
    head, _, rest = whole.partition(first)
    path.write_text(head + first + text + last + rest.partition(last)[2])


def main() -> None:
    """All of them; the programs whose name has a word given, shown and not written."""
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as directory:
        made = os.path.join(directory, "what_if")
        subprocess.run(["gcc", "-O1", "-pthread", "-o", made, str(ROOT / "bench" / "what_if.c")], check=True)
        for program in PROGRAMS:
            name = "%s %s" % (program.allocator, program.shape)
            if sys.argv[1:] and not any(word in name for word in sys.argv[1:]):
                continue
            for library in libraries(program.allocator):
                for row in measure(program, made, library):
                    print(
                        "%-16s %-44s %s %-50s %8s %8s %18s %s"
                        % (
                            row.release,
                            row.program.shape[:44],
                            "" if row.is_found else "NOT FOUND",
                            row.setting,
                            _mib(row.before),
                            _mib(row.after),
                            row.said,
                            "named" if row.is_named else "",
                        ),
                        flush=True,
                    )
                    rows.append(row)
    if not sys.argv[1:]:
        put(TABLE, table(rows))
        put(MODULE, cases(rows))


if __name__ == "__main__":
    main()
