"""Fixtures for every test that needs a process; unit tests use none of them."""

import contextlib
import os
import shutil
import signal
import sys
import zlib
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set

import matrix
import pytest

from tests.support import kernelcore, tool
from tests.support.hidden import EXPECTED_LESS, HIDDEN
from tests.support.paths import GDB
from tests.support.processes import Builder, Lasting, Stage

with contextlib.suppress(ImportError):  # tests that read the sources alone run without hypothesis
    from tests.support import searches  # noqa: F401  (registers the profile of hypothesis)

HERE = Path(__file__).parent
IMAGE = os.environ.get("GDBHEAPX_TEST_IMAGE", "")
"""The release whose image of the matrix this is, or of this machine, where the matrix runs, too (.ci/run); else empty."""
FOREIGN = {"real", "wild"}
STARTS_GDB = {"heapx": tool.heapx, "in_gdb": tool.in_gdb, "answers": tool.answers, "told": tool.told, "GDB": GDB}
"""A module that imports one of these starts gdb."""


def pytest_configure() -> None:
    """Signals that whoever started the tests ignores, as nohup does with SIGHUP, would be ignored by every program that they start.

    Where the environment forbids compiled modules, every start of the tool would compile it anew: half a second of a CPU, thousands of times.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> Optional[bool]:
    """Each process of a run would import the modules of `make wild` for nothing."""
    return True if collection_path.name == "wild" and "not wild" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    """A unit test depends on Python at least: the matrix's images of the oldest and the newest run it, unless it says `once`, or searches at random, which once is enough.

    The images have no cargo, and a Rust program brings its jemalloc with it: none runs a test of one.
    """
    for item in items:
        is_search = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
        if is_unit(item) and not is_search and not item.get_closest_marker("once"):
            item.add_marker("image")
        for mark in needs(item):
            item.add_marker(mark)
        if item.get_closest_marker("rust"):
            item.add_marker("once")
    if IMAGE:
        groups = [*of_each_kind(items), *cases_of_unit_tests(items)]
        left_out = {same[place] for same in groups for place in range(len(same)) if place != chosen(same) % len(same)}
        left_out |= set(cases_of_the_other_end([item for item in items if item not in left_out]))
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def of_each_kind(items: List[pytest.Item]) -> Iterable[List[pytest.Item]]:
    """Tests that differ in nothing but the kind of their target, of those that every image runs."""
    found: Dict[Any, List[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("image") or item.get_closest_marker("once"):
            continue
        if getattr(getattr(item, "callspec", None), "params", {}).get("kind") is not None:
            found.setdefault((item.path, getattr(item, "originalname", ""), beside_its_kind(item)), []).append(item)
    return found.values()


def cases_of_unit_tests(items: List[pytest.Item]) -> Iterable[List[pytest.Item]]:
    """Group the cases of each unit test: an image adds its Python and its libc to what `make test` has asked of all cases, and one case shows these."""
    cases: Dict[Any, List[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("first") and is_unit(item):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    return cases.values()


def cases_of_the_other_end(items: List[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield what the newest release leaves to the oldest, or the other way round: of the cases of a test that is not `first` each has every second one.

    The machine that runs all tests has a release between them, and runs every case.
    """
    ends = (matrix.ROWS[0].suite, matrix.ROWS[-1].suite)
    cases: Dict[Any, List[pytest.Item]] = {}
    for item in items:
        if IMAGE in ends and not item.get_closest_marker("first") and item.get_closest_marker("image") and not item.get_closest_marker("once"):
            cases.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for same in cases.values():
        if len(same) > 1:
            mixed = sorted(same, key=lambda item: zlib.crc32(beside_its_kind(item).encode()))  # else one end had all of one parameter
            yield from mixed[ends.index(IMAGE) :: 2]


def beside_its_kind(item: pytest.Item) -> str:
    """Return the parameters of a test but the kind of its target."""
    return repr({name: value for name, value in getattr(getattr(item, "callspec", None), "params", {}).items() if name != "kind"})


def chosen(same: List[pytest.Item]) -> int:
    """The one that runs here: half of the tests on a live process, half on a core, and in the oldest image those that do not in the newest."""
    suites = [row.suite for row in matrix.ROWS]
    return zlib.crc32(same[0].nodeid.encode()) + (suites.index(IMAGE) if IMAGE in suites else 0)


def folders_of(item: pytest.Item) -> Set[str]:
    """Return the names of the folders below tests/ that a test is in: an add-on's tests have folders of the same names."""
    return set(item.path.relative_to(HERE).parts[:-1])


def is_unit(item: pytest.Item) -> bool:
    """True for a test of a folder `unit`."""
    return "unit" in folders_of(item)


def needs(item: pytest.Item) -> Iterator[str]:
    """Marks that the folder, the fixtures and the parameters of a test tell; a test says the others itself."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if is_unit(item) and not item.get_closest_marker("slow"):
        yield "first"
    if FOREIGN.intersection(folders_of(item)):
        yield "foreign"
    if parameters.get("kind") == "live" or "live" in getattr(item, "fixturenames", ()):
        yield "live"
    module = getattr(item, "module", None)
    if any(getattr(module, name, None) is thing for name, thing in STARTS_GDB.items()):
        yield "gdb"
    if any(isinstance(value, str) and value.startswith("rust-") for value in parameters.values()):
        yield "rust"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What a test expected less, because of what is hidden from the tool, stands in its record."""
    EXPECTED_LESS.clear()
    yield
    item.user_properties += [("expects less:", why) for why in EXPECTED_LESS]
    if HIDDEN:
        asked = (*getattr(item, "fixturenames", ()), getattr(getattr(item, "callspec", None), "params", {}).get("kind"))
        item.user_properties.append(("of", " and ".join(kind for kind in ("live", "core") if kind in asked)))


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Compiles test programs, each once for all workers: the folders of these are in one of the run."""
    run = tmp_path_factory.getbasetemp()
    folder = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "programs"
    folder.mkdir(exist_ok=True)
    return Builder(folder)


@pytest.fixture(scope="session")
def attach_reason(builder: Builder) -> str:
    """Why gdb cannot attach to a process here; empty if it can."""
    if not shutil.which(GDB):
        return "gdb is not installed"
    stage = Stage(builder)
    try:
        process = stage.start("untouched")
        outcome = tool.run([GDB, "-nx", "-q", "-batch", "-p", str(process.pid), "-ex", "info threads"])
        return "" if b"* 1" in outcome.stdout else "gdb may not attach to a process here: " + outcome.stderr.strip().splitlines()[-1]
    finally:
        stage.close()


@pytest.fixture
def stage(builder: Builder) -> Iterator[Stage]:
    """Starts test programs, which end with the test."""
    made = Stage(builder)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lasting(builder: Builder) -> Iterator[Lasting]:
    """Keeps processes that tests only read, until the module's last test."""
    made = Stage(builder)
    yield Lasting(made)
    made.close()


@pytest.fixture(scope="module")
def core_stage(builder: Builder) -> Iterator[Stage]:
    """Starts what a module has one core of for all its cases; skips, with the reason, where the kernel writes none."""
    reason = kernelcore.reason()
    if reason:
        pytest.skip(reason)
    made = Stage(builder)
    yield made
    made.close()


@pytest.fixture
def live(attach_reason: str) -> str:
    """For tests of a live process only; skips, with the reason, where gdb may not attach."""
    if attach_reason:
        pytest.skip(attach_reason)
    return "live"


@pytest.fixture
def core() -> str:
    """For tests of a core only; skips, with the reason, where the kernel writes none."""
    reason = kernelcore.reason()
    if reason:
        pytest.skip(reason)
    return "core"


@pytest.fixture(params=["live", "core"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each case runs twice: on the live process and on a kernel core."""
    chosen = request.getfixturevalue(request.param)
    assert isinstance(chosen, str)
    return chosen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for this test's files."""
    return tmp_path
