"""Format what objects of a runtime with a collector hold: garbage that nothing frees, and a table by class and field."""

from typing import Iterator, Sequence, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.reachability.leaks import LeakGroup
from gdbheapx.analysis.reachability.managed import HeldByField, ManagedClass
from gdbheapx.columns import ColumnsTable, columns_of
from gdbheapx.hints import hint_command
from gdbheapx.units import HEADING, Sentence, SentenceSize, count_noun, make_sentence, mark_sentence

MOST_FIELDS, MOST_ALIKE, MOST_CLASSES = 8, 10, 10
LEAST_FIELD_SHARE = 100
"""Of the largest field: what holds less than one part of so many needs no sentence."""
LEAST_GARBAGE_SHARE = 4
"""One object of so many."""


def describe_fields(fields: Sequence[HeldByField]) -> Iterator[Sentence]:
    """Say which objects hold memory that nothing frees, or that a collection would free."""
    largest = max((held.bytes for held in fields), default=0)
    for held in fields:
        if held.garbage_objects and held.garbage_bytes * LEAST_FIELD_SHARE >= largest:
            sentence = "Garbage: %s of %s with %s, unreachable, holding %s that no Cleaner or finalizer frees"
            yield make_sentence(sentence, *_count_objects(held.garbage_objects, held), SentenceSize(held.garbage_bytes))
        elif held.garbage_objects and not held.garbage_bytes and held.garbage_objects * LEAST_GARBAGE_SHARE >= held.objects:
            sentence = "Unreachable: %s of %s with %s; others keep the memory: a pool, if they are its buffers and were not released"
            yield make_sentence(sentence, *_count_objects(held.garbage_objects, held))
        if held.collectable_objects and held.bytes * LEAST_FIELD_SHARE >= largest:
            sentence = "Collectable: %s of %s with %s, unreachable: the next collection frees the memory that they hold"
            yield make_sentence(sentence, *_count_objects(held.collectable_objects, held))


def _count_objects(count: int, held: HeldByField) -> Tuple[str, str, str]:
    return "{:,}".format(count), count_noun(held.objects, "object"), held.field


def make_fields_page(fields: Sequence[HeldByField], most: int) -> Page:
    """Make the table of what objects hold, by class and field."""
    if fields:
        yield ""
        yield mark_sentence("Malloc memory that %s objects hold, by class and field" % fields[0].runtime, HEADING)
        yield ColumnsTable(columns_of(HeldByField), list(fields[:most]))
        if len(fields) > most:
            yield "%s: %s" % (count_noun(len(fields) - most, "smaller row"), hint_command("owners --json"))


def make_classes_page(classes: Sequence[ManagedClass], most: int) -> Page:
    """Make the table of a collector's objects by class."""
    if classes:
        yield ""
        yield mark_sentence("Objects of %s by class, in its own heap" % classes[0].runtime, HEADING)
        yield ColumnsTable(columns_of(ManagedClass), list(classes[:most]))


def name_alike(groups: Sequence[LeakGroup], fields: Sequence[HeldByField]) -> Iterator[Sentence]:
    """Say of leaked blocks by which field objects hold blocks of the same size, where only one does."""
    for group in groups[:MOST_ALIKE]:
        alike = [held for held in fields if held.block_bytes == group.size_bytes and held.blocks > 1]
        if len(alike) == 1 and group.blocks > 1 and not alike[0].garbage_objects:
            sentence = "%s leaked blocks of %s are of objects that were collected, most likely: %s holds %s of that size"
            count = "{:,}".format(group.blocks), SentenceSize(group.size_bytes)
            yield make_sentence(sentence, *count, alike[0].field, count_noun(alike[0].blocks, "block"))
