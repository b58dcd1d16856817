"""The variables of jemalloc that a pack holds, and a check of its types."""

import re
from typing import Dict, Iterable, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import MISSING_SYMBOLS
from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc.symbols import PUBLIC_VARIABLES

_STATICS = """
    a0 b0 bt2gctx config_malloc_conf ctl_arenas ctl_initialized ctl_mtx ctl_stats cum_gctxs dirty_decay_ms_default dss_base dss_exhausted
    dss_extending dss_max dss_prec_default h_steps hooks hooks_mu huge_arena_ind init_lock madvise_dont_need_zeros_is_faulty
    malloc_init_state
    malloc_initializer malloc_slow_flags mmap_flags muzzy_decay_ms_default narenas_total nbins_total next_thr_uid nhooks os_overcommits
    os_page
    pages_can_purge_lazy_runtime prof_accumbytes prof_active_mtx prof_dump_iseq prof_dump_mseq prof_dump_seq prof_dump_useq prof_gdump_mtx
    prof_idump_accumulated prof_prefix prof_recent_alloc_count prof_recent_alloc_list prof_recent_alloc_max prof_stats_accum prof_stats_live
    prof_thread_active_init rtree_levels stats_interval_accum_batch stats_interval_accumulated tcache_bin_alloc_alignment
    tcache_bin_alloc_size
    tcaches_avail tcaches_mtx tcaches_past tdatas tsd_global_slow_count tsd_nominal_tsds tsd_nominal_tsds_lock
"""
STATICS = frozenset(_STATICS.split())
"""File-static variables, over all releases: the build never prefixes them."""
NO_PREFIX = re.compile(
    r"(opt_|arena|background_thread|base|bin_|bt2gctx|ctl_|disabled_bin|extent|gctx|hpa_|junk|max_background|metadata|"
    r"n_background|narenas|ncpus|nhbins|"
    r"manual_arena|malloc_|oversize|percpu|prof_|lg_prof|san_|sz_|tcache|tdata|thp|ticker|tsd_|global_do_not|zero_realloc)"
)
"""What of a build without a private prefix is taken for jemalloc's."""
LTO = re.compile(r"\.lto_priv\.\d+$")
MAX_VARIABLES = 2000


class Variable(NamedTuple):
    """An entry of a symbol table."""

    name: str
    address: int
    """In the file; of a thread-local its offset in the block."""
    size_bytes: int
    thread_local: bool


def plain_name(name: str, prefix: str, public_prefix: str) -> Optional[str]:
    """A variable's name without what the build put around it; None if it is not jemalloc's, or of no use to a reader."""
    name = LTO.sub("", name)
    if "." in name or name.endswith("_node"):  # inside a function; the tree of mallctl names
        return None
    if name in STATICS:
        return name
    if prefix and name.startswith(prefix):
        return name[len(prefix) :]
    if name.startswith(public_prefix) and name[len(public_prefix) :] in PUBLIC_VARIABLES:
        return name[len(public_prefix) :]
    return name if not prefix and NO_PREFIX.match(name) else None


def places(variables: Iterable[Variable], prefix: str, public_prefix: str) -> Tuple[Dict[str, Tuple[int, int]], Dict[str, Tuple[int, int]]]:
    """(symbols, thread_locals) of a pack; of several with one name the first in memory."""
    symbols: Dict[str, Tuple[int, int]] = {}
    thread_locals: Dict[str, Tuple[int, int]] = {}
    for variable in sorted(variables, key=lambda variable: (variable.address, variable.name)):
        name = plain_name(variable.name, prefix, public_prefix)
        if name is not None and len(symbols) < MAX_VARIABLES:
            (thread_locals if variable.thread_local else symbols).setdefault(name, (variable.address, variable.size_bytes))
    return symbols, thread_locals


def public_prefix(names: Sequence[str]) -> str:
    """What stands before the shortest name that ends in `mallctl`."""
    calls = sorted((name for name in names if name.endswith("mallctl")), key=len)
    return calls[0][: -len("mallctl")] if calls else ""


def check(types: TypeSet, what: str) -> None:
    """HeapxError unless the types suffice to read this jemalloc."""
    missing = [name for name in ("arena_s", "tsd_s", "rtree_s") if name not in types.structs]
    if missing:
        raise HeapxError(
            "%s has no debug information of jemalloc: struct %s is missing" % (what, ", ".join(missing)),
            "give its debug files with --debug-dir DIR",
            code=MISSING_SYMBOLS,
        )
