"""malloc-stats: the arithmetic between memory and jemalloc's own words, and the tables of its text.

Files: jemalloc/arenas.py, jemalloc/text.py, jemalloc/options.py, jemalloc/stats.py.
"""

from types import SimpleNamespace

import pytest

from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc import arenas, options, stats
from gdbheapx.jemalloc import text as tunables_page
from gdbheapx.jemalloc.arenas import JemallocContext
from gdbheapx.layout.view import unpack_strided

LOCK = {"num_ops": 7, "num_wait": 1, "num_spin_acq": 2, "num_owner_switch": 3, "total_wait_time": 100, "max_wait_time": 60, "max_num_thds": 2}
FORM = (13, 10, True)


# ---------------------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("little", [True, False])
def test_strided(little):
    """Every member of an array of structs, in words and in other sizes, of either byte order."""
    order = "little" if little else "big"
    data = b"".join(value.to_bytes(8, order) + (value + 100).to_bytes(4, order) + bytes(4) for value in range(5))
    assert unpack_strided(data, 0, 16, 8, little) == [0, 1, 2, 3, 4]
    assert unpack_strided(data, 8, 16, 4, little) == [100, 101, 102, 103, 104]


def test_columns_that_are_missing():
    """A release without a counter has None in its rows, and nothing to add up."""
    assert arenas.make_rows({"a": [1, 2], "b": None, "c": [5]}, 2) == [{"a": 1, "b": None, "c": 5}, {"a": 2, "b": None, "c": None}]
    assert arenas.add_lists([None, [1, 2], [10, 20]]) == [11, 22]
    assert arenas.add_lists([None]) is None


def test_locks_together():
    """Sums, but for maxima; one that is not known is not known in the sum."""
    other = {**LOCK, "max_wait_time": 900, "max_num_thds": 1}
    both = arenas.merge_mutexes([LOCK, other])
    assert (both["num_ops"], both["total_wait_time"], both["max_wait_time"], both["max_num_thds"]) == (14, 200, 900, 2)
    assert arenas.merge_mutexes([LOCK, {**LOCK, "num_ops": None}])["num_ops"] is None
    assert arenas.find_largest_waits([LOCK, {**LOCK, "num_ops": 3, "total_wait_time": 101}])["total_wait_time"] == 101
    assert arenas.find_largest_waits([]) == arenas.make_mutex_counters()


@pytest.mark.parametrize("number, shown", [(1 << 14, "0.25"), (3 << 16, "3.0"), (0xFFFFFFFF, "-1"), ((1 << 16) + 1, "1.00001525878906")])
def test_fixed_point(number, shown):
    """As fxp_print writes it: up to 14 digits, cut; the value that means `off` is -1."""
    assert options.format_fixed_point(number) == shown


def test_enum_without_name():
    """A value that no release has stays unknown."""
    assert options.name_enum_value("thp", 2) == "never"
    assert options.name_enum_value("thp", 17) is None
    assert options.name_enum_value("thp", None) is None


def arena(index, **more):
    """The figures of an arena, as few as the sum needs."""
    return {
        "name": "auto_%d" % index,
        "nthreads": 1 + index,
        "uptime_ns": 50 - index,
        "dss": "secondary",
        "dirty_decay_ms": 10000,
        "muzzy_decay_ms": 0,
        "large": {"nflushes": 3},
        "mutexes": {"base": {**LOCK, "max_wait_time": index}},
        "bins": [{"curregs": 5, "mutex": LOCK}],
        **more,
    }


@pytest.mark.parametrize("version, flushes", [((5, 2, 1), 0), ((5, 3, 0), 6)])
def test_sum_of_arenas(version, flushes):
    """Counters are added up, uptime is the first one's, and what belongs to one arena is nobody's; 5.2 forgets flushes of large blocks."""

    jemalloc = SimpleNamespace(version=version, geometry=SimpleNamespace(word_bytes=8))
    context = JemallocContext(None, jemalloc, *[None] * 5)
    merged = stats.merge_arena_stats(context, [arena(0, mapped=8192), arena(1, mapped=2**64 - 4096)])
    assert merged["nthreads"] == 3
    assert merged["mapped"] == 4096  # a counter below 0 is a part of a sum of size_t
    assert "name" not in merged
    assert (merged["uptime_ns"], merged["dss"], merged["dirty_decay_ms"], merged["muzzy_decay_ms"]) == (50, "N/A", -1, -1)
    assert merged["large"]["nflushes"] == flushes
    assert merged["mutexes"]["base"]["max_wait_time"] == 1
    assert merged["bins"][0]["curregs"] == 10
    assert merged["bins"][0]["mutex"]["num_ops"] == 14
    unknown = stats.merge_arena_stats(context, [arena(0), arena(1, nthreads=None)])
    assert unknown["nthreads"] is None


# ---------------------------------------------------------------------------------------------------- text


# ---------------------------------------------------------------------------------------------------- tunables


REFUSED = {
    "background_threads:true": "jemalloc has no such option",
    "foo": "not of the form name:value",
    "dirty_decay_ms:5s": "not a number",
    "background_thread:1": "neither true nor false",
    "tcache:false": "true is in force",
    "muzzy_decay_ms:100": "7 is in force",
}
TAKEN = ("muzzy_decay_ms:0x7", "narenas:default", "bin_shards:1-160:4", "experimental_whatever:1", "lg_tcache_max:20", "prof_prefix:x", "background_thread:true", "opt_of_later:1")


def test_options_that_are_not_in_force(monkeypatch):
    """What no release takes and what jemalloc holds otherwise; of several settings the last counts, and what nothing tells is not accused."""
    known = {"tcache": True, "muzzy_decay_ms": 7, "background_thread": True}
    monkeypatch.setattr(options, "read_jemalloc_option", lambda context, kind, variable: (True, known.get(variable[4:])))

    class Context:
        class symbols:
            option_names = ()
            find = staticmethod(lambda name: "there" if name == "opt_opt_of_later" else None)

    for pair in TAKEN + tuple(REFUSED):
        told = options.find_refused(Context, [options.OptionSource("here", pair)])
        assert [row.why for row in told] == ([REFUSED[pair]] if pair in REFUSED else []), pair
    both = [options.OptionSource("weak", "tcache:false"), options.OptionSource("strong", "tcache:true")]
    assert not options.find_refused(Context, both)
    assert [row.source for row in options.find_refused(Context, both[::-1])] == ["weak"]


@pytest.mark.parametrize("own, unread", [("MALLOC_CONF", []), ("_RJEM_MALLOC_CONF", ["MALLOC_CONF"]), (None, [])])
def test_variables_that_a_build_does_not_read(own, unread):
    """Those of other builds, where its own is known."""

    class Context:
        class symbols:
            class public_names:
                conf_variable = own

        class target:
            environment_variable = staticmethod(lambda name: "narenas:1" if name == "MALLOC_CONF" else None)

    assert options.list_unread_variables(Context) == unread


@pytest.mark.parametrize("counts, shown", [(True, "3 runs so far, one every 2 ms"), (None, "this build does not count their runs")])
def test_runs_of_background_threads(counts, shown):
    """A build without statistics counts none: unknown, not 0."""
    threads = options.BackgroundThreads(True, 4, 4, 3 if counts else None, 2.0 if counts else None)
    assert list(tunables_page.show_tunables(options.JemallocTunables([], [], threads)))[-1] == "background threads: 4 of at most 4 are running; " + shown


def test_options_that_nothing_names_are_null():
    """Unknown is no empty list: neither of options nor of where they were set."""

    class Context:
        class symbols:
            by_structure, option_names = True, ()
            names, find = staticmethod(lambda start: []), staticmethod(lambda name: None)

            class public_names:
                conf_variable = prefix = None

            class texts:
                names_threads = True

        class target:
            threads = staticmethod(list)

        types = TypeSet()
        variable = staticmethod(lambda name, size_bytes=0, signed=False: None)

    found = options.read_tunables(Context, lambda: None)
    assert (found.tunables, found.sources) == (None, None)
    assert list(tunables_page.show_tunables(found)) == [
        "what options were set is unknown",
        "options have no names in this build: their values are unknown",
        "",
        "background threads: unknown",
    ]
    found = stats.JemallocStats({"version": None, "opt": None, "arenas": {}}, {}, False, FORM, (), None, None)
    assert "Run-time option settings: unknown" in list(found.lines())


def test_options_are_listed_once():
    """No option stands in two lists, and each has a kind that can be read."""
    names = [one.name for one in options.OPTIONS + options.UNPRINTED]
    assert len(names) == len(set(names))
    kinds = {one.kind for one in options.OPTIONS + options.UNPRINTED}
    assert kinds <= {*options.ENUM_NAMES, *options.KIND_WIDTHS, "size", "ssize", "pointer", "text"}
