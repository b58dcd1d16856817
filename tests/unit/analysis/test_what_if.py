"""What a setting would change: the two ends of RSS, and what is not known.

Files: allocators/effects.py, report/what_if_text.py, commands/what_if.py.
"""

import pytest

from gdbheapx.allocators.effects import BOUNDED, EXACT, Effect, in_force
from gdbheapx.analysis.what_if import EVEN_BYTES, EVEN_SHARE, WhatIf, best, outcome

pytestmark = pytest.mark.once  # arithmetic

MIB = 1 << 20


def effect(least: object, most: object, may_peak: bool = False) -> Effect:
    return Effect("arenas", "A=1", BOUNDED, least, most, "", "", may_peak=may_peak)  # type: ignore[arg-type]


def test_ends_leave_room_for_what_two_runs_differ_by() -> None:
    """RSS less what is saved, either way."""
    even = EVEN_BYTES + 64 * MIB // EVEN_SHARE
    told = outcome("x", effect(MIB, 2 * MIB), 64 * MIB, 80 * MIB)
    assert (told.then_least_bytes, told.then_most_bytes) == (62 * MIB - even, 63 * MIB + even)


def test_at_worst_the_peak_stays() -> None:
    """What may keep all that was ever in RAM has the peak as its upper end."""
    told = outcome("x", effect(0, MIB, may_peak=True), 64 * MIB, 80 * MIB)
    assert told.saves_least_bytes == -16 * MIB
    assert outcome("x", effect(0, MIB, may_peak=True), 64 * MIB, None).then_most_bytes is None


def test_unknown_stays_unknown() -> None:
    """A core does not tell RSS; an end that is not known is no figure."""
    assert outcome("x", effect(0, MIB), None, None)[4:8] == (0, MIB, None, None)
    assert outcome("x", effect(None, MIB), 64 * MIB, None).then_most_bytes is None


def test_what_is_in_force_changes_nothing() -> None:
    """Both ends are RSS as it is."""
    told = outcome(None, in_force("arenas", "A=1", "one"), 64 * MIB, None)
    assert told.is_in_force and (told.kind, told.saves_least_bytes, told.saves_most_bytes) == (EXACT, 0, 0)


def test_the_two_that_help_most_are_named_with_their_cost() -> None:
    """First what is certain; nothing that would be refused; nothing where nothing is worth it."""
    sure = Effect("trim", "gdbheapx trim", EXACT, 9 * MIB, 9 * MIB, "", "faults", acts_on_bytes=9 * MIB)
    about = Effect("arenas", "A=1", BOUNDED, 0, 20 * MIB, "", "locks", may_peak=True, acts_on_bytes=12 * MIB)
    little = Effect("thread-caches", "T=0", BOUNDED, 0, 20 * MIB, "", "locks", acts_on_bytes=MIB)
    found = WhatIf(64 * MIB, 64 * MIB, [outcome("x", one, 64 * MIB, 64 * MIB) for one in (little, about, sure)])
    first, second = "gdbheapx trim saves 9.0 MiB of 64.0 MiB (cost: faults)", "A=1 saves up to 20.0 MiB, perhaps nothing, of 64.0 MiB (cost: locks)"
    assert best(found) == "what-if shows what a setting saves: %s; %s" % (first, second)
    assert best(found, ["trim"]) == "what-if shows what a setting saves: %s" % second
    assert best(found._replace(settings=found.settings[2:]), ["trim"]) is None
