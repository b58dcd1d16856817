"""Copies of the parent's memory: pages that a forked process has for itself alone, for a few words that were written in each."""

from typing import List, Optional

from gdbheapx import addon_loader
from gdbheapx import findings as codes
from gdbheapx.allocators.measured import FREEZE
from gdbheapx.analysis.split import Split
from gdbheapx.inferior.base import ParentPages
from gdbheapx.model import Finding
from gdbheapx.session import Session
from gdbheapx.units import SentenceSize, make_sentence

LEAST_BYTES, LEAST_SHARE = 16 << 20, 0.1
"""Fewer copies are not spoken of, nor a smaller share of RSS."""
PYTHON = "CPython"
COLLECTOR = "collector"
COUNTS = "reference-counts"
OTHER = "other"

_HINTS = {
    COLLECTOR: "CPython's collector has run since the fork and writes to each object: %s before the fork keeps it from the "
    "parent's" % FREEZE.text,
    COUNTS: "each use of a Python object writes its reference count, frozen or not: read-only data stays shared in one block without "
    "objects, such as bytes, an array of NumPy or a mapped file",
    PYTHON: "CPython's collector writes to each object that it visits (%s before the fork keeps it from the parent's), and each use of an "
    "object to its reference count" % FREEZE.text,
    OTHER: "the first write to a page after the fork copies all of it, whichever of the two writes; PSS counts each copy",
}
"""Measured: docs/reference/advice.md."""


def find_copied_pages(session: Session, split: Optional[Split]) -> List[Finding]:
    """Return a finding if a tenth of RSS or more is copies of the parent's pages."""
    pages = split.memory.parent_pages if split is not None else None
    if split is None or pages is None or pages.copied_bytes < max(LEAST_BYTES, LEAST_SHARE * split.memory.total_bytes):
        return []
    cause = _describe_cause(session, pages) if PYTHON in split.runtimes() else OTHER
    figures = SentenceSize(pages.copied_bytes), SentenceSize(pages.private_bytes), pages.same_pages, pages.compared_pages, pages.near_pages
    text = "about %s of %s that no other process maps: %d of %d compared pages equal the parent's, %d differ in few words"
    what = "copy-on-write was broken: pages of the parent, process %d, were copied" % pages.parent
    return [Finding(what, make_sentence(text, *figures), _HINTS[cause], codes.COPIED_ON_WRITE)]


def _describe_cause(session: Session, pages: ParentPages) -> str:
    """Return the probable writer of pages with CPython's objects. A reference count that was raised again has its old value, and so have
    the fields that the collector writes: only the collector's own numbers distinguish the two.
    """
    if 2 * pages.counting_pages > pages.same_pages + pages.near_pages:
        return COUNTS
    visited = _count_visited(session)
    if visited is None:
        return PYTHON
    return COLLECTOR if 2 * visited * session.target.page_bytes >= pages.copied_bytes else COUNTS


def _count_visited(session: Session) -> Optional[int]:
    """Objects that the collector has written to since the fork, which is at most as many pages; None where it is unknown, for the parent
    collects, too."""
    target, read_collector = session.target, addon_loader.load_collector_reader()
    state = read_collector(target) if read_collector is not None else None
    if state is None:
        return None
    own, parents = target.read_prefix(state.full_collections, 8), target.read_parent(state.full_collections, 8)
    numbers = [*target.words_in(own), *target.words_in(parents)]
    if len(numbers) < 2 or numbers[0] < numbers[1]:
        return None
    return state.survivors if numbers[0] > numbers[1] else 0
