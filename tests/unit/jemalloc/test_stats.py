"""malloc-stats: the arithmetic between memory and jemalloc's own words, and the tables of its text.

Files: jemalloc/context.py, jemalloc/heap/mutexes.py, jemalloc/messages/stats_tables.py, jemalloc/messages/tunables.py, jemalloc/stats/build_options.py, jemalloc/stats/arena.py, jemalloc/stats/figures.py, jemalloc/stats/hpa.py, jemalloc/stats/options.py, jemalloc/stats/tunables.py.
"""

import pytest

from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc import context
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.messages import stats as jemalloc_stats
from gdbheapx.jemalloc.messages import stats_tables as jemalloc_tables
from gdbheapx.jemalloc.messages import tunables as tunables_page
from gdbheapx.jemalloc.records import MallocStats, PrintForm
from gdbheapx.jemalloc.stats import figures as stats
from gdbheapx.jemalloc.stats import options, tunables

LOCK = {"num_ops": 7, "num_wait": 1, "num_spin_acq": 2, "num_owner_switch": 3, "total_wait_time": 100, "max_wait_time": 60, "max_num_thds": 2}
FORM = PrintForm(13, 10, True)


# ---------------------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("little", [True, False])
def test_strided(little):
    """Every member of an array of structs, in words and in other sizes, of either byte order."""
    order = "little" if little else "big"
    data = b"".join(value.to_bytes(8, order) + (value + 100).to_bytes(4, order) + bytes(4) for value in range(5))
    assert context.strided(data, 0, 16, 8, little) == [0, 1, 2, 3, 4]
    assert context.strided(data, 8, 16, 4, little) == [100, 101, 102, 103, 104]


def test_columns_that_are_missing():
    """A release without a counter has None in its rows, and nothing to add up."""
    assert context.rows({"a": [1, 2], "b": None, "c": [5]}, 2) == [{"a": 1, "b": None, "c": 5}, {"a": 2, "b": None, "c": None}]
    assert context.added([None, [1, 2], [10, 20]]) == [11, 22]
    assert context.added([None]) is None


def test_locks_together():
    """Sums, but for maxima; one that is not known is not known in the sum."""
    other = {**LOCK, "max_wait_time": 900, "max_num_thds": 1}
    both = mutexes.merged([LOCK, other])
    assert (both["num_ops"], both["total_wait_time"], both["max_wait_time"], both["max_num_thds"]) == (14, 200, 900, 2)
    assert mutexes.merged([LOCK, {**LOCK, "num_ops": None}])["num_ops"] is None
    assert mutexes.largest([LOCK, {**LOCK, "num_ops": 3, "total_wait_time": 101}])["total_wait_time"] == 101
    assert mutexes.largest([]) == mutexes.none()


@pytest.mark.parametrize("number, shown", [(1 << 14, "0.25"), (3 << 16, "3.0"), (0xFFFFFFFF, "-1"), ((1 << 16) + 1, "1.00001525878906")])
def test_fixed_point(number, shown):
    """As fxp_print writes it: up to 14 digits, cut; the value that means `off` is -1."""
    assert options.fixed_point(number) == shown


def test_enum_without_name():
    """A value that no release has stays unknown."""
    assert options.name_of("thp", 2) == "never"
    assert options.name_of("thp", 17) is None
    assert options.name_of("thp", None) is None


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

    class Context:
        class jemalloc:
            pass

        class geometry:
            word_bytes = 8

    Context.jemalloc.version = version
    merged = stats.merge_arenas(Context, [arena(0, mapped=8192), arena(1, mapped=2**64 - 4096)])
    assert merged["nthreads"] == 3
    assert merged["mapped"] == 4096  # a counter below 0 is a part of a sum of size_t
    assert "name" not in merged
    assert (merged["uptime_ns"], merged["dss"], merged["dirty_decay_ms"], merged["muzzy_decay_ms"]) == (50, "N/A", -1, -1)
    assert merged["large"]["nflushes"] == flushes
    assert merged["mutexes"]["base"]["max_wait_time"] == 1
    assert merged["bins"][0]["curregs"] == 10
    assert merged["bins"][0]["mutex"]["num_ops"] == 14
    unknown = stats.merge_arenas(Context, [arena(0), arena(1, nthreads=None)])
    assert unknown["nthreads"] is None


def record(figures):
    """The record around some figures."""
    return MallocStats(figures, {}, True, FORM, (4096,), None)


def test_json_has_jemallocs_keys():
    """What the text alone shows is not in the JSON, nor what 5.3.0 misprints; the text's figures stay."""
    slabs = {"full_slabs": {"ndirty_huge": 1, "nactive_huge": 2}, "empty_slabs": {"ndirty_huge": 3}}
    found = record(
        {"stats.arenas": {"0": {"bins": [{"nmalloc": 1, "nslabs": 2}], "lextents": [{"curlextents": 1, "nmalloc": 4}], "hpa_shard": slabs}}}
    )
    (entry,) = stats.as_json(found)["stats.arenas"].values()
    assert entry["bins"] == [{"nmalloc": 1}]
    assert entry["lextents"] == [{"curlextents": 1}]
    assert entry["hpa_shard"] == {"full_slabs": {"nactive_huge": 2}, "empty_slabs": {}}
    assert found.figures["stats.arenas"]["0"]["bins"][0]["nslabs"] == 2


def test_merged_only():
    """The sum alone; of a single arena it is that arena."""
    several = record({"stats.arenas": {"merged": {"a": 1}, "0": {"a": 0}, "1": {"a": 1}}})
    assert stats.merged_only(several).figures["stats.arenas"] == {"merged": {"a": 1}}
    assert stats.merged_only(record({"stats.arenas": {"3": {"a": 5}}})).figures["stats.arenas"] == {"merged": {"a": 5}}
    assert stats.merged_only(record({"version": "x"})).figures == {"version": "x"}


# ---------------------------------------------------------------------------------------------------- text


def test_decaying():
    """The table that users know; a decay time of -1 is N/A."""
    figures = {"dirty_decay_ms": 10000, "muzzy_decay_ms": -1, "pdirty": 205, "pmuzzy": 1}
    figures.update(
        {
            "%s_%s" % (state, key): number
            for number, (state, key) in enumerate((s, k) for s in ("dirty", "muzzy") for k in ("npurge", "nmadvise", "purged"))
        }
    )
    assert list(jemalloc_tables.decaying(figures)) == [
        "decaying:  time       npages       sweeps     madvises       purged",
        "   dirty: 10000          205            0            1            2",
        "   muzzy:   N/A            1            3            4            5",
    ]


@pytest.mark.parametrize("uptime, shown", [(None, None), (0, 0), (999_999_999, 50), (1_000_000_000, 50), (2_999_999_999, 25), (10**12, 0)])
def test_rates(uptime, shown):
    """Per whole second; below one second the count itself; unknown where the uptime is."""
    assert jemalloc_tables.rate(50, uptime) == shown


@pytest.mark.parametrize(
    "used, available, shown",
    [
        (1, 512, "0.001"),
        (0, 10, "0.000"),
        (32, 128, "0.250"),
        (31, 40, "0.775"),
        (999, 1000, "0.999"),
        (10, 10, "1"),
        (0, 0, "1"),
        (5, 4, " race"),
        (None, 4, None),
    ],
)
def test_utilization(used, available, shown):
    """Cut to three digits; more in use than there are is a race."""
    assert jemalloc_tables.utilization(used, available) == shown


def small_bin(**more):
    """A row of bins."""
    keys = ("nmalloc", "ndalloc", "nrequests", "curregs", "curslabs", "nonfull_slabs", "nfills", "nflushes", "nreslabs", "nslabs")
    return {**dict.fromkeys(keys, 0), "mutex": mutexes.none(), **more}


def test_bins():
    """Columns as wide as jemalloc's; a run of bins without slabs is one dashed line from 5.3.0 on, rows before."""
    rows = [small_bin(), small_bin(nmalloc=130, curregs=32, curslabs=1, nslabs=1), small_bin(), small_bin()]
    infos = [{"size": size, "nregs": 512, "slab_size": 4096, "nshards": 1} for size in (8, 16, 24, 32)]
    lines = list(jemalloc_tables.bins(rows, infos, 4096, 2 * 10**9, FORM))
    start = (
        "bins:           size ind    allocated      nmalloc (#/sec)      ndalloc (#/sec)    nrequests   (#/sec)  nshards      curregs     curslabs"
    )
    assert lines[0].startswith(
        start + "  nonfull_slabs regs pgs   util       nfills (#/sec)     nflushes (#/sec)       nslabs     nreslabs (#/sec)      n_lock_ops"
    )
    assert lines[1] == lines[3] == "                     ---"
    assert lines[2].startswith(
        "                  16   1          512          130      65            0       0            0         0        1           32            1"
    )
    assert len(lines) == 4
    assert len(list(jemalloc_tables.bins(rows, infos, 4096, 2 * 10**9, PrintForm(13, 8, False)))) == 1 + 4 + 2
    assert len(lines[2]) == len(lines[0])


def test_unknown_figures_show_as_such():
    """A value that is not known is a dash in tables and a word elsewhere, never 0."""
    assert jemalloc_tables.line([(None, 6), ("x", -3), (None, -3)]) == "     -x  -  "
    assert list(jemalloc_tables.memory({"pactive": None, "mapped": None}, 4096))[1:] == [
        "active:                             -",
        "mapped:                             -",
    ]
    assert jemalloc_stats._value(None) == "unknown"
    assert [jemalloc_stats._value(value) for value in (True, 5, "never")] == ["true", "5", '"never"']


def test_without_statistics():
    """A build that does not count shows how it was built and set, and no figures."""
    figures = {"version": "5.3.0", "config": {"stats": False}, "opt": {"dirty_decay_ms": 10000}, "arenas": {"narenas": 4}}
    found = MallocStats(figures, {"arenas.dirty_decay_ms": 7777}, False, FORM, (), None)
    assert list(jemalloc_stats.NativeStats(found, None).lines()) == [
        "___ Begin jemalloc statistics ___",
        'Version: "5.3.0"',
        "Build-time option settings",
        "  config.stats: false",
        "Run-time option settings",
        "  opt.dirty_decay_ms: 10000 (arenas.dirty_decay_ms: 7777)",
        "Arenas: 4",
        "--- End jemalloc statistics ---",
    ]


# ---------------------------------------------------------------------------------------------------- tunables


def test_where_an_option_was_set():
    """The strongest of the sources that have it; a name that another one begins with is not it."""
    given = [tunables.Source("weak", "narenas:1,prof_active:false"), tunables.Source("strong", "narenas:2,lg_tcache_max:12")]
    assert tunables._set_in("narenas", given) == "strong"
    assert tunables._set_in("prof_active", given) == "weak"
    assert tunables._set_in("prof", given) is None
    assert tunables._set_in("tcache_max", given) == "strong"


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
    monkeypatch.setattr(options, "read", lambda context, option: (True, known.get(option.name)))

    class Context:
        class symbols:
            option_names = ()
            find = staticmethod(lambda name: "there" if name == "opt_opt_of_later" else None)

    for pair in TAKEN + tuple(REFUSED):
        told = tunables.refused(Context, [tunables.Source("here", pair)])
        assert [row.why for row in told] == ([REFUSED[pair]] if pair in REFUSED else []), pair
    both = [tunables.Source("weak", "tcache:false"), tunables.Source("strong", "tcache:true")]
    assert not tunables.refused(Context, both)
    assert [row.source for row in tunables.refused(Context, both[::-1])] == ["weak"]


@pytest.mark.parametrize("own, unread", [("MALLOC_CONF", []), ("_RJEM_MALLOC_CONF", ["MALLOC_CONF"]), (None, [])])
def test_variables_that_a_build_does_not_read(own, unread):
    """Those of other builds, where its own is known."""

    class Context:
        class symbols:
            class public_names:
                conf_variable = own

        class target:
            environment_variable = staticmethod(lambda name: "narenas:1" if name == "MALLOC_CONF" else None)

    assert options.unread_variables(Context) == unread


@pytest.mark.parametrize("counts, shown", [(True, "3 runs so far, one every 2 ms"), (None, "this build does not count their runs")])
def test_runs_of_background_threads(counts, shown):
    """A build without statistics counts none: unknown, not 0."""
    threads = tunables.BackgroundThreads(True, 4, 4, 3 if counts else None, 2.0 if counts else None)
    assert list(tunables_page.page(tunables.Tunables([], [], threads)))[-1] == "background threads: 4 of at most 4 are running; " + shown


def test_the_page_says_what_does_nothing():
    """A variable that is not read, and an option that is not in force."""
    off = tunables.BackgroundThreads(False, 4, 0, 0, None)
    lines = list(tunables_page.page(tunables.Tunables([], [], off, [tunables.RefusedOption("there", "tcache:0", "neither true nor false")], ["MALLOC_CONF"])))
    assert "not in force: tcache:0, set in there: neither true nor false" in lines
    assert "MALLOC_CONF is in the environment, and this jemalloc does not read it" in lines


def test_what_a_value_says():
    """Values that change what happens are explained; a change at run time is said."""
    assert tunables._meaning("dirty_decay_ms", -1, -1).endswith("never: nothing is purged")
    assert "changed for arenas made since" in tunables._meaning("dirty_decay_ms", 10000, 500)
    assert tunables._meaning("background_thread", False, True) == tunables.MEANINGS["background_thread"]
    assert tunables._meaning("xmalloc", True, None) == ""


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

    found = tunables.read(Context, lambda: None)
    assert (found.tunables, found.sources) == (None, None)
    assert list(tunables_page.page(found)) == [
        "what options were set is unknown",
        "options have no names in this build: their values are unknown",
        "",
        "background threads: unknown",
    ]
    stats = MallocStats({"version": None, "opt": None, "arenas": {}}, {}, False, FORM, (), None)
    assert "Run-time option settings: unknown" in list(jemalloc_stats.NativeStats(stats, None).lines())


def test_options_are_listed_once():
    """No option stands in two lists, and each has a kind that can be read."""
    names = [one.name for one in options.OPTIONS + options.UNPRINTED]
    assert len(names) == len(set(names))
    kinds = {one.kind for one in options.OPTIONS + options.UNPRINTED}
    assert kinds <= {*options.NAMES, *options.WIDTHS, "size", "ssize", "pointer", "text"}
