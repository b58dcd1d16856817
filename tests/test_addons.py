"""Any add-on can be deleted: in a copy of the checkout without it, the core answers, and a command that is gone says how to get it.

Files: common/addon_loader.py.
"""

import ast
import functools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple, Sequence

import pytest

from gdbheapx.common import catalogue
from gdbheapx.kernel import build
from tests.support import compilers, mimallocs
from tests.support.gcores import gcore
from tests.support.paths import ROOT
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx
from tools import libraries, make_single

pytestmark = pytest.mark.once  # imports and words alone

NAMES = tuple(name for name in catalogue.ADDON_COMMANDS if (ROOT / "gdbheapx" / "addons" / name).exists())
ALL = list(NAMES)
TOP = ("gdbheapx", "commands", "tests", "tools", "docs", "docker", "bench", "demo", "share", "debian", "changelog.d", "setup.py", "pyproject.toml", "Makefile", "MANIFEST.in")
TEXTS = ("README.md", "SECURITY.md", "SUPPORT.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
NATIVE = {Path(root).name for root in build.source_roots()[1:]}
"""The add-ons that have C code."""
IMPORTS = """
import importlib, pathlib, sys
from gdbheapx import command
command.load_commands()
for path in sorted(pathlib.Path("gdbheapx").rglob("*.py")):
    if path.parts[1] == "addons" or path.name == "gdbinit.py":
        continue
    try:
        importlib.import_module(".".join(path.with_suffix("").parts))
    except ModuleNotFoundError as error:
        if error.name != "gdb":
            raise
print(*sorted(name for name in sys.modules if name.startswith("gdbheapx.addons.")))
"""
"""Every module of the core, outside gdb; says which of the add-ons were imported with them."""


HELPS = """
import re, sys
from gdbheapx import command
from gdbheapx.command import help_pages
from gdbheapx.common import catalogue
command.load_commands()
gone = {name.replace("_", "-") for addon in sys.argv[1].split(",") for name in catalogue.ADDON_COMMANDS[addon]}
gone |= {older for older, (newer, _) in catalogue.ALIASES.items() if newer in gone}
flags = {flag for one in command.COMMANDS.values() for given in (*one.arguments, *command.add_common_options(one)) for flag in given.flags}
flags |= {*re.findall(r"--[a-z-]+", help_pages.GLOBAL), "--exit"}
pages = [make(program) for program in ("gdbheapx", "heapx") for make in (help_pages.render_overview, help_pages.render_everything)]
pages += [help_pages.of_command(one, "gdbheapx", whole) for one in command.COMMANDS.values() for whole in (False, True)]
for line in "\\n".join(pages).splitlines():
    named = re.findall(r"(?:`|heapx )(?:(?:-p|--core|--snapshot) \\S+ )?([a-z-]+)", line)
    if gone & {*named} or {*re.findall(r"(?<![\\w-])--[a-z][a-z-]+", line)} - flags:
        print(line)
"""
"""Lines of help that name a command or an option that is not there."""
LOADING = ("tests/unit/command/test_help_pages.py", "tests/unit/allocators", "tests/unit/snapshot")
"""Unit tests of the core that come by addon_loader.py."""
HINT = re.compile(r"heapx (?:(?:-p|--core|--snapshot) \S+ )?([a-z-]+)")
"""A command as an answer names it."""


class Checkout(NamedTuple):
    """A copy of the checkout, and the add-ons that it lacks."""

    folder: Path
    missing: Sequence[str]

    def run(self, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run this Python in it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
        environment.update(variables)
        return subprocess.run([sys.executable, *words], cwd=self.folder, env=environment, capture_output=True, text=True, timeout=600)

    def ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run its command line."""
        return self.run("-m", "gdbheapx", *words)


@pytest.fixture(scope="module", params=[*([name] for name in NAMES), ALL], ids=lambda missing: "without-" + "-".join(missing))
def checkout(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The copy without one add-on and its tests, and without all."""
    folder, missing = tmp_path_factory.mktemp("checkout"), request.param
    left_out = {str(ROOT / of / name) for name in missing for of in ("gdbheapx/addons", "tests/addons")}

    def ignored(where: str, names: List[str]) -> List[str]:
        return [name for name in names if name == "target" or os.path.join(where, name) in left_out]  # what is compiled saves minutes

    for name in (*TOP, *TEXTS):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy(ROOT / name, folder / name)
    made = Checkout(folder, missing)
    if NATIVE.intersection(missing):  # its C code is part of the library, which is of other sources then
        quick = compilers.with_last(build.find_compiler() or ["cc"], tmp_path_factory.mktemp("quick"), "-O0")
        done = made.run("gdbheapx/kernel/build.py", CC=quick[0])
        assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def untouched(lasting: Lasting) -> Process:
    """A process whose core is asked."""
    return lasting.of("core", Stage.start, "untouched")


def start_python(stage: Stage) -> Process:
    """Start an interpreter that waits."""
    return stage.spawn_ready([sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"])


@pytest.fixture(scope="module")
def of_python(lasting: Lasting) -> Process:
    """This Python, at rest."""
    return lasting.of("python", start_python)


def test_every_module_of_the_core_is_imported(checkout: Checkout) -> None:
    """None needs an add-on, also not one that is there, but for its commands."""
    done = checkout.run("-c", IMPORTS)
    assert done.returncode == 0, done.stderr
    imported = {name.split(".")[2] for name in done.stdout.split()}
    assert imported == set(NAMES) - set(checkout.missing)


def test_help_lists_what_is_there(checkout: Checkout) -> None:
    """Commands of an add-on that is gone, and their older names, are in no list; all others are."""
    short, long = checkout.ask("--help"), checkout.ask("--help-all")
    assert (short.returncode, long.returncode) == (0, 0), short.stderr + long.stderr
    words = set(short.stdout.replace(",", " ").split()) & {name for commands in catalogue.ADDON_COMMANDS.values() for name in commands}
    listed = {line.split()[0] for line in long.stdout.splitlines() if line.startswith("  ")}
    gone = {name for addon in checkout.missing for name in catalogue.ADDON_COMMANDS[addon]}
    older = {name for name, (newer, _) in catalogue.ALIASES.items() if newer in gone}
    assert not words & gone and not listed & (gone | older)
    assert {"report", "arenas", "owners", "bins"} <= listed


def test_the_core_answers(checkout: Checkout, untouched: Process) -> None:
    """Commands of the core ask no add-on: each where all are gone, one where it is one."""
    for words in ("report", "arenas --json", "census", "leaks", "owners") if len(checkout.missing) > 1 else ("report",):
        done = checkout.ask("--core", str(untouched.core()), *words.split())
        assert done.returncode == 0 and done.stdout and "Traceback" not in done.stderr, (words, done.stderr)


def test_a_runtime_that_nothing_reads_is_named(checkout: Checkout, of_python: Process) -> None:
    """The census of a Python process says in one line what is missing, and counts its blocks all the same."""
    done = checkout.ask("--core", str(gcore(of_python)), "census")
    line = "objects of CPython have no names here: they are read by the add-on runtimes, which is not installed"
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count(line) == ("runtimes" in checkout.missing)


def test_a_command_that_is_gone_says_how_to_get_it(checkout: Checkout, untouched: Process) -> None:
    """In one line, with exit code 2, also for its help, with a target and by its older name."""
    names = [name for addon in checkout.missing for name in catalogue.ADDON_COMMANDS[addon]]
    older = [name for name, (newer, _) in catalogue.ALIASES.items() if newer in names]
    for words in [[name] for name in (*names, *older)] + [["help", name] for name in names] + [["--core", str(untouched.core()), name] for name in names[:1]]:
        done = checkout.ask(*words)
        addon = next(addon for addon in checkout.missing if catalogue.file_of(words[-1]) in catalogue.ADDON_COMMANDS[addon])
        cause = "gdbheapx: %s is part of the add-on %s, which is not installed; " % (words[-1], addon)
        assert done.returncode == 2 and done.stdout == "", (words, done)
        assert done.stderr.startswith(cause) and done.stderr.count("\n") == 1 and "make single WITH=%s" % addon in done.stderr


@pytest.mark.parametrize(
    ("addon", "words"),
    [
        ("views", ("report", "--html", "page.html")),
        ("labs", ("census", "--sites")),
        ("views", ("report", "--json", "--page")),
        ("labs", ("report", "--json", "--sites", "--page")),
    ],
)
def test_an_option_that_is_gone_says_so(checkout: Checkout, untouched: Process, addon: str, words: Sequence[str]) -> None:
    """An option of the core's commands that an add-on answers."""
    if addon not in checkout.missing:
        pytest.skip("this copy has it")
    done = checkout.ask("--core", str(untouched.core()), *words)
    assert done.returncode == 2 and "is part of the add-on %s, which is not installed" % addon in done.stderr, done.stderr


@pytest.mark.parametrize("checkout", [["views"], ["labs"]], ids=["without-views", "without-labs"], indirect=True)
def test_a_page_of_a_snapshot_without_its_parts(checkout: Checkout, untouched: Process, tmp_path: Path) -> None:
    """A snapshot that was taken without the add-on views has a page all the same: of what a report has."""
    taken = checkout.ask("--core", str(untouched.core()), "snapshot", str(tmp_path / "one.snap"))
    assert taken.returncode == 0, taken.stderr
    drawn = heapx(["--snapshot", str(tmp_path / "one.snap")], "report", "--html", str(tmp_path / "page.html"))
    assert drawn.code == 0 and "Size classes" in (tmp_path / "page.html").read_text(), drawn.stderr
    page = heapx(["--snapshot", str(tmp_path / "one.snap")], "report", "--page", "--json").envelope
    assert ("page" in page["data"]) is ("views" not in checkout.missing) is ("not-in-snapshot" not in [one["code"] for one in page["problems"]])


def test_no_help_names_what_is_gone(checkout: Checkout) -> None:
    """Neither a command nor an option, also not in examples and paragraphs about others."""
    done = checkout.run("-c", HELPS, ",".join(checkout.missing))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("checkout", [ALL], ids=["without-all"], indirect=True)
def test_no_answer_names_what_is_gone(checkout: Checkout, untouched: Process) -> None:
    """A hint with a command that is gone says how to get it."""
    gone = {name.replace("_", "-") for addon in checkout.missing for name in catalogue.ADDON_COMMANDS[addon]}
    gone |= {older for older, (newer, _) in catalogue.ALIASES.items() if newer in gone}
    for words in ("report", "report --json", "doctor", "census", "leaks", "pins", "tunables", "whatis 0x10", "trim --dry-run"):
        done = checkout.ask("--core", str(untouched.core()), *words.split())
        lines = [line for line in (done.stdout + done.stderr).splitlines() if gone & {*HINT.findall(line)}]
        assert "Traceback" not in done.stderr and not [line for line in lines if "is not installed" not in line], (words, lines)


PACKED = {
    "core": (["arenas", "--json"], '"used_bytes"'),
    "views": (["export", "--format", "csv"], "address"),
    "labs": (["cold", "--json"], '"not-live"'),
    "runtimes": (["census"], "dict"),
    "monitor": (["watch", "--times", "1", "--every", "1"], "RSS"),
}
"""By add-on: a command of it, and a word of what it says of a core, or of the process."""


@pytest.fixture(scope="module")
def pack_single(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., List[str]]:
    """Returns the command that runs a single file with these add-ons, each packed once, with a library of this machine that nothing optimises."""
    folder = tmp_path_factory.mktemp("single")

    @functools.cache
    def pack(*chosen: str) -> List[str]:
        names = ",".join(chosen) or "none"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(libraries, "compilers", lambda: {platform.machine(): compilers.with_last(build.find_compiler() or ["cc"], folder, "-O0")[0]})
            patch.setattr(libraries, "KEPT", folder / "libraries")
            patch.setattr(sys, "argv", ["make_single", str(folder / (names + ".py")), "--with", names])
            make_single.main()
        return [sys.executable, "-I", "-S", str(folder / (names + ".py"))]

    return pack


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [NAMES[::2], NAMES[1::2], ()], ids=lambda chosen: "-".join(chosen) or "none")
def test_a_single_file_has_what_was_chosen(chosen: Sequence[str], of_python: Process, pack_single: Callable[..., List[str]]) -> None:
    """`make single WITH=...`: what is in it answers, anything else says how to get it; the core answers in each."""
    core = str(gcore(of_python))
    for addon, (words, expected) in PACKED.items():
        if addon not in ("core", *NAMES):
            continue
        target = ["--pid", str(of_python.pid)] if addon == "monitor" else ["--core", core]
        done = subprocess.run([*pack_single(*chosen), *target, *words], capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        is_there = addon in ("core", *chosen)
        assert "Traceback" not in said and (expected in said) == is_there, (addon, words, said[:2000])
        assert is_there or "the add-on %s, which is not installed" % addon in said, (addon, said[:2000])


def test_a_single_file_reads_the_allocators_that_were_chosen(stage: Stage, pack_single: Callable[..., List[str]]) -> None:
    """mimalloc by a file with the add-on; another names the add-on."""
    core = str(mimallocs.recorder(stage, mimallocs.library()).core())
    for chosen in (["allocators"], []) if "allocators" in NAMES else ([],):
        done = subprocess.run([*pack_single(*chosen), "--core", core, "arenas", "--json"], capture_output=True, text=True, timeout=300)
        envelope = json.loads(done.stdout)
        is_read = any(row["allocator"] == "mimalloc" for row in (envelope["data"] or {"arenas": ()})["arenas"])
        assert (is_read, "make single WITH=allocators" in done.stdout) == (bool(chosen), not chosen), done


def test_an_allocator_that_is_gone_is_named(checkout: Checkout, stage: Stage) -> None:
    """By the name of its library, with how to get what reads it; what needs no allocator is answered."""
    if "allocators" not in checkout.missing:
        pytest.skip("this copy has it")
    core = str(mimallocs.recorder(stage, mimallocs.library()).core())
    done = checkout.ask("--core", core, "arenas")
    assert done.returncode == 4 and "mimalloc (libmimalloc" in done.stdout and "Traceback" not in done.stderr, done
    assert done.stdout.count("make single WITH=allocators") == 1
    report = checkout.ask("--core", core, "report")
    assert report.returncode == 4 and "mimalloc" in report.stdout and "Traceback" not in report.stderr, report


@pytest.mark.slow
@pytest.mark.parametrize("checkout", [ALL], ids=["without-all"], indirect=True)
def test_the_tests_of_the_core_are_collected(checkout: Checkout) -> None:
    """None of them imports an add-on."""
    done = checkout.run("-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "tests")
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("addon", NAMES)
def test_its_tests_import_no_other(addon: str) -> None:
    """The tests of an add-on, and what these import of tests/support, import no module of another."""
    sources, imported = list((ROOT / "tests" / "addons" / addon).rglob("*.py")), set()
    for source in sources:  # grows by what each imports
        for module in find_imports(source):
            path = ROOT / (module.replace(".", "/") + ".py")
            if path not in sources and module.startswith("tests.") and path.exists():
                sources.append(path)
            imported.update(re.findall(r"^(?:gdbheapx|tests)\.addons\.(\w+)", module))
    assert len(sources) > 3 and imported == {addon}


def find_imports(path: Path) -> Iterator[str]:
    """Yield the names of the modules that a file imports when it is imported."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ("%s.%s" % (node.module, alias.name) for alias in node.names)
            yield str(node.module)


@pytest.mark.slow
@pytest.mark.parametrize("checkout", [ALL], ids=["without-all"], indirect=True)
def test_what_loads_addons_needs_none(checkout: Checkout) -> None:
    """Unit tests of the core about the command line, the registry and the census pass without the add-on."""
    done = checkout.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not wild", *LOADING)
    assert done.returncode == 0, done.stdout[-3000:]
