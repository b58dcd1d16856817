"""Read the options in force, where they were set, how the build was configured, and what other options would do."""

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.allocators.answers import BOUNDED, Effect, effect_of_restart, in_force
from gdbheapx.allocators.measured import BACKGROUND, DECAY_NONE, NO_TCACHE, ONE_ARENA
from gdbheapx.common import findings
from gdbheapx.common.columns import add_values
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Check, HistogramRow
from gdbheapx.common.units import count_noun, format_number
from gdbheapx.jemalloc.arenas import ArenaHandle, JemallocContext
from gdbheapx.jemalloc.decay import read_background
from gdbheapx.jemalloc.find import STRIPPED, suggest_file
from gdbheapx.jemalloc.layouts import has_ticker_bug, keeps_profile_text, list_config_names, takes_cache_oblivious
from gdbheapx.jemalloc.records import JemallocArena, JemallocConditions, RefusedOption
from gdbheapx.jemalloc.symbols import PROFILER
from gdbheapx.jemalloc.threads import Tsds
from gdbheapx.layout.pack import shipped_text

OptionValue = Union[None, bool, int, str]

TEXT_BYTES = 4096
"""Longest text of an option that is read."""

ENUM_NAMES: Dict[str, Tuple[str, ...]] = {
    "percpu_arena": ("percpu", "phycpu", "disabled", "percpu", "phycpu"),
    "metadata_thp": ("disabled", "auto", "always"),
    "thp": ("default", "always", "never", "not supported"),
    "system_thp": ("madvise", "always", "never", "not supported"),
    "zero_realloc": ("alloc", "free", "abort"),
    "hpa_hugify_style": ("auto", "none", "eager", "lazy"),
    "prof_time_res": ("default", "high"),
    "dss": ("disabled", "primary", "secondary", "N/A"),
}
"""What jemalloc calls the values of its enums (percpu_arena_mode_names in arena.c and the other *_names): the same in every release."""


OPTIONS_FILE = "jemalloc.options"


class JemallocOption(NamedTuple):
    """An option of some release; a build has those whose variables it has."""

    name: str
    """As in MALLOC_CONF, without `opt.`."""
    kind: str
    """`bool`, `unsigned`, `size`, `ssize`, `int64`, `uint64`, `pointer` (char *), `text` (char []), `fxp`, or a key of ENUM_NAMES."""
    variable: str
    """The variable that has its value, or a member of one."""
    needs: Optional[str] = None
    """The build-time option without which it does not exist (ctl.c: CTL_RO_NL_CGEN)."""
    live: Optional[str] = None
    """The mallctl name under which it is changed at run time."""
    meaning: str = ""
    """Its effect; empty for options that hardly matter to memory."""


def _parse_options(text: str) -> List[JemallocOption]:
    options = []
    for line in text.strip().split("\n"):
        if not line.startswith("#"):
            head, _, meaning = line.partition(": ")
            name, kind, *words = head.split()
            extra = dict(word.split("=") for word in words)
            meaning = re.sub("{(.*?)}", lambda command: hint_command(command.group(1)), meaning)
            variable = extra.get("in", "opt_" + name)
            options.append(JemallocOption(name, kind, variable, extra.get("needs"), extra.get("live"), meaning))
    return options


OPTIONS, UNPRINTED = map(_parse_options, shipped_text(OPTIONS_FILE).split("\n--\n"))
"""Options that malloc_stats_print shows, in its order (stats.c: stats_general_print), and those that it leaves out."""
OPTION_MEANINGS = {option.name: option.meaning for option in OPTIONS + UNPRINTED}

SIGNED_KINDS = ("ssize", "int64")
KIND_WIDTHS = {"bool": 1, "unsigned": 4, "fxp": 4, "int64": 8, "uint64": 8}
"""sizeof where it is no word."""


OPTION_STRUCTS = {"opt_hpa_opts": "hpa_shard_opts_s", "opt_hpa_sec_opts": "sec_opts_s"}
"""The structs that hold options."""


def read_jemalloc_option(context: JemallocContext, kind: str, variable: str) -> Tuple[bool, OptionValue]:
    """(this build has the variable, or the member of one; its value, None where it cannot be read or the number has no name)."""
    name, _, path = variable.partition(".")
    symbol, target = context.symbols.find(name), context.target
    if symbol is None:
        return False, None
    address, size = symbol.address, context.symbols.size_bytes(name)
    if path:
        typed = context.types.variables.get(name)
        struct = typed.struct if typed is not None and typed.struct else OPTION_STRUCTS.get(name, "")
        member = context.types.place(struct, path)
        if member is None:
            return False, None
        address, size = address + member.offset, member.size_bytes
    if kind == "text":
        return True, target.text_at(address, min(size or TEXT_BYTES, TEXT_BYTES))
    width = 4 if kind in ENUM_NAMES else KIND_WIDTHS.get(kind, context.geometry.word_bytes)
    data = target.read_prefix(address, width)
    if len(data) < width:
        return True, None
    number = int.from_bytes(data, target.byte_order, signed=kind in SIGNED_KINDS)
    if kind == "pointer":
        return True, target.text_at(number, TEXT_BYTES) if number else None
    if kind == "bool":
        return True, bool(number)
    if kind in ENUM_NAMES:
        return True, name_enum_value(kind, number)
    return True, format_fixed_point(number) if kind == "fxp" else number


def name_enum_value(kind: str, number: Optional[int]) -> Optional[str]:
    """jemalloc's word for the value of an enum; None if it has none."""
    names = ENUM_NAMES[kind]
    return names[number] if number is not None and 0 <= number < len(names) else None


def format_fixed_point(number: int) -> str:
    """Write an fxp_t, a fixed-point number with 16 fractional bits, as fxp_print (fxp.c) does; all ones are -1, which switches the option
    off."""
    if number == 0xFFFFFFFF:
        return "-1"
    digits = "%014d" % ((number & 0xFFFF) * 10**14 >> 16)
    return "%d.%s" % (number >> 16, digits.rstrip("0") or "0")


_RUNNING = (
    ("background_thread", "bool", ("background_thread_enabled_state",)),
    ("arenas.dirty_decay_ms", "ssize", ("dirty_decay_ms_default",)),
    ("arenas.muzzy_decay_ms", "ssize", ("muzzy_decay_ms_default",)),
    ("prof.active", "bool", ("prof_active_state", "prof_active")),
    ("prof.thread_active_init", "bool", ("prof_thread_active_init",)),
    ("prof.gdump", "bool", ("prof_gdump_val",)),
    ("prof.interval", "uint64", ("prof_interval",)),
    ("prof.lg_sample", "ssize", ("lg_prof_sample",)),
)
"""Mallctl name, kind, variables; `prof.gdump` and `prof.interval` are no options."""


def read_running(context: JemallocContext) -> Dict[str, OptionValue]:
    """Read the values that replaced options at run time, by mallctl name; None if unknown. Without opt.prof the switches of the profile
    are false, whatever their variables hold (ctl.c, from 5.3.0)."""
    values: Dict[str, OptionValue] = {}
    prof = context.variable("opt_prof", 1)
    for name, kind, variables in _RUNNING:
        readings = (read_jemalloc_option(context, kind, variable) for variable in variables)
        value = next((value for has, value in readings if has), None)
        if kind == "bool" and name.startswith("prof.") and prof == 0 and context.symbols.find("prof_active_state") is not None:
            value = False
        values[name] = value
    return values


CONF_VARIABLES = ("MALLOC_CONF", "_RJEM_MALLOC_CONF", "JE_MALLOC_CONF")
"""Of builds without a prefix, of Rust's crates, and of builds with jemalloc's usual prefix."""


def list_unread_variables(context: JemallocContext) -> List[str]:
    """Variables with options for some jemalloc that are in the environment, and that this build does not read."""
    own = context.symbols.public_names.conf_variable
    return [name for name in CONF_VARIABLES if own not in (None, name) and context.target.environment_variable(name)]


def read_jemalloc_options(context: JemallocContext) -> List[Tuple[JemallocOption, Any]]:
    """Every option of this build with its value, those that no table knows by their variables' sizes; in the order of
    malloc_stats_print."""
    options, known = [], set()
    for option in OPTIONS + UNPRINTED:
        has, value = read_jemalloc_option(context, option.kind, option.variable)
        if has:
            known.add(option.variable.partition(".")[0])
            options.append((option, value))
    for name in context.symbols.names("opt_"):
        if name not in known:
            option = JemallocOption(name[4:], _guess_kind(context, name), name)
            options.append((option, read_jemalloc_option(context, option.kind, name)[1]))
    return options


def _guess_kind(context: JemallocContext, name: str) -> str:
    """Guess the kind of an unlisted option by its type, else by its size."""
    typed = context.types.variables.get(name)
    if typed is not None:
        by_type = {"bool": "bool", "string": "pointer", "char": "text", "int": "ssize"}.get(typed.kind)
        if by_type and not (by_type == "ssize" and typed.size_bytes != context.geometry.word_bytes):
            return by_type
    size = context.symbols.size_bytes(name)
    return {1: "bool", 4: "unsigned", 8: "uint64"}.get(size or 0, "size")


TunableValue = Union[bool, int, str, None]


class JemallocTunable(NamedTuple):
    """An option with its values, source and meaning."""

    name: str
    """As mallctl names it, `opt.dirty_decay_ms`."""
    value: TunableValue
    """As jemalloc read it at its start: bool, number, or text; None if it cannot be read."""
    now: TunableValue
    """What is in force since it was changed at run time; None for options that cannot be."""
    unit: Optional[str]
    """`bytes`, `ms` or None."""
    set_in: Optional[str]
    """Which of the sources sets it; None where none of those that can be seen does."""
    meaning: str
    """What it does, and what its value says here; empty for options that hardly matter to memory."""


class OptionSource(NamedTuple):
    """A place that options are read from, the weakest first."""

    name: str
    text: str


class BackgroundThreads(NamedTuple):
    """Counts of the threads that purge."""

    enabled: Optional[bool]
    max: Optional[int]
    running: Optional[int]
    runs: Optional[int]
    run_interval_ms: Optional[float]


class JemallocTunables(NamedTuple):
    """The answer of `tunables` for one instance."""

    tunables: Optional[List[JemallocTunable]]
    """None in builds without symbols, unless the program's or the library's file has the names."""
    sources: Optional[List[OptionSource]]
    """None where none was found, and it is not known where to look."""
    background_threads: BackgroundThreads
    refused: Sequence[RefusedOption] = ()
    unread_variables: Sequence[str] = ()
    """In the environment, with options for some jemalloc; this build does not read them."""


def read_tunables(context: JemallocContext, has_stats: Callable[[], Optional[bool]]) -> JemallocTunables:
    """Every option of this build, those that its malloc_stats_print does not show too. `has_stats`: it counts background threads' runs,
    asked where there are such threads."""
    given = read_option_sources(context)
    unheeded = find_refused(context, given)
    given_in = {(one.source, one.option.partition(":")[0]) for one in unheeded}

    def set_in(name: str) -> Optional[str]:
        return _find_source(name, [source for source in given if (source.name, name) not in given_in])

    running = read_running(context)
    rows = []
    for option, value in read_jemalloc_options(context):
        is_idle, name = option.needs == "prof" and not context.variable("opt_prof", 1), option.name
        now = running.get(option.live) if option.live and not is_idle else None
        rows.append(JemallocTunable("opt." + name, value, now, _find_unit(name), set_in(name), _explain_option(name, value, now)))
    told = {row.name[4:] for row in rows} | {OTHER_OPTION_NAMES.get(row.name[4:]) for row in rows}
    for name in [name[4:] for name in context.symbols.option_names]:
        if name not in told:
            rows.append(JemallocTunable("opt." + name, None, None, _find_unit(name), set_in(name), OPTION_MEANINGS.get(name, "")))
    threads, is_unknown = read_background(context), context.symbols.by_structure
    interval_ns, counts_none = threads.run_interval_ns, is_unknown or (bool(threads.enabled) and not has_stats())
    known = BackgroundThreads(
        enabled=threads.enabled,
        max=context.variable("max_background_threads"),
        running=(threads.named or len(threads.running)) if threads.enabled else None if is_unknown else 0,
        runs=None if counts_none else threads.runs,
        run_interval_ms=None if counts_none or interval_ns is None else interval_ns / 1e6,
    )
    found = None if is_unknown and not rows else rows
    return JemallocTunables(found, given if found is not None else given or None, known, unheeded, list_unread_variables(context))


OTHER_KEYS = (
    *("bin_shards", "slab_sizes", "lg_tcache_max", "tcache_max", "tcache_ncached_max", "prof_time_resolution", "log"),
    "hpa_hugification_threshold_ratio",
)
"""What jemalloc.c and conf.c (malloc_conf_init_helper) take in some release, and no variable opt_ is called."""
NUMBER_TEXT = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)")
NUMBER_KINDS = ("unsigned", "size", "ssize", "int64", "uint64")


def find_refused(context: JemallocContext, given: Sequence[OptionSource]) -> List[RefusedOption]:
    """Options in the sources that are not in force. Said only of what no release takes, and of values that can be compared."""
    pairs = [(source.name, pair) for source in given for pair in source.text.split(",") if pair]
    last = {pair.partition(":")[0]: place for place, (_, pair) in enumerate(pairs)}
    known = {option.name: option for option in OPTIONS + UNPRINTED}
    rows = []
    for place, (source, pair) in enumerate(pairs):
        name, colon, text = pair.partition(":")
        option = known.get(name)
        why = "not of the form name:value" if not colon else _explain_refusal(context, name, option, text, last[name] == place)
        if why is not None:
            rows.append(RefusedOption(source, pair, why))
    return rows


def _explain_refusal(context: JemallocContext, name: str, option: Optional[JemallocOption], text: str, is_last: bool) -> Optional[str]:
    """Explain why jemalloc refused an option; None if it took it, or nothing shows."""
    if option is None:
        is_taken = name in OTHER_KEYS or name.startswith("experimental_") or context.symbols.find("opt_" + name) is not None
        return None if is_taken or "opt_" + name in context.symbols.option_names else "jemalloc has no such option"
    if option.kind == "bool" and text not in ("true", "false"):
        return "neither true nor false"
    if option.kind in NUMBER_KINDS and not NUMBER_TEXT.fullmatch(text) and (name, text) != ("narenas", "default"):
        return "not a number"
    is_comparable = is_last and (option.kind == "bool" or name.endswith("_decay_ms"))
    value = read_jemalloc_option(context, option.kind, option.variable)[1] if is_comparable else None
    if value is None or value == (text == "true" if option.kind == "bool" else int(text, 0 if "x" in text.lower() else 10)):
        return None
    return "%s is in force" % (str(value).lower() if option.kind == "bool" else value)


def read_option_sources(context: JemallocContext) -> List[OptionSource]:
    """The strings that options were read from, as far as they can be seen (jemalloc.c, conf.c: obtain_malloc_conf). Later ones win.

    The environment of a live process is asked for this one variable; 5.3.1 keeps a copy of it, which cores have too.
    """
    names = context.symbols.public_names
    environment, prefix = names.conf_variable, names.prefix or ""
    told = (context.target.environment_variable(environment) if environment is not None else None) or ""
    places = (
        ("--with-malloc-conf", "config_malloc_conf", ""),
        ("the variable %smalloc_conf" % prefix, "malloc_conf", ""),
        ("the link /etc/malloc.conf", "opt_malloc_conf_symlink", ""),
        ("the environment, %s" % (environment or "MALLOC_CONF with an unknown prefix"), "opt_malloc_conf_env_var", told),
        ("the variable %smalloc_conf_2_conf_harder" % prefix, "malloc_conf_2_conf_harder", ""),
    )
    sources = []
    for name, variable, other in places:
        value = read_jemalloc_option(context, "pointer", variable)[1]
        if value or other:
            sources.append(OptionSource(name, str(value or other)))
    return sources


def _find_source(name: str, given: List[OptionSource]) -> Optional[str]:
    """The strongest source that has the option; 5.3.0 and later still take lg_tcache_max for tcache_max."""
    keys = (name, "lg_tcache_max") if name == "tcache_max" else (name,)
    for source in reversed(given):
        if any(pair.split(":")[0].strip() in keys for pair in source.text.split(",")):
            return source.name
    return None


def _find_unit(name: str) -> Optional[str]:
    if name.endswith("_ms"):
        return "ms"
    is_size = name.endswith(
        ("_bytes", "_max_alloc", "oversize_threshold", "hugification_threshold", "purge_threshold", "bytes_after_flush")
    )
    return "bytes" if is_size or name == "tcache_max" else None


OTHER_OPTION_NAMES = {"prof_time_res": "prof_time_resolution"}
"""What malloc_stats_print calls one way, and mallctl another."""


def _explain_option(name: str, value: Any, now: Any) -> str:
    """Describe an option, with the meaning of its value if that matters."""
    text = OPTION_MEANINGS.get(name, "")
    force = value if now is None else now
    remark = _REMARKS.get((name, force), "") if isinstance(force, (bool, int)) else ""
    if name in ("dirty_decay_ms", "muzzy_decay_ms") and now is not None and now != value:
        since = "changed for arenas made since then: `%s` shows the value of each arena"
        remark += ("; " if remark else "") + since % hint_command("decay")
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


MAX_ARENAS_TRIED = 64
"""Arenas that are looked at for evidence; the first one used has some."""
Config = Dict[str, Optional[bool]]


def counts_stats(context: JemallocContext, listed: Sequence[ArenaHandle]) -> Optional[bool]:
    """True if a bin has a current slab and counts slabs, False if bins have slabs and none counts them, None if no bin has one.

    arena.c counts curslabs before a slab becomes slabcur, under `if (config_stats)`: 5.0 to 5.3.1.
    """
    struct = context.jemalloc.bin_struct
    if context.types.place(struct, "stats.curslabs") is None:
        return None
    uncounted = False
    for arena in listed[:MAX_ARENAS_TRIED]:
        try:
            addresses = context.jemalloc.find_bin_addresses(arena.read())
            views = [context.view(struct, address) for shards in addresses for address in shards]
            if any(view.get("stats.curslabs") for view in views):
                return True
            uncounted = uncounted or any(view["slabcur"] for view in views)
        except (UnreadableMemory, KeyError):
            continue
    return False if uncounted else None


def read_config(context: JemallocContext, listed: Sequence[ArenaHandle]) -> Config:
    """Read every build-time switch that malloc_stats_print of this release shows, in its order, and `enable_cxx`; None for unknown ones.

    The const config_NAME of jemalloc_preamble.h are read. Without them `debug`, `prof` and `stats` follow from what is in memory.
    """
    switches: Config = {}
    for name in (*list_config_names(context.jemalloc.version), "enable_cxx"):
        constant = context.symbols.constant("config_" + name)
        switches[name] = None if constant is None else bool(constant)
        if constant is not None:
            continue
        if name == "stats":
            switches[name] = counts_stats(context, listed)
        elif name == "prof":
            switches[name] = can_profile(context)
        elif name == "debug":  # only locks of a debugging build have a witness apart from the counters (mutex.h)
            witness = context.types.place("malloc_mutex_s", "witness")
            switches[name] = None if witness is None else witness.offset > 0
        elif name == "cache_oblivious":  # the option (from 5.3.0) is on by default only in builds that have it
            switches[name] = True if context.variable("opt_cache_oblivious", 1) == 1 else None
    return switches


def can_profile(context: JemallocContext) -> Optional[bool]:
    """config.prof alone."""
    constant, told = context.symbols.constant("config_prof"), context.symbols.texts.profiles
    if constant is not None or not told or not keeps_profile_text(context.jemalloc.version):
        return told if constant is None else bool(constant)
    size_bytes = context.symbols.size_bytes(PROFILER)
    return None if size_bytes is None else size_bytes > 0


TSD_WAYS = {
    "static-tls": "a constant offset from the thread pointer",
    "dtv": "the thread's vector of TLS blocks",
    "libthread_db": "libthread_db",
}


def list_checks(context: JemallocContext, listed: Sequence[ArenaHandle], tsds: Tsds) -> List[Check]:
    """List how the build was recognised, its names, constants and switches, and the way to each thread's tsd."""
    checks = [*_check_structure(context), _check_names(context), _check_proof(context), _check_constants(context)]
    config, words = read_config(context, listed), {True: "yes", False: "no", None: "unknown"}
    text = "built with statistics: %s, with heap profiling: %s" % (words[config["stats"]], words[config["prof"]])
    nulls = "counters (sweeps, requests, mapped, metadata) are null; the walk counts extents and regions"
    return [*checks, Check("", None, text, nulls if config["stats"] is False else None), _check_tsd(context, tsds)]


def _check_structure(context: JemallocContext) -> List[Check]:
    """Report that no name was found, and what that costs."""
    jemalloc = context.jemalloc
    if not context.symbols.by_structure:
        return [Check("", None, "the layout of %s fits its arenas" % jemalloc.fitting, None)] if jemalloc.fitting else []
    slabs, is_good = count_noun(jemalloc.calibrated_slabs, "slab"), bool(jemalloc.calibrated_slabs)
    arenas = "%s %s own index" % (count_noun(jemalloc.named_arenas, "arena"), "names its" if jemalloc.named_arenas == 1 else "name their")
    if jemalloc.fitting is None:
        text = "found by structure: no known layout fits, %s, %s confirmed by the radix tree" % (arenas, slabs)
        without = "only its extents are read: counters, threads, caches and decay are unknown"
    else:
        sure = "%s confirm it" % slabs if is_good else "no slab confirms it yet: figures may be incomplete"
        text = "found by structure: the layout of %s fits, %s, %s" % (jemalloc.fitting, arenas, sure)
        without = "no names: global locks, the heap profile, background threads' counters and some options are unknown"
    debug_hint = suggest_file(context.target, jemalloc.module, STRIPPED)
    return [Check("", None if jemalloc.fitting is None else is_good, text, None), Check("", None, without, debug_hint)]


def _check_names(context: JemallocContext) -> Check:
    text = "built as %s" % (context.jemalloc.version_text or "an unreadable version")
    if not context.symbols.by_structure:
        text += ", private names begin with `%s`" % context.symbols.prefix
    prefix = context.symbols.public_names.prefix
    if prefix is None:
        return Check("", None, text + ", the prefix of its public names is unknown", None)
    text += ", public names with `%s`" % prefix if prefix else ", public names have no prefix"
    if prefix and context.jemalloc.owns_malloc is False:
        text += ": code that calls %smalloc gets its memory here, code that calls malloc does not" % prefix
    if prefix:
        text += "; it reads options from %s" % context.symbols.public_names.conf_variable
    unread = list_unread_variables(context)
    if unread:
        text += "; it does not read %s, which %s in the environment" % (" and ".join(unread), "is" if len(unread) == 1 else "are")
    return Check("", None, text, None)


def _check_proof(context: JemallocContext) -> Check:
    jemalloc = context.jemalloc
    if context.variable("malloc_init_state", 4) not in (None, 0):  # malloc_init_initialized
        return Check("", False, "jemalloc is still being initialised: its figures may be incomplete", "retry")
    if not jemalloc.calibrated_slabs:
        whose = "has its" if jemalloc.named_arenas == 1 else "have their"
        named = ", but %s %s own index where these types expect it" % (count_noun(jemalloc.named_arenas, "arena"), whose)
        text = "not yet verified on any slab: no bin has one" + (named if jemalloc.named_arenas else "")
        return Check("", None, text, "retry when the program has allocated memory")
    return Check("", True, "types and constants verified on %s" % count_noun(jemalloc.calibrated_slabs, "slab"), None)


def _check_constants(context: JemallocContext) -> Check:
    geometry, shape = context.geometry, context.geometry.rtree
    quantum = geometry.size_classes[2] - geometry.size_classes[1]
    levels = "+".join(map(str, shape.levels))
    leaves = "one word" if shape.compact else "two words"
    text = "pages of %d bytes, quantum %d, %d bins of %d size classes, "
    text += "radix tree of %d levels (%s bits of %d, leaf elements of %s), narenas %s"
    sizes = (geometry.page_bytes, quantum, geometry.nbins, len(geometry.size_classes))
    tree = (len(shape.levels), levels, shape.lg_vaddr, leaves)
    return Check("", None, text % (*sizes, *tree, "unknown" if context.symbols.by_structure else geometry.narenas), None)


def _check_tsd(context: JemallocContext, tsds: Tsds) -> Check:
    local, threads = context.symbols.find_thread_locals(), len(context.target.threads())
    if local is None:
        unknown = "cached blocks count as used if their cache is not on the arenas' lists, and blind threads may go undetected"
        return Check("thread caches", False, "thread-local storage of this jemalloc not found", unknown)
    way = TSD_WAYS.get(local.way, "an unknown way")
    known = sum(1 for record in tsds.records if record.state is not None)
    text = "tsd read for %s of %s, by %s" % (format_number(known), count_noun(threads, "thread"), way)
    whole = known >= threads
    hint = None if whole else "caches and tickers of the other threads are unknown; see the problems below"
    return Check("thread caches", whole, text, hint)


def read_conditions(context: JemallocContext, listed: Sequence[ArenaHandle]) -> JemallocConditions:
    """Read what decides when its unused pages go back to the kernel."""
    threads = read_background(context)
    started = [thread for thread in threads.threads if thread.state == "started"]
    asked = _read_switch(context.variable("opt_background_thread", 1))
    prof = _read_switch(context.variable("opt_prof", 1))
    thp = context.variable("opt_thp", 4)
    configured = read_config(context, listed)
    variable = context.symbols.public_names.conf_variable
    is_set = variable is not None and context.target.environment_variable(variable)
    return JemallocConditions(
        names=context.symbols.public_names,
        has_stats=configured["stats"],
        has_ticker_bug=has_ticker_bug(context.types, context.jemalloc.version),
        thp=None if thp is None else dict(enumerate(ENUM_NAMES["thp"])).get(thp),
        background_enabled=threads.enabled,
        background_asked=asked,
        background_running=threads.named or len(started),
        prof=prof,
        has_prof=configured["prof"],
        dirty_decay_asked_ms=context.variable("opt_dirty_decay_ms", signed=True),
        prof_asked=_read_switch(context.variable("opt_prof_active", 1)) if prof else None,
        prof_active=_read_switch(read_running(context)["prof.active"]) if prof else None,
        unread_variables=list_unread_variables(context),
        refused=find_refused(context, read_option_sources(context)) if is_set else (),
        has_oblivious_option=takes_cache_oblivious(context.jemalloc.version),
    )


def _read_switch(value: Any) -> Optional[bool]:
    return None if value is None else bool(value)


# ---------------------------------------------------------------------------------------------------- effects of another setting


def list_jemalloc_effects(
    arenas: Sequence[JemallocArena], conditions: JemallocConditions, ends_bytes: int, regions_bytes: int, is_set: bool = False
) -> List[Effect]:
    """Return the effect of each option once. Where the build's environment variable is unknown, the setting says so. `ends_bytes`: see
    ends(). `regions_bytes`: free regions of slabs. `is_set`: the variable has a value.
    """

    def make_setting(options: str) -> str:
        return conditions.names.setting(options) + (" (added to its present value)" if is_set else "")

    free, most = add_values((sum_jemalloc_free(arenas), ends_bytes)), add_values((_unused_bytes(arenas), ends_bytes))
    return [
        _predict_decay(arenas, most, make_setting(DECAY_NONE.value)),
        _predict_background(arenas, conditions, most, make_setting(BACKGROUND.value)),
        _predict_arenas(arenas, free, regions_bytes, make_setting(ONE_ARENA.value)),
        _predict_caches(arenas, free, add_values((most, regions_bytes)), make_setting(NO_TCACHE.value)),
        effect_of_restart(free),
    ]


def sum_jemalloc_free(arenas: Sequence[JemallocArena]) -> Optional[int]:
    """Return the bytes in these arenas that the program does not use; of dirty and muzzy pages only those in RAM, where that is known.
    None where a part is unknown.
    """
    unused = _unused_bytes(arenas)
    active = add_values(arena.active_bytes for arena in arenas)
    held = None if unused is None or active is None else active + unused
    used = add_values(
        add_values((arena.used_bytes, arena.rounding_bytes or 0)) for arena in arenas
    )  # what blocks are rounded up by stays with them
    return None if held is None or used is None else max(0, held - used)


def _unused_bytes(arenas: Sequence[JemallocArena]) -> Optional[int]:
    unused = add_values(arena.reclaimable_resident_bytes for arena in arenas)
    return unused if unused is not None else add_values(part for arena in arenas for part in (arena.dirty_bytes, arena.muzzy_bytes))


def sum_unwritten_ends(sizes: Sequence[HistogramRow], page_bytes: int) -> int:
    """Whole pages at the ends of large blocks, up to the next smaller class: a program that asked for less never wrote there, and they are
    in RAM only if they were dirty when the block was made."""
    total = 0
    for row in sizes:
        step = 1 << max(0, (row.size_bytes - 1).bit_length() - 3)
        total += row.used_chunks * max(0, step - page_bytes)
    return total


def _list_causes(arenas: Sequence[JemallocArena]) -> Sequence[str]:
    """Return the codes of the reasons why unused pages stay."""
    if any(arena.dirty_decay_ms == -1 and arena.dirty_bytes for arena in arenas):
        return (findings.PURGING_OFF,)
    if any(arena.muzzy_decay_ms == -1 and arena.muzzy_bytes for arena in arenas):
        return (findings.UNUSED_PAGES,)
    return (findings.PURGED_BY_CALLS,)


def _predict_decay(arenas: Sequence[JemallocArena], most: Optional[int], setting: str) -> Effect:
    times = [time for arena in arenas for time in (arena.dirty_decay_ms, arena.muzzy_decay_ms)]
    if times and not any(time is None or time for time in times):
        return in_force("decay", setting, "both decay times are 0 in every arena")
    why = "dirty and muzzy pages in RAM; at most unwritten ends of large blocks, too; free regions in slabs stay"
    cost = "a system call for each freed extent, and page faults for memory that is used again"
    least, acts_on = add_values(arena.reclaimable_resident_bytes for arena in arenas), _unused_bytes(arenas)
    return Effect("decay", setting, BOUNDED, least, most, why, cost, acts_on_bytes=acts_on, by=DECAY_NONE, causes=_list_causes(arenas))


def _predict_background(arenas: Sequence[JemallocArena], conditions: JemallocConditions, most: Optional[int], setting: str) -> Effect:
    if conditions.background_enabled:
        return in_force("background-threads", setting, "background threads are on")
    if conditions.background_asked:
        return in_force("background-threads", setting, "they were asked for at the start, and the program or a fork turned them off")
    why = "dirty and muzzy pages go by time: at most all of them, and unwritten ends of large blocks"
    cost = "up to one thread for each CPU, which wakes to purge"
    by, causes, acts_on = BACKGROUND, _list_causes(arenas), _unused_bytes(arenas)
    return Effect("background-threads", setting, BOUNDED, 0, most, why, cost, may_peak=True, acts_on_bytes=acts_on, by=by, causes=causes)


def _predict_caches(arenas: Sequence[JemallocArena], free: Optional[int], kept: Optional[int], setting: str) -> Effect:
    """`kept`: free regions and unused pages, without what large blocks leave of their class. Threads that wait for locks take another
    course: together they may hold more than they ever did."""
    is_alone = _count_automatic(arenas) == 1
    why = "cached blocks keep their slabs: at most these, free regions, and unused pages; "
    why += "at worst as much stays as was ever in RAM" if is_alone else "threads that wait may hold their most at the same time"
    acts_on, cost = add_values(arena.cached_bytes for arena in arenas), "each malloc and free takes the lock of its bin"
    most = free if free is None or kept is None or acts_on is None else min(free, kept + acts_on)
    least, causes = 0 if is_alone else None, (findings.THREAD_CACHES,)
    return Effect(
        "thread-caches", setting, BOUNDED, least, most, why, cost, may_peak=True, acts_on_bytes=acts_on, by=NO_TCACHE, causes=causes
    )


def _count_automatic(arenas: Sequence[JemallocArena]) -> int:
    return sum(arena.kind == "auto" for arena in arenas)


def _predict_arenas(arenas: Sequence[JemallocArena], free: Optional[int], regions_bytes: int, setting: str) -> Effect:
    count = _count_automatic(arenas)
    if count == 1:
        return in_force("arenas", setting, "there is one arena")
    why = "at most the free memory of %s, and all memory of all but the largest; at worst one keeps all that was ever in RAM"
    why %= count_noun(count, "arena")
    held = [add_values((arena.active_bytes, arena.dirty_bytes, arena.muzzy_bytes)) for arena in arenas]
    known = [one for one in held if one is not None]
    most = free if free is None or len(known) < len(held) else min(free, sum(known) - max(known))
    cost, by, causes = "threads wait for the locks of one arena: how long is not known", ONE_ARENA, (findings.MANY_ARENAS,)
    return Effect("arenas", setting, BOUNDED, 0, most, why, cost, may_peak=True, acts_on_bytes=regions_bytes, by=by, causes=causes)
