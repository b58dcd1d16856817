"""One look at every list of free objects of a tcmalloc, and what is left: the blocks in use."""

from array import array
from itertools import chain
from typing import Dict, List, NamedTuple, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import accounts, codes, walkers
from gdbheapx.addons.allocators.tcmalloc import native_records as api
from gdbheapx.addons.allocators.tcmalloc.counts import Counts, is_changing, tell
from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc
from gdbheapx.addons.allocators.tcmalloc.native_records import FreeList, ListEnd
from gdbheapx.allocators.records import HeapContext
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks.slot_walker import SlotWalker
from gdbheapx.kernel.blocks.slots import SLOT_TWICE, Frees, SlotTallies
from gdbheapx.problems import Code, Report

OF_LISTS: Dict[int, Tuple[Code, str]] = {
    api.LIST_UNREADABLE: (codes.FREE_LIST_UNREADABLE, "cannot read this free object, or its address is wrong"),
    api.LIST_LONG: (codes.FREE_LIST_BROKEN, "a list of free objects does not end where it should"),
    api.LIST_MISALIGNED: (codes.FREE_LIST_BROKEN, "a list of free objects points to something that is not an object"),
}
COUNTED = "objects behind it on this list count as used"
NOTHING = SlotTallies(False, 0, (), (), 0, 0)


class Listing(NamedTuple):
    """One list of free objects, and how it ended."""

    kind: int
    size_class: int
    place: int
    """Of the span, of the central list or of the thread cache, in their sequence."""
    expected: int
    """Objects by the counter that belongs to it."""
    slack: int
    """So many fewer or more it may have while a thread changes it."""


class Survey(NamedTuple):
    """All of them."""

    listings: Sequence[Listing]
    ends: Sequence[ListEnd]
    frees: Frees
    tallies: SlotTallies


def look(tcmalloc: Tcmalloc, around: HeapContext, counts: Counts, report: Report) -> Survey:
    """The walk over what was counted, which tells `report` where the lists are something else."""
    target, kernel = around.target, around.kernel
    lists, listings = _lists(tcmalloc, counts)
    most = sum(tally.objects for tally in counts.spans.tallies) + sum(listing.slack for listing in listings)
    followed = walkers.follow(kernel, target.bulk_source(), True, lists, most, around.budget)
    ends = [followed.end(number) for number in range(len(listings))]
    survey = Survey(listings, ends, walkers.frees(kernel, followed), NOTHING)
    survey = survey._replace(tallies=walker_of(counts, survey, around).tally())
    is_whole = followed.is_whole and survey.tallies.is_whole
    if counts.spans.is_whole and not is_whole:
        report(codes.SPANS_CUT, None, "out of time before all lists were read", "raise --max-seconds or --max-stop")
    is_told = _tell_lists(target, tcmalloc, counts, survey, report)
    if counts.spans.is_whole and is_whole and not is_told:
        tell(list(accounts.of_lists(counts, survey)), tcmalloc, target, counts.central, report)
    return survey


def walker_of(counts: Counts, survey: Survey, around: HeapContext) -> SlotWalker:
    """Over its objects."""
    return walkers.slot_walker(around.kernel, around.target.bulk_source(), counts.spans.runs, survey.frees, around.budget)


def _lists(tcmalloc: Tcmalloc, counts: Counts) -> "Tuple[array[int], List[Listing]]":
    batch = tcmalloc.structure.sizes.batch
    columns = zip(*(counts.spans.column(name) for name in ("list", "objects", "size_class", "refcount", "start")))
    rows = [
        (FreeList(head, objects, api.TC_CENTRAL, start), Listing(api.TC_CENTRAL, size_class, place, objects - refcount, 0))
        for place, (head, objects, size_class, refcount, start) in enumerate(columns)
        if size_class and (head or objects != refcount)
    ]
    for place, row in enumerate(counts.central):
        count = batch[row.size_class]
        listing = Listing(api.TC_TRANSFER, row.size_class, place, count, 0)
        rows += [(FreeList(one.head, count, api.TC_TRANSFER, 0), listing) for one in row.batches]
    for place, cache in enumerate(counts.caches.rows):
        for own in cache.lists:
            slack = 2 * batch[own.size_class]
            made = FreeList(own.head, own.length + slack, api.TC_CACHED, 0)
            rows.append((made, Listing(api.TC_CACHED, own.size_class, place, own.length, slack)))
    return array("Q", chain.from_iterable(made for made, _ in rows)), [listing for _, listing in rows]


def _tell_lists(target: Target, tcmalloc: Tcmalloc, counts: Counts, survey: Survey, report: Report) -> bool:
    """Reports lists that do not end, or hold what is no object; whether there is one."""
    broken = [end for end in survey.ends if end.problem]
    if not broken and not survey.tallies.problems:
        return False
    is_live, changing = target.kind == "live", is_changing(target, tcmalloc, counts.central)

    def told(code: Code, address: int, what: str, hint: str) -> None:
        report(codes.LISTS_CHANGING if changing else code, address, what, hint, is_live)

    for end in broken:
        code, what = OF_LISTS[end.problem]
        told(code, end.at, what, COUNTED)
    for problem in survey.tallies.problems:
        if problem.code == SLOT_TWICE:
            told(codes.FREED_TWICE, problem.address, "this object is on lists of free objects more than once", "it was freed twice")
        else:
            told(codes.FREE_LIST_BROKEN, problem.address, "a list of free objects holds an address that is no object's", "it is left out")
    return True
