"""jemalloc's options with the values in force, where they were set, and what each important one means here (jemalloc(3), `opt.*`)."""

import re
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Union

from gdbheapx.hints import ask
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.purging import background
from gdbheapx.jemalloc.records import RefusedOption
from gdbheapx.jemalloc.stats import options

Value = Union[bool, int, str, None]


class Tunable(NamedTuple):
    """One option."""

    name: str
    """As mallctl names it, `opt.dirty_decay_ms`."""
    value: Value
    """As jemalloc read it at its start: bool, number, or text; None if it cannot be read."""
    now: Value
    """What is in force since it was changed at run time; None for options that cannot be."""
    unit: Optional[str]
    """`bytes`, `ms` or None."""
    set_in: Optional[str]
    """Which of the sources sets it; None where none of those that can be seen does."""
    meaning: str
    """What it does, and what its value says here; empty for options that hardly matter to memory."""


class Source(NamedTuple):
    """A place that options are read from, the weakest first."""

    name: str
    text: str


class BackgroundThreads(NamedTuple):
    """Those that purge."""

    enabled: Optional[bool]
    max: Optional[int]
    running: Optional[int]
    runs: Optional[int]
    run_interval_ms: Optional[float]


class Tunables(NamedTuple):
    """All that was set, and what runs."""

    tunables: Optional[List[Tunable]]
    """None where nothing names them: without symbols their names stand in the program's or the library's file."""
    sources: Optional[List[Source]]
    """None where none was found, and it is not known where to look."""
    background_threads: BackgroundThreads
    refused: Sequence[RefusedOption] = ()
    unread_variables: Sequence[str] = ()
    """In the environment, with options for some jemalloc; this build does not read them."""


def read(context: Context, has_stats: Callable[[], Optional[bool]]) -> Tunables:
    """Every option of this build, those that its malloc_stats_print does not show too. `has_stats`: it counts background threads' runs,
    asked where there are such threads."""
    given = sources(context)
    unheeded = refused(context, given)
    given_in = {(one.source, one.option.partition(":")[0]) for one in unheeded}

    def set_in(name: str) -> Optional[str]:
        return _set_in(name, [source for source in given if (source.name, name) not in given_in])

    running = options.running(context)
    rows = []
    for option, value in options.every(context):
        is_idle = option.needs == "prof" and not context.variable("opt_prof", 1)
        now = running.get(option.live) if option.live and not is_idle else None
        rows.append(
            Tunable("opt." + option.name, value, now, _unit(option.name), set_in(option.name), _meaning(option.name, value, now))
        )
    told = {row.name for row in rows} | {"opt." + OTHER_NAMES[row.name[4:]] for row in rows if row.name[4:] in OTHER_NAMES}
    unread = ["opt." + name[4:] for name in context.symbols.option_names if "opt." + name[4:] not in told]
    rows += [Tunable(name, None, None, _unit(name[4:]), set_in(name[4:]), MEANINGS.get(name[4:], "")) for name in unread]
    threads, is_unknown = background.read(context), context.symbols.by_structure
    interval_ns, counts_none = threads.run_interval_ns, is_unknown or (bool(threads.enabled) and not has_stats())
    known = BackgroundThreads(
        enabled=threads.enabled,
        max=context.variable("max_background_threads"),
        running=(threads.named or len(threads.running)) if threads.enabled else None if is_unknown else 0,
        runs=None if counts_none else threads.runs,
        run_interval_ms=None if counts_none or interval_ns is None else interval_ns / 1e6,
    )
    unread = options.unread_variables(context)
    if not rows and is_unknown:
        return Tunables(None, given or None, known, unheeded, unread)
    return Tunables(rows, given, known, unheeded, unread)


OTHER_KEYS = (
    *("bin_shards", "slab_sizes", "lg_tcache_max", "tcache_max", "tcache_ncached_max", "prof_time_resolution", "log"),
    "hpa_hugification_threshold_ratio",
)
"""What jemalloc.c and conf.c (malloc_conf_init_helper) take in some release, and no variable opt_ is called."""
NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)")
NUMBERS = ("unsigned", "size", "ssize", "int64", "uint64")


def refused(context: Context, given: Sequence[Source]) -> List[RefusedOption]:
    """Options in the sources that are not in force. Said only of what no release takes, and of values that can be compared."""
    pairs = [(source.name, pair) for source in given for pair in source.text.split(",") if pair]
    last = {pair.partition(":")[0]: place for place, (_, pair) in enumerate(pairs)}
    known = {option.name: option for option in options.OPTIONS + options.UNPRINTED}
    rows = []
    for place, (source, pair) in enumerate(pairs):
        name, colon, text = pair.partition(":")
        option = known.get(name)
        why = "not of the form name:value" if not colon else _refusal(context, name, option, text, last[name] == place)
        if why is not None:
            rows.append(RefusedOption(source, pair, why))
    return rows


def _refusal(context: Context, name: str, option: Optional[options.Option], text: str, is_last: bool) -> Optional[str]:
    """Why jemalloc did not take it; None where it did, or nothing tells."""
    if option is None:
        is_taken = name in OTHER_KEYS or name.startswith("experimental_") or context.symbols.find("opt_" + name) is not None
        return None if is_taken or "opt_" + name in context.symbols.option_names else "jemalloc has no such option"
    if option.kind == "bool" and text not in ("true", "false"):
        return "neither true nor false"
    if option.kind in NUMBERS and not NUMBER.fullmatch(text) and (name, text) != ("narenas", "default"):
        return "not a number"
    value = options.read(context, option)[1] if is_last and (option.kind == "bool" or name.endswith("_decay_ms")) else None
    if value is None or value == (text == "true" if option.kind == "bool" else int(text, 0 if "x" in text.lower() else 10)):
        return None
    return "%s is in force" % (str(value).lower() if option.kind == "bool" else value)


def sources(context: Context) -> List[Source]:
    """The strings that options were read from, as far as they can be seen (jemalloc.c, conf.c: obtain_malloc_conf). Later ones win.

    The environment of a live process is asked for this one variable; 5.3.1 keeps a copy of it, which cores have too.
    """
    names = context.symbols.public_names
    environment, prefix = names.conf_variable, names.prefix or ""
    kept = _text(context, "opt_malloc_conf_env_var")
    texts = [
        Source("--with-malloc-conf", _text(context, "config_malloc_conf")),
        Source("the variable %smalloc_conf" % prefix, _text(context, "malloc_conf")),
        Source("the link /etc/malloc.conf", _text(context, "opt_malloc_conf_symlink")),
        Source("the environment, %s" % (environment or "MALLOC_CONF with an unknown prefix"), kept or _environment(context, environment)),
        Source("the variable %smalloc_conf_2_conf_harder" % prefix, _text(context, "malloc_conf_2_conf_harder")),
    ]
    return [source for source in texts if source.text]


def _environment(context: Context, name: Optional[str]) -> str:
    return (context.target.environment_variable(name) if name is not None else None) or ""


def _text(context: Context, variable: str) -> str:
    place = options.place_of(context, variable)
    value = options.value_at(context, "pointer", place) if place is not None else None
    return value if isinstance(value, str) else ""


def _set_in(name: str, given: List[Source]) -> Optional[str]:
    """The strongest source that has the option; 5.3.0 and later still take lg_tcache_max for tcache_max."""
    keys = (name, "lg_tcache_max") if name == "tcache_max" else (name,)
    for source in reversed(given):
        if any(pair.split(":")[0].strip() in keys for pair in source.text.split(",")):
            return source.name
    return None


def _unit(name: str) -> Optional[str]:
    if name.endswith("_ms"):
        return "ms"
    is_size = name.endswith(
        ("_bytes", "_max_alloc", "oversize_threshold", "hugification_threshold", "purge_threshold", "bytes_after_flush")
    )
    return "bytes" if is_size or name == "tcache_max" else None


MEANINGS = {
    "narenas": "number of arenas that threads are spread over",
    "narenas_ratio": "automatic arenas per CPU",
    "percpu_arena": "arenas are chosen by the CPU that a thread runs on",
    "oversize_threshold": "requests of this size or larger come from a separate arena, which purges at once",
    "dirty_decay_ms": "unused dirty pages are returned to the OS, or become muzzy, over this time",
    "muzzy_decay_ms": "muzzy pages (the kernel may take them already) are returned to the OS over this time",
    "background_thread": "jemalloc's own threads purge; without them only threads that allocate or free do",
    "max_background_threads": "maximum number of background threads",
    "retain": "address space of purged extents is kept for reuse instead of being unmapped",
    "tcache": "each thread caches blocks that it freed",
    "lg_tcache_max": "log2 of the largest size that thread caches keep",
    "tcache_max": "largest size that thread caches keep",
    "tcache_nslots_small_max": "maximum number of blocks of a small size class in one cache",
    "tcache_nslots_large": "maximum number of blocks of a large size class in one cache",
    "metadata_thp": "transparent huge pages for jemalloc's own data",
    "thp": "transparent huge pages for the program's memory",
    "hpa": "the huge page allocator serves requests up to hpa_slab_max_alloc",
    "lg_extent_max_active_fit": "log2 of how many times larger than a request an unused extent may be to be reused for it",
    "dss": "memory from sbrk: disabled, before (primary) or after (secondary) mmap",
    "cache_oblivious": "large allocations start at random cache lines: a page more each",
    "zero_realloc": "what realloc(p, 0) does",
    "junk": "memory is filled on allocation or free: slow, and touches every page",
    "zero": "new memory is zeroed",
    "abort_conf": "an invalid option aborts the program",
    "prof": "allocations are sampled for heap profiles: `%s`" % ask("profile -o heap.prof"),
    "prof_active": "sampling is on",
    "lg_prof_sample": "log2 of the mean number of bytes between samples",
    "prof_accum": "profiles include everything that was ever allocated",
    "disable_large_size_classes": "usable sizes of large blocks are whole pages instead of size classes",
    "trust_madvise": "jemalloc assumes that memory returned with madvise is zeroed",
}
OTHER_NAMES = {"prof_time_res": "prof_time_resolution"}
"""What malloc_stats_print calls one way, and mallctl another."""


def _meaning(name: str, value: Any, now: Any) -> str:
    """What the option does; what the value in force says, where that matters."""
    text = MEANINGS.get(name, "")
    force = value if now is None else now
    remark = _REMARKS.get((name, force), "") if isinstance(force, (bool, int)) else ""
    if name in ("dirty_decay_ms", "muzzy_decay_ms") and now is not None and now != value:
        remark += ("; " if remark else "") + ("changed for arenas made since then: `%s` shows the value of each arena" % ask("decay"))
    return text + ("; " if text and remark else "") + remark


_REMARKS = {
    ("dirty_decay_ms", -1): "never: nothing is purged",
    ("dirty_decay_ms", 0): "at once",
    ("muzzy_decay_ms", -1): "never",
    ("muzzy_decay_ms", 0): "at once: dirty pages are returned to the OS directly",
    ("background_thread", False): "off: unused pages of idle threads' arenas stay",
    ("narenas", 1): "one arena for all threads",
    ("oversize_threshold", 0): "off",
    ("tcache", False): "off",
    ("retain", False): "off: purged memory is unmapped",
}
"""What a value in force says."""
