"""Read the live heap profile from memory: every sampled backtrace, with what each thread still holds by it.

Sources: prof.c up to 5.2.1, prof_data.c from 5.3.0 on. prof_dump adds up the same counters, under locks; here they are taken as they are.
"""

import math
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.common.errors import HeapxError, UnreadableMemory
from gdbheapx.common.problems import MISSING_SYMBOLS, NOT_PROFILED
from gdbheapx.common.units import SentenceSize, format_share, make_sentence
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import JemallocContext
from gdbheapx.jemalloc.layouts import omits_sampled_blocks
from gdbheapx.jemalloc.options import can_profile
from gdbheapx.layout.view import LayoutView

TREES = ("prof_gctx_s", "prof_tctx_s", "prof_tdata_s", "ckh_t")
CACHE_LINE_BYTES = 64
"""CACHELINE of every build."""
MAX_LG_BUCKETS = 28
MAX_BACKTRACES = 1 << 24
MAX_CONTEXTS = 1 << 25
MAX_THREADS = 1 << 22
MAX_FRAMES = 4096
"""PROF_BT_MAX is 128; 5.3.1's opt.prof_bt_max ends at 4,096."""
SLICE_BYTES = 1 << 20
STATES_COUNTED = (1, 2)
"""prof_tctx_state_nominal and _dumping: neither being made nor being destroyed."""
SHIFT = 8
"""1 << SC_LG_TINY_MIN: what counts of blocks are multiplied by before they are summed (prof.c: prof_unbias_map_init)."""
MOST = (1 << 64) - 1


def read_forest(
    context: JemallocContext,
    struct: str,
    link: str,
    label: str,
    roots: Iterable[Tuple[int, int]],
    most: int,
    owns: Optional[Callable[[LayoutView], int]] = None,
) -> Tuple[Dict[int, LayoutView], Dict[int, int]]:
    """Read every node of the red-black trees whose roots are given as (owner, address of the root, or 0).

    A node's left child is link.rbn_left, its right one link.rbn_right_red less the lowest bit, which is the colour; leaves are null.
    `owns`, if given, returns the owner that a node names. No node is visited twice; at most `most` are. Returns nodes and the owners of
    their trees by address. Places where a tree does not go on are reported with its `label`.
    """
    nodes: Dict[int, LayoutView] = {}
    owners: Dict[int, int] = {}

    def report_damage(address: int, what: str) -> None:
        context.report(codes.PROFILE_DAMAGED, address, "a node of %s %s" % (label, what), "nodes behind it are missing here")

    frontier = {root: owner for owner, root in roots if root}
    seen: Set[int] = set(frontier)
    while frontier and len(nodes) < most and not context.budget.expired():
        read = context.read_views(struct, frontier)
        children: Dict[int, int] = {}
        for address, owner in frontier.items():
            view = read.get(address)
            if view is None:
                report_damage(address, "cannot be read")
                continue
            if owns is not None and owns(view) != owner:
                report_damage(address, "belongs to 0x%x, not to 0x%x" % (owns(view), owner))
                continue
            nodes[address], owners[address] = view, owner
            for child in (view[link + ".rbn_left"], view[link + ".rbn_right_red"] & ~1):
                if child in seen:
                    report_damage(child, "appears twice")
                elif child:
                    seen.add(child)
                    children[child] = owner
        frontier = children
    if frontier:
        report_damage(next(iter(frontier)), "is where the walk ended")
    return nodes, owners


class ProfileCounts(NamedTuple):
    """prof_cnt_t: what is live, and with opt.prof_accum what ever was."""

    curobjs: int
    curbytes: int
    accumobjs: int
    accumbytes: int
    curobjs_shifted: int = 0
    """curobjs_shifted_unbiased and the rest: 5.3.0 and later keep sums already corrected for the sampling of each block, counts of
    blocks times 8."""
    curbytes_unbiased: int = 0
    accumobjs_shifted: int = 0
    accumbytes_unbiased: int = 0

    def plus(self, other: "ProfileCounts") -> "ProfileCounts":
        """The sum."""
        return ProfileCounts(*(mine + its for mine, its in zip(self, other)))


NO_COUNTS = ProfileCounts(0, 0, 0, 0)


class Backtrace(NamedTuple):
    """A prof_gctx_t."""

    frames: Tuple[int, ...]
    """Return addresses, innermost first."""
    shares: Sequence[Tuple[int, ProfileCounts]]
    """Allocations of each thread, by its uid (prof_tctx_t)."""
    total: ProfileCounts


class Profile(NamedTuple):
    """The live heap profile."""

    lg_sample: int
    """One block in about 2^lg_sample bytes was sampled."""
    unbias: bool
    """The text shows counters that are corrected block by block (opt.prof_unbias)."""
    accum: bool
    """opt.prof_accum: the accumulated counters count."""
    threads: Sequence[Tuple[int, Optional[str], ProfileCounts]]
    """Uid, name as the program set it by thread.prof.name, and sum of each thread that is not expired (prof_tdata_t)."""
    backtraces: Sequence[Backtrace]
    total: ProfileCounts
    used_bytes: Optional[int] = None
    """In use, by jemalloc's own counters; None in builds without statistics, and where a thread cache cannot be read."""
    is_active: Optional[bool] = None
    """prof.active: sampling is on now."""

    @property
    def sample_bytes(self) -> int:
        """Return the mean distance between samples."""
        return 1 << self.lg_sample

    def data(self) -> Dict[str, Any]:
        """Return the fields of the JSON answer."""
        covered = {"covered_bytes": self.covered_bytes, "used_bytes": self.used_bytes}
        return {"sample_bytes": self.sample_bytes, "backtraces": len(self.backtraces), **covered}

    @property
    def covered_bytes(self) -> int:
        """Memory in use that its stacks allocated: an estimate, since only some blocks were sampled."""
        return sum(size for _, _, size in self.stacks())

    @property
    def shortfall(self) -> Optional[Tuple[str, str]]:
        """(what, why) where it covers so little that no chance of sampling explains it: a quarter is missing, and more than 32 samples of
        it."""
        used, covered = self.used_bytes or 0, self.covered_bytes
        if 4 * covered >= 3 * used or used - covered <= 32 * self.sample_bytes:
            return None
        is_off = "sampling is off now (prof.active is false)"
        why = is_off if self.is_active is False else "memory allocated while sampling was off is not in it"
        return make_sentence(
            "the profile covers %s of the memory in use: %s of %s", format_share(covered, used), SentenceSize(covered), SentenceSize(used)
        ), why

    def stacks(self) -> Iterator[Tuple[Sequence[int], int, int]]:
        """(return addresses, innermost first; blocks; bytes) of what is live, unsampled."""
        for trace in self.backtraces:
            yield (trace.frames, *unsample_counts(*select_current(self, trace.total), self.lg_sample))

    def lines(self, maps: str) -> Iterator[str]:
        """Its text; `maps` goes below MAPPED_LIBRARIES, by which jeprof finds symbols."""
        yield "heap_v2/%d" % self.sample_bytes
        yield "  t*: %s" % _format_counts(self, self.total)
        for uid, name, total in self.threads:
            yield "  t%d: %s%s" % (uid, _format_counts(self, total), " " + name if name is not None else "")
        for trace in self.backtraces:
            yield "@" + "".join(" 0x%x" % frame for frame in trace.frames)
            yield "  t*: %s" % _format_counts(self, trace.total)
            for uid, counts in trace.shares:
                yield "  t%d: %s" % (uid, _format_counts(self, counts))
        if maps:
            yield ""
            yield "MAPPED_LIBRARIES:"
            yield from maps.rstrip("\n").split("\n")  # names may hold what splitlines() takes for the end of a line


def read_profile(context: JemallocContext, counted_bytes: Optional[int] = None, is_active: Optional[bool] = None) -> Profile:
    """The profile. HeapxError, with the next step, where nothing was sampled or its types are not known; what is damaged is reported and
    left out. `counted_bytes`: what jemalloc counts as allocated, less what thread caches hold."""
    _check_profiling(context)
    table = context.symbols.find("bt2gctx")
    if table is None:
        what = "cannot find jemalloc's profile (bt2gctx)"
        raise HeapxError(what, "give the debug file of this build: --debug-dir DIR", code=MISSING_SYMBOLS)
    gctxs = context.read_views("prof_gctx_s", _read_table(context, table.address))
    tdatas = _read_threads(context)
    roots, label = ((address, view["tctxs.rbt_root"]) for address, view in gctxs.items()), "a backtrace's tree of threads"
    nodes, owners = read_forest(context, "prof_tctx_s", "tctx_link", label, roots, MAX_CONTEXTS, lambda view: view["gctx"])
    shares: Dict[int, List[LayoutView]] = {}
    for address, view in nodes.items():
        if view["state"] not in STATES_COUNTED:
            continue
        owner = tdatas.get(view["tdata"])
        if owner is None and tdatas:
            what = "an entry of a backtrace belongs to an unknown thread"
            context.report(codes.PROFILE_DAMAGED, address, what, "it is missing here")
        elif owner is None or not owner["expired"]:  # prof.reset drops a thread's data
            shares.setdefault(owners[address], []).append(view)
    profile = _make_profile(context, gctxs, shares, tdatas)
    used_bytes = None if counted_bytes is None else _count_used(context, counted_bytes, profile.backtraces)
    return profile._replace(used_bytes=used_bytes, is_active=is_active)


def _count_used(context: JemallocContext, counted_bytes: int, traces: Sequence[Backtrace]) -> int:
    """Count each sampled small block as it is: the counters have it as SC_LARGE_MINCLASS (arena_prof_promote), from 5.3.1 on not at all
    (arena_large_malloc_stats_update)."""
    least_bytes, is_left_out = context.geometry.size_classes[context.geometry.nbins], omits_sampled_blocks(context.jemalloc.version)
    small = [trace.total for trace in traces if trace.total.curbytes < least_bytes * trace.total.curobjs]
    return max(0, counted_bytes + sum(one.curbytes - (0 if is_left_out else least_bytes * one.curobjs) for one in small))


def _check_profiling(context: JemallocContext) -> None:
    prof = context.variable("opt_prof", 1)
    if prof is None and can_profile(context) is not False:
        what = "this jemalloc was found by its structure alone, which does not show its heap profile"
        raise HeapxError(what, "give the debug file of this build: --debug-dir DIR", code=MISSING_SYMBOLS)
    if not prof:
        if can_profile(context) is False:
            setting = context.symbols.public_names.setting("prof:true")
            what = "this jemalloc was built without profiling (--enable-prof)"
            raise HeapxError(what, "run the program with a build that has it, and %s" % setting, code=NOT_PROFILED)
        what = "opt.prof is false in this process: nothing was sampled"
        raise HeapxError(what, "start it with %s" % context.symbols.public_names.setting("prof:true"), code=NOT_PROFILED)
    missing = [name for name in TREES if name not in context.types.structs]
    if missing:
        what = "the layout of jemalloc's profile (struct %s) is unknown" % missing[0]
        raise HeapxError(what, "give the debug file of this build: --debug-dir DIR", code=MISSING_SYMBOLS)


def _read_table(context: JemallocContext, address: int) -> List[int]:
    """The prof_gctx_t of every cell in use of the cuckoo hash table (ckh.h)."""
    try:
        table = context.view("ckh_t", address)
    except UnreadableMemory as problem:
        what = "cannot read jemalloc's table of backtraces"
        raise HeapxError(what, "a core must include the bss of %s" % context.jemalloc.module.name, problem.address, problem.code)
    word, lg = context.geometry.word_bytes, table["lg_curbuckets"]
    if not table["tab"] or lg > MAX_LG_BUCKETS:
        what = "jemalloc's table of backtraces has 2^%d buckets at 0x%x" % (lg, table["tab"])
        context.report(codes.PROFILE_DAMAGED, address, what, "the profile is missing here")
        return []
    size = (CACHE_LINE_BYTES // word // 2 << lg) * 2 * word
    gctxs = []
    for at in range(0, size, SLICE_BYTES):
        length = min(SLICE_BYTES, size - at)
        data = context.target.read_prefix(table["tab"] + at, length)
        if len(data) < length:
            what = "cannot read part of jemalloc's table of backtraces"
            context.report(codes.PROFILE_UNREADABLE, table["tab"] + at + len(data), what, "backtraces are missing here")
        cells = context.target.words_in(data)
        gctxs += [value for key, value in zip(cells[::2], cells[1::2]) if key and value]
    if len(gctxs) != table["count"]:
        text = "jemalloc's table of backtraces contains %d of the %d that it counts" % (len(gctxs), table["count"])
        context.report(codes.PROFILE_DAMAGED, address, text, "it was being changed, or is damaged")
    return gctxs[:MAX_BACKTRACES]


def _read_threads(context: JemallocContext) -> Dict[int, LayoutView]:
    """prof_tdata_t by address, from the tree `tdatas`."""
    symbol = context.symbols.find("tdatas")
    root = context.variable("tdatas") if symbol is not None else None
    if symbol is None or root is None:
        what = "cannot read jemalloc's tree of profiled threads"
        context.report(codes.PROFILE_UNREADABLE, symbol.address if symbol else None, what, "the lines of single threads are missing")
        return {}
    label = "jemalloc's tree of profiled threads"
    return read_forest(context, "prof_tdata_s", "tdata_link", label, [(symbol.address, root)], MAX_THREADS)[0]


def _make_profile(
    context: JemallocContext, gctxs: Dict[int, LayoutView], shares: Dict[int, List[LayoutView]], tdatas: Dict[int, LayoutView]
) -> Profile:
    accum = bool(context.variable("opt_prof_accum", 1))
    per_thread: Dict[int, ProfileCounts] = {}
    total = NO_COUNTS
    traces = []
    frames = _read_frames(context, gctxs)
    for address, entries in shares.items():
        entries.sort(key=lambda view: (view["thr_uid"], view["thr_discrim"], view["tctx_uid"]))
        rows, summed = [], NO_COUNTS
        for view in entries:
            counts = _read_counts(view)
            added = counts if accum else counts._replace(accumobjs=0, accumbytes=0, accumobjs_shifted=0, accumbytes_unbiased=0)
            rows.append((view["thr_uid"], counts))
            summed, total = summed.plus(added), total.plus(added)
            per_thread[view["tdata"]] = per_thread.get(view["tdata"], NO_COUNTS).plus(added)
        if address in frames and (summed.accumobjs if accum else summed.curobjs):
            traces.append((frames[address], Backtrace(tuple(context.target.words_in(frames[address])), rows, summed)))
    traces.sort(key=lambda trace: trace[0])  # memcmp's order, as the dump has it (prof_gctx_comp)
    threads = sorted(tdatas.values(), key=lambda view: (view["thr_uid"], view["thr_discrim"]))
    return Profile(
        lg_sample=context.variable("lg_prof_sample") or 0,
        unbias=bool(context.variable("opt_prof_unbias", 1)),
        accum=accum,
        threads=[
            (view["thr_uid"], _read_name(context, view), per_thread.get(view.address, NO_COUNTS)) for view in threads if not view["expired"]
        ],
        backtraces=[trace for _, trace in traces],
        total=total,
    )


def _read_counts(view: LayoutView) -> ProfileCounts:
    plain = [view["cnts." + name] for name in ("curobjs", "curbytes", "accumobjs", "accumbytes")]
    unbiased = ("curobjs_shifted_unbiased", "curbytes_unbiased", "accumobjs_shifted_unbiased", "accumbytes_unbiased")
    return ProfileCounts(*plain, *((view["cnts." + name] for name in unbiased) if view.has("cnts." + unbiased[0]) else ()))


def _read_frames(context: JemallocContext, gctxs: Dict[int, LayoutView]) -> Dict[int, bytes]:
    """The words of each backtrace, by gctx."""
    word = context.geometry.word_bytes
    vectors = {address: (view["bt.vec"], min(view["bt.len"], MAX_FRAMES) * word) for address, view in gctxs.items() if view["bt.len"]}
    read = context.read_pieces(vectors.values())
    frames: Dict[int, bytes] = {address: b"" for address, view in gctxs.items() if not view["bt.len"]}
    for address, (start, size) in vectors.items():
        if len(read.get(start, b"")) < size:
            context.report(codes.PROFILE_UNREADABLE, start, "cannot read a backtrace", "its allocations are missing here")
        else:
            frames[address] = read[start][:size]
    return frames


def _read_name(context: JemallocContext, view: LayoutView) -> Optional[str]:
    """thread_name: a char * up to 5.3.0, an array of char from 5.3.1."""
    member = view.types.place(view.struct, "thread_name")
    if member is None:
        return None
    if member.kind == "char":
        text = view.bytes_of("thread_name").split(b"\0")[0]
        return text.decode("utf-8", "replace") or None
    return context.target.text_at(view["thread_name"], 256) if view["thread_name"] else None


def _format_counts(profile: Profile, counts: ProfileCounts) -> str:
    """`curobjs: curbytes [accumobjs: accumbytes]`."""
    ever = counts.accumobjs, counts.accumbytes
    if profile.unbias:
        ever = rebias_counts(counts.accumobjs_shifted, counts.accumbytes_unbiased, profile.lg_sample)
    return "%d: %d [%d: %d]" % (*select_current(profile, counts), *ever)


def select_current(profile: Profile, counts: ProfileCounts) -> Tuple[int, int]:
    """(blocks, bytes) of what is live, before jeprof corrects them."""
    if profile.unbias:
        return rebias_counts(counts.curobjs_shifted, counts.curbytes_unbiased, profile.lg_sample)
    return counts.curobjs, counts.curbytes


def unsample_counts(objects: int, bytes_: int, lg_sample: int) -> Tuple[int, int]:
    """Scale a stack's counts as jeprof does (AdjustSamples): by the chance that a block of their mean size is sampled."""
    if not objects or not bytes_:
        return objects, bytes_
    scale = 1.0 / (1.0 - math.exp(-(bytes_ / objects) / (1 << lg_sample)))
    return _round_half_up(objects * scale), _round_half_up(bytes_ * scale)


def rebias_counts(objects_shifted: int, bytes_: int, lg_sample: int) -> Tuple[int, int]:
    """(objects, bytes) from which jeprof, which corrects by the mean size of a stack's blocks, comes back to these unbiased sums
    (prof_do_unbias)."""
    if not objects_shifted or not bytes_:
        return 0, 0
    mean = bytes_ / (objects_shifted / SHIFT)
    biased = bytes_ * (1.0 - math.exp(-mean / (1 << lg_sample)))
    return _round_half_up(biased / mean), _round_half_up(biased)


def _round_half_up(number: float) -> int:
    """Round as C does: halves away from 0."""
    whole = math.floor(number)
    return min(MOST, whole + (number - whole >= 0.5))
