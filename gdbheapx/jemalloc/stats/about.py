"""What is told about one jemalloc beside its figures: how its build was made (`doctor`), what drives its purging (`report`)."""

from typing import Sequence

from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import detect, unread
from gdbheapx.jemalloc.detection.layouts import has_ticker_bug
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.purging import background
from gdbheapx.jemalloc.records import JemallocBuild, JemallocConditions
from gdbheapx.jemalloc.stats import build_options, options
from gdbheapx.jemalloc.threads.tsd import Tsds


def build(context: Context, listed: Sequence[Arena], tsds: Tsds) -> JemallocBuild:
    """Constants of the build, how they were proven, and the way to each thread's tsd."""
    jemalloc, geometry = context.jemalloc, context.geometry
    local = context.symbols.thread_local("tsd_tls")
    configured = build_options.config(context, listed)
    return JemallocBuild(
        allocator=jemalloc.id,
        version_text=jemalloc.version_text,
        prefix=context.symbols.prefix,
        names=context.symbols.public_names,
        calibrated_slabs=jemalloc.calibrated_slabs,
        named_arenas=jemalloc.named_arenas,
        page_bytes=geometry.page_bytes,
        quantum_bytes=geometry.size_classes[2] - geometry.size_classes[1],
        nbins=geometry.nbins,
        nsizes=len(geometry.size_classes),
        lg_vaddr=geometry.rtree.lg_vaddr,
        rtree_levels=geometry.rtree.levels,
        compact_leaves=geometry.rtree.compact,
        narenas=geometry.narenas,
        is_initialized=detect.is_initialized(context.target, jemalloc),
        has_stats=configured["stats"],
        has_prof=configured["prof"],
        threads_with_tsd=None if local is None else sum(1 for record in tsds.records if record.state is not None),
        tsd_way=None if local is None else local.way,
        by_structure=context.symbols.by_structure,
        fitting=jemalloc.fitting,
        debug_hint=unread.next_step(context.target, jemalloc.module, unread.STRIPPED) if context.symbols.by_structure else None,
    )


def conditions(context: Context, listed: Sequence[Arena]) -> JemallocConditions:
    """What decides when its unused pages go back to the kernel."""
    found = background.read(context)
    started = [thread for thread in found.threads if thread.state == "started"]
    asked = context.variable("opt_background_thread", 1)
    prof = context.variable("opt_prof", 1)
    thp = context.variable("opt_thp", 4)
    configured = build_options.config(context, listed)
    return JemallocConditions(
        names=context.symbols.public_names,
        has_stats=configured["stats"],
        has_ticker_bug=has_ticker_bug(context.types, context.jemalloc.version),
        thp=None if thp is None else dict(enumerate(options.NAMES["thp"])).get(thp),
        background_enabled=found.enabled,
        background_asked=None if asked is None else bool(asked),
        background_running=found.named or len(started),
        prof=None if prof is None else bool(prof),
        has_prof=configured["prof"],
    )
