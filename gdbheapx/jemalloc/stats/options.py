"""The options of a build with the values in force: the variables opt_*, and those that took over when one was changed at run time."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import Member
from gdbheapx.jemalloc.context import Context

Value = Union[None, bool, int, str]

TEXT_BYTES = 4096
"""Longest text of an option that is read."""

NAMES: Dict[str, Tuple[str, ...]] = {
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


class Option(NamedTuple):
    """One option as malloc_stats_print shows it."""

    name: str
    """Behind `opt.`."""
    kind: str
    """`bool`, `unsigned`, `size`, `ssize`, `int64`, `uint64`, `pointer` (char *), `text` (char []), `fxp`, or a key of NAMES."""
    variable: str
    """Where its value lies: a variable, or a member of one."""
    needs: Optional[str] = None
    """The build-time option without which it does not exist (ctl.c: CTL_RO_NL_CGEN)."""
    live: Optional[str] = None
    """The mallctl name under which it is changed at run time."""


def _options(text: str) -> List[Option]:
    options = []
    for line in text.split("\n"):
        words = line.split()
        if words:
            extra = dict(word.split("=") for word in words[2:])
            options.append(Option(words[0], words[1], extra.get("in", "opt_" + words[0]), extra.get("needs"), extra.get("live")))
    return options


OPTIONS = _options(
    """
    abort bool
    abort_conf bool
    cache_oblivious bool
    confirm_conf bool
    experimental_hpa_start_huge_if_thp_always bool
    experimental_hpa_enforce_hugify bool
    retain bool
    dss pointer
    narenas unsigned
    percpu_arena percpu_arena
    oversize_threshold size
    hpa bool
    hpa_slab_max_alloc size in=opt_hpa_opts.slab_max_alloc
    hpa_hugification_threshold size in=opt_hpa_opts.hugification_threshold
    hpa_hugify_delay_ms uint64 in=opt_hpa_opts.hugify_delay_ms
    hpa_hugify_sync bool in=opt_hpa_opts.hugify_sync
    hpa_min_purge_interval_ms uint64 in=opt_hpa_opts.min_purge_interval_ms
    experimental_hpa_max_purge_nhp ssize in=opt_hpa_opts.experimental_max_purge_nhp
    hpa_dirty_mult fxp in=opt_hpa_opts.dirty_mult
    hpa_purge_threshold size in=opt_hpa_opts.purge_threshold
    hpa_min_purge_delay_ms uint64 in=opt_hpa_opts.min_purge_delay_ms
    hpa_hugify_style hpa_hugify_style in=opt_hpa_opts.hugify_style
    hpa_sec_nshards size in=opt_hpa_sec_opts.nshards
    hpa_sec_max_alloc size in=opt_hpa_sec_opts.max_alloc
    hpa_sec_max_bytes size in=opt_hpa_sec_opts.max_bytes
    hpa_sec_bytes_after_flush size in=opt_hpa_sec_opts.bytes_after_flush
    hpa_sec_batch_fill_extra size in=opt_hpa_sec_opts.batch_fill_extra
    huge_arena_pac_thp bool
    metadata_thp metadata_thp
    mutex_max_spin int64
    background_thread bool live=background_thread
    dirty_decay_ms ssize live=arenas.dirty_decay_ms
    muzzy_decay_ms ssize live=arenas.muzzy_decay_ms
    lg_extent_max_active_fit size
    junk pointer needs=fill
    zero bool needs=fill
    utrace bool needs=utrace
    xmalloc bool needs=xmalloc
    experimental_infallible_new bool needs=enable_cxx
    experimental_tcache_gc bool
    tcache bool
    lg_tcache_max ssize
    tcache_max size
    tcache_nslots_small_min unsigned
    tcache_nslots_small_max unsigned
    tcache_nslots_large unsigned
    lg_tcache_nslots_mul ssize
    tcache_gc_incr_bytes size
    tcache_gc_delay_bytes size
    lg_tcache_flush_small_div unsigned
    lg_tcache_flush_large_div unsigned
    debug_double_free_max_scan unsigned
    thp thp
    prof bool needs=prof
    prof_bt_max unsigned needs=prof
    prof_prefix text needs=prof
    prof_active bool needs=prof live=prof.active
    prof_thread_active_init bool needs=prof live=prof.thread_active_init
    lg_prof_sample ssize needs=prof live=prof.lg_sample
    prof_accum bool needs=prof
    lg_prof_interval ssize needs=prof
    prof_gdump bool needs=prof
    prof_final bool needs=prof
    prof_leak bool needs=prof
    prof_leak_error bool needs=prof
    stats_print bool
    stats_print_opts text
    stats_interval int64
    stats_interval_opts text
    zero_realloc zero_realloc in=opt_zero_realloc_action
    process_madvise_max_batch size
    disable_large_size_classes bool
    """
)
"""stats.c: stats_general_print, in its order, over all releases; a build has those whose variables it has."""

UNPRINTED = _options(
    """
    narenas_ratio fxp
    max_background_threads size
    trust_madvise bool
    experimental_hpa_strict_min_purge_interval bool in=opt_hpa_opts.experimental_strict_min_purge_interval
    hpa_deferral_allowed bool in=opt_hpa_opts.deferral_allowed
    junk_alloc bool
    junk_free bool
    san_guard_small size
    san_guard_large size
    lg_san_uaf_align ssize
    prof_log bool needs=prof
    prof_pid_namespace bool needs=prof
    prof_recent_alloc_max ssize needs=prof
    prof_stats bool needs=prof
    prof_sys_thread_name bool needs=prof
    prof_time_res prof_time_res needs=prof
    prof_unbias bool needs=prof
    calloc_madvise_threshold size
    malloc_conf_symlink pointer
    malloc_conf_env_var pointer
    """
)
"""Options that malloc_stats_print leaves out."""

SIGNED = ("ssize", "int64")
WIDTHS = {"bool": 1, "unsigned": 4, "fxp": 4, "int64": 8, "uint64": 8}
"""sizeof where it is no word."""


def read(context: Context, option: Option) -> Tuple[bool, Value]:
    """(this build has it, its value); the value is None where it cannot be read."""
    place = place_of(context, option.variable)
    if place is None:
        return False, None
    return True, value_at(context, option.kind, place)


def place_of(context: Context, variable: str) -> Optional[Tuple[int, Optional[int]]]:
    """(address, size_bytes if known) of a variable, or of a member of one; None if this build has none."""
    name, _, path = variable.partition(".")
    symbol = context.symbols.find(name)
    if symbol is None:
        return None
    if not path:
        return symbol.address, context.symbols.size_bytes(name)
    member = _member(context, name, path)
    return None if member is None else (symbol.address + member.offset, member.size_bytes)


STRUCTS = {"opt_hpa_opts": "hpa_shard_opts_s", "opt_hpa_sec_opts": "sec_opts_s"}
"""The structs that hold options."""


def _member(context: Context, name: str, path: str) -> Optional[Member]:
    typed = context.types.variables.get(name)
    struct = typed.struct if typed is not None and typed.struct else STRUCTS.get(name, "")
    return context.types.place(struct, path)


def value_at(context: Context, kind: str, place: Tuple[int, Optional[int]]) -> Value:
    """A value of this kind; None where it cannot be read or the number has no name."""
    address, size = place
    if kind == "text":
        return context.target.text_at(address, min(size or TEXT_BYTES, TEXT_BYTES))
    if kind == "pointer":
        pointer = integer(context, address, context.geometry.word_bytes)
        return context.target.text_at(pointer, TEXT_BYTES) if pointer else None
    width = 4 if kind in NAMES else WIDTHS.get(kind, context.geometry.word_bytes)
    number = integer(context, address, width, kind in SIGNED)
    if number is None or kind == "bool":
        return None if number is None else bool(number)
    if kind in NAMES:
        return name_of(kind, number)
    return fixed_point(number) if kind == "fxp" else number


def name_of(kind: str, number: Optional[int]) -> Optional[str]:
    """jemalloc's word for the value of an enum; None if it has none."""
    names = NAMES[kind]
    return names[number] if number is not None and 0 <= number < len(names) else None


def integer(context: Context, address: int, size_bytes: int, signed: bool = False) -> Optional[int]:
    """The number at `address`; None if it cannot be read."""
    try:
        data = context.target.read(address, size_bytes)
    except Unreadable:
        return None
    return int.from_bytes(data, context.target.byte_order, signed=signed)


def fixed_point(number: int) -> str:
    """An fxp_t, 16 bits of it behind the point, as fxp_print (fxp.c) writes it; all ones are -1, which switches the option off."""
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


def running(context: Context) -> Dict[str, Value]:
    """What took over from options at run time, by mallctl name; None where it is not known. ctl.c: without opt.prof the switches of the
    profile say false, whatever their variables hold (from 5.3.0)."""
    values: Dict[str, Value] = {}
    prof = context.variable("opt_prof", 1)
    for name, kind, variables in _RUNNING:
        place = next((there for there in (place_of(context, variable) for variable in variables) if there is not None), None)
        value = value_at(context, kind, place) if place is not None else None
        if kind == "bool" and name.startswith("prof.") and prof == 0 and context.symbols.find("prof_active_state") is not None:
            value = False
        values[name] = value
    return values


CONF_VARIABLES = ("MALLOC_CONF", "_RJEM_MALLOC_CONF", "JE_MALLOC_CONF")
"""Of builds without a prefix, of Rust's crates, and of builds with jemalloc's usual prefix."""


def unread_variables(context: Context) -> List[str]:
    """Variables with options for some jemalloc that are in the environment, and that this build does not read."""
    own = context.symbols.public_names.conf_variable
    return [name for name in CONF_VARIABLES if own not in (None, name) and context.target.environment_variable(name)]


def every(context: Context) -> List[Tuple[Option, Any]]:
    """Every option of this build with its value, those that no table knows by their variables' sizes; in the order of
    malloc_stats_print."""
    options, known = [], set()
    for option in OPTIONS + UNPRINTED:
        has, value = read(context, option)
        if has:
            known.add(option.variable.partition(".")[0])
            options.append((option, value))
    for name in context.symbols.names("opt_"):
        if name not in known:
            option = Option(name[4:], _kind(context, name), name)
            has, value = read(context, option)
            if has:
                options.append((option, value))
    return options


def _kind(context: Context, name: str) -> str:
    """Of an option that no table knows: by its type, else by its size."""
    typed = context.types.variables.get(name)
    if typed is not None:
        by_type = {"bool": "bool", "string": "pointer", "char": "text", "int": "ssize"}.get(typed.kind)
        if by_type and not (by_type == "ssize" and typed.size_bytes != context.geometry.word_bytes):
            return by_type
    size = context.symbols.size_bytes(name)
    return {1: "bool", 4: "unsigned", 8: "uint64"}.get(size or 0, "size")
