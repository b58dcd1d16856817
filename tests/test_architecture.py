"""The dependency rule of the tree, read off its imports."""

import ast
import functools
import importlib
import re
from pathlib import Path
from typing import Iterator, List, NamedTuple, Set

import pytest

from gdbheapx import allocators
from gdbheapx.common import catalogue
from tools import arrows

pytestmark = [pytest.mark.once, pytest.mark.first]  # reads the sources

ROOT = Path(__file__).parents[1]
SHARED = {"common", "kernel"}
GROUND = {"common", "packs"}
"""Below everything else."""
ENTRY = {"api", "app", "command", "gdbinit"}
ALLOWED = {
    "inferior": {"inferior"},
    "command": {"allocators", "command"},
    "app": {"inferior", "allocators", "analysis", "snapshot", "report", "actions", "command", "app"},
    "layout": {"inferior", "layout", "packs"},
    "allocators": {"inferior", "allocators"},
    "common": {"common"},
    "packs": {"packs"},
    "glibc": {"inferior", "layout", "allocators", "glibc"},
    "jemalloc": {"inferior", "layout", "allocators", "jemalloc"},
    "analysis": {"inferior", "allocators", "analysis"},
    "snapshot": {"inferior", "allocators", "analysis", "command", "snapshot"},
    "report": {"allocators", "analysis", "report", "command", "snapshot"},
    "addons": set(),
    "addons/allocators": {"inferior", "allocators", "addons/allocators"},
    "addons/views": {"allocators", "analysis", "snapshot", "report", "command", "app", "api", "addons/views"},
    "addons/monitor": {"inferior", "allocators", "analysis", "snapshot", "report", "command", "app", "addons/monitor"},
    "addons/labs": {"inferior", "allocators", "analysis", "report", "command", "app", "actions", "addons/labs"},
    "addons/runtimes": {"inferior", "allocators", "analysis", "addons/runtimes"},
    "actions": {"inferior", "allocators", "actions", "command"},
    "kernel": {"inferior", "kernel"},
    "commands": {"allocators", "analysis", "snapshot", "report", "actions", "command"},
}
ALLOWED = {name: row for name, row in ALLOWED.items() if "/" not in name or (ROOT / "gdbheapx" / name).exists()}  # add-ons that are there
"""What else each folder may import. `report` and `actions` see the declarations' TextStyle, Options and JsonLines."""
ADDONS = "addons"
"""The folder of the add-ons, each of which is a package of its own here."""


def folder(file: str) -> str:
    """The folder of a file below gdbheapx/, `addons/NAME` of an add-on; its name without .py at the top."""
    parts = file.split("/")
    return "/".join(parts[:2]) if parts[0] == ADDONS and len(parts) > 2 else parts[0].replace(".py", "")


FOLDERS = sorted({folder(str(path.relative_to(ROOT / "gdbheapx"))) for path in (ROOT / "gdbheapx").glob("*/**/*.py")} | {"commands"})
"""Packages on disk, each of which ALLOWED has a row for."""
HOMES = {module.split(".")[-2]: "/".join(module.split(".")[1:-1]) + "/" for module in allocators.list_allocator_modules()}
"""The folder of each allocator, which is called as it is."""
GDB = {"gdbinit.py", "inferior/gdb/target.py", "inferior/gdb/inferior.py"}


class Import(NamedTuple):
    """One import statement."""

    file: str
    line: int
    module: str
    for_types: bool


def files() -> List[Path]:
    """Every Python file of the package."""
    return sorted((ROOT / "gdbheapx").rglob("*.py")) + sorted((ROOT / "commands").glob("*.py"))


@functools.cache
def text_of(path: Path) -> str:
    """A file, read once."""
    return path.read_text()


@functools.cache
def parse(path: Path) -> ast.Module:
    """A Python file, parsed once."""
    return ast.parse(text_of(path))


def label(path: Path) -> str:
    """The path below gdbheapx/, or commands/...."""
    return str(path.relative_to(ROOT / "gdbheapx")) if (ROOT / "gdbheapx") in path.parents else str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[Import]:
    """Every import, also those inside functions."""
    tree = parse(path)
    typing_only: Set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing_only.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(label(path), node.lineno, alias.name, id(node) in typing_only)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(label(path), node.lineno, "%s.%s" % (node.module, alias.name), id(node) in typing_only)


@functools.cache
def every_import() -> List[Import]:
    """Return all imports of the sources, which no other run than that of these tests has to parse."""
    return [one for path in files() for one in imports(path)]


def imported(module: str) -> str:
    """What of gdbheapx an import names, as ALLOWED has it."""
    parts = module.split(".")[1:3]
    return "/".join(parts) if parts[0] == ADDONS else parts[0]


def test_files_import_each_other_in_no_circle() -> None:
    """Also for types, and inside functions."""
    root = ROOT / "gdbheapx"
    named = {label(path): {label(other) for other in others} for path, others in arrows.joined(arrows.arrows(root)).items()}
    assert not arrows.circles(named)


def test_a_constant_has_one_value() -> None:
    """No name of a module in capitals is assigned twice: the later value would hold for both."""
    wrong = []
    for path in files():
        assigned = [node for node in parse(path).body if isinstance(node, (ast.Assign, ast.AnnAssign))]
        targets = [target for node in assigned for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
        names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        wrong += ["%s: %s" % (label(path), name) for name in {*names} if name.isupper() and names.count(name) > 1]
    assert not wrong


def test_gdb_is_imported_in_three_files() -> None:
    """Only gdbinit.py, target.py and inferior.py of inferior/gdb import gdb."""
    assert {one.file for one in every_import() if one.module.split(".")[0] == "gdb"} <= GDB


def test_only_actions_look_at_frames() -> None:
    """Only actions/ imports inferior.py of inferior/gdb, by which it looks at each frame, and changes."""
    found = {one.file for one in every_import() if one.module.startswith("gdbheapx.inferior.gdb.inferior.")}
    assert not [file for file in found if folder(file) != "actions" and file != "inferior/gdb/inferior.py"]


LIBRARIES = {
    "tabulate": {"report/text.py"},
    "distributed": {"addons/views/fleet/cluster.py"},
    "fsspec": {"snapshot/container.py"},
    "jinja2": {"addons/views/html/render.py"},
    "markupsafe": {"addons/views/html/render.py"},
    "duckdb": {"addons/views/query/engine.py"},
    "numpy": {"report/encodings.py"},
    "pandas": {"report/encodings.py"},
    "prometheus_client": {"addons/monitor/watch/endpoint.py"},
    "rich": {"addons/views/explore/app.py"},
    "textual": {"addons/views/explore/app.py"},
    "mcp": {"addons/views/agents/server.py"},
    "capstone": {"addons/labs/sites/scan.py"},
    "pyarrow": {"report/encodings.py"},
    "lz4": {"inferior/core_file.py"},
    "zstandard": {"inferior/core_file.py"},
}
LIBRARIES = {name: places for name, places in LIBRARIES.items() if all((ROOT / "gdbheapx" / place).exists() for place in places)}  # without add-ons that were deleted
"""Each third-party library and where alone it is imported."""


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_libraries_have_one_place(library: str) -> None:
    """Each third-party library is imported in one file."""
    assert {one.file for one in every_import() if one.module.split(".")[0] == library} == LIBRARIES[library]


def test_sql_is_answered_outside_gdb() -> None:
    """Only the shell's and Python's way to ask import the engine: what runs inside gdb never does."""
    by_engine = {one.file for one in every_import() if "gdbheapx.addons.views.query.engine" in one.module}
    assert by_engine == {"addons/views/query/command.py"}


def test_one_file_of_the_core_loads_addons() -> None:
    """No other file names a module of an add-on, not even for its types, so that any folder of addons/ can be deleted."""
    assert not [one for one in every_import() if one.module.startswith("gdbheapx." + ADDONS) and not one.file.startswith(ADDONS + "/")]
    named = {label(path) for path in files() if re.search(r"gdbheapx\.%s\b" % ADDONS, path.read_text()) and not label(path).startswith(ADDONS + "/")}
    assert named == {"common/addon_loader.py"}


def test_addons_do_not_know_each_other() -> None:
    """What one asks of another comes from the loader, which says so where it is not there."""
    pairs = [(one, folder(one.file), imported(one.module)) for one in every_import() if one.file.startswith(ADDONS) and one.module.startswith("gdbheapx." + ADDONS)]
    assert not [one for one, of, to in pairs if of != to]


@pytest.mark.parametrize("addon", catalogue.ADDON_COMMANDS)
def test_an_addon_is_what_the_core_says_of_it(addon: str) -> None:
    """Its commands are the files of its folder `commands`, each capability is a module of it, and its pages are in docs/."""
    home = ROOT / "gdbheapx" / ADDONS / addon
    if not home.exists():
        pytest.skip("this add-on was deleted")
    assert sorted(path.stem for path in home.glob("commands/*.py") if path.stem != "__init__") == sorted(catalogue.ADDON_COMMANDS[addon])
    package = importlib.import_module("gdbheapx.addons.%s" % addon)
    capabilities = package.CAPABILITIES
    assert not [page for page in package.DOCS if not (ROOT / "docs" / page).exists()]
    assert sorted(capabilities) == sorted(catalogue.ADDON_CAPABILITIES[addon])
    assert not [module for module in capabilities.values() if not (home / (module.replace(".", "/") + ".py")).exists()]


def test_nothing_else_from_outside() -> None:
    """Everything else is the standard library or this package."""
    import sys

    known = getattr(sys, "stdlib_module_names", None)
    if known is None:
        pytest.skip("Python before 3.10 does not list its standard library")
    outside = {one.module.split(".")[0] for one in every_import()} - set(known) - {"gdbheapx", "gdb", *LIBRARIES}
    assert not outside


def test_each_folder_has_a_row() -> None:
    """A package that ALLOWED does not know could import anything."""
    assert sorted(ALLOWED) == FOLDERS


@pytest.mark.parametrize("name", FOLDERS)
def test_left_does_not_know_right(name: str) -> None:
    """A folder imports only what its row allows."""
    wrong = []
    for one in every_import():
        parts = one.module.split(".")
        if folder(one.file) != name or parts[0] != "gdbheapx" or len(parts) < 2:
            continue
        allowed = ALLOWED.get(name, set()) | (set() if name in GROUND else SHARED)
        if imported(one.module) not in allowed:
            wrong.append("%s:%d imports %s" % (one.file, one.line, one.module))
    assert not wrong


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_nothing_is_allowed_that_nobody_does(name: str) -> None:
    """A row of ALLOWED says what is there."""
    done = {imported(one.module) for one in every_import() if folder(one.file) == name and one.module.startswith("gdbheapx.")}
    assert ALLOWED[name] - {name} <= done


def test_entry_points_know_no_allocator() -> None:
    """An entry point serves any: it imports none."""
    homes = tuple("gdbheapx." + home.replace("/", ".") for home in HOMES.values())
    assert not [one for one in every_import() if folder(one.file) in ENTRY and one.module.startswith(homes)]


NAMED_BY = {"decay": "decay", "purge": "purge", "tickers": "tickers", "trim": "trim"}
"""Commands and the capability behind them. Where one allocator alone has it, the help may name that one."""


NAMING = ("allocators/__init__.py", "allocators/fingerprints.py", "allocators/measured.py", "common/catalogue.py", "addons/allocators/__init__.py", "addons/allocators/gates.py")
"""Files that put allocators together: the registry, what is known of them before they are imported, what was measured."""


def may_name(path: Path, name: str) -> bool:
    """This file belongs to the allocator, or puts allocators together."""
    where = label(path)
    return where.startswith((HOMES[name], "kernel/%s/" % name, "packs/")) or where in NAMING


LIBRARIES_OF_LIBC = re.compile(r"ld-musl|libc\.musl")
"""Names of files, of which some also have an allocator's name."""


def names_in(path: Path, name: str) -> Iterator[int]:
    """Lines with an allocator's name, as word or part of an identifier; the texts of a command that only it offers may have it."""
    text = text_of(path)
    told: Set[int] = set()
    if path.parent.name == "commands" and path.stem in NAMED_BY:
        with_capability = [one.name for one in allocators.all_allocators() if one.can(NAMED_BY[path.stem])]
        for node in ast.walk(ast.parse(text)) if with_capability == [name] else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                told.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(LIBRARIES_OF_LIBC.sub("", text).split("\n"), 1)
    return (number for number, line in lines if name in line.lower() and number not in told)


@pytest.mark.parametrize("name", HOMES)
def test_an_allocator_is_named_at_home_alone(name: str) -> None:
    """Outside its folder, its room in the kernel and the registry nobody knows an allocator by name."""
    sources = files() + [path for pattern in ("*.c", "*.h") for path in sorted((ROOT / "gdbheapx").rglob(pattern))]
    assert not ["%s:%d" % (label(path), line) for path in sources if not may_name(path, name) for line in names_in(path, name)]


OTHERS = re.compile(r"rpmalloc|tbbmalloc|hoard_malloc|Sanitizer", re.IGNORECASE)


def test_allocators_that_are_not_read_stand_in_one_table() -> None:
    """Their names are in allocators/fingerprints.py alone, of which others say which they mean."""
    wrong = []
    for path in files():
        text = re.sub(r"fingerprints\.\w+", "", path.read_text())
        if label(path) != "allocators/fingerprints.py" and OTHERS.search(text):
            wrong.append("%s: %s" % (label(path), OTHERS.findall(text)))
    assert not wrong


def test_the_seam_is_all_that_is_known_of_targets() -> None:
    """Above inferior/ only inferior.base and what a machine has are imported; the entry points alone open targets."""
    wrong = [
        one
        for one in every_import()
        if one.module.startswith("gdbheapx.inferior.")
        and not one.module.startswith(("gdbheapx.inferior.base", "gdbheapx.inferior.arch"))
        and folder(one.file) not in ENTRY | {"inferior", "actions"}
        and one.file != "allocators/session.py"  # of_process: any other process of the machine
        and not one.file.startswith(("addons/labs/cold/", "addons/labs/short_stop/", "addons/monitor/"))  # act, or read the kernel's counters
    ]
    assert not [one for one in wrong if not one.for_types]


def test_allocators_do_not_know_each_other() -> None:
    """None imports another."""
    wrong = []
    for one in every_import():
        path = one.module.replace(".", "/").replace("gdbheapx/", "", 1) + "/"
        homes = [home for home in HOMES.values() if one.file.startswith(home)]
        wrong += [one for home in HOMES.values() if homes and home not in homes and path.startswith(home)]
    assert not wrong


def test_nothing_below_report_prints() -> None:
    """Only the entry points and report write; nothing below calls print or sys.stdout."""
    wrong = []
    for path in files():
        name = folder(label(path))
        if name in {"report", "cli", "gdb_entry", "gdbinit", "commands"} or label(path) == "kernel/build.py":
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                wrong.append("%s:%d" % (label(path), node.lineno))
            if isinstance(node, ast.Attribute) and node.attr == "stdout" and isinstance(node.value, ast.Name) and node.value.id == "sys":
                wrong.append("%s:%d" % (label(path), node.lineno))
    assert not wrong


SENTENCES = {"what", "hint", "message", "evidence"}
MATCHERS = {"startswith", "endswith", "find", "index", "count"}


def test_no_code_decides_by_matching_a_sentence() -> None:
    """Nobody looks for words in what is said to a user: a code tells what it is."""
    wrong = []
    for path in files():
        for node in ast.walk(parse(path)):
            sides: List[ast.expr] = []
            if isinstance(node, ast.Compare) and any(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops):
                sides = [side for side in node.comparators if isinstance(side, ast.Attribute)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MATCHERS:
                sides = [node.func.value]
            if any(isinstance(side, ast.Attribute) and side.attr in SENTENCES for side in sides):
                wrong.append("%s:%d" % (label(path), node.lineno))
    assert not wrong


def test_versions_are_compared_in_few_places() -> None:
    """Only layouts.py, detect.py, find.py and geometry.py (MALLOC_ALIGNMENT is a constant that no field tells) ask for an allocator's version; walkers ask whether a field exists."""
    wrong = []
    for path in files():
        if folder(label(path)) not in {"glibc", "jemalloc", "analysis"} or path.name in ("layouts.py", "detect.py", "find.py", "geometry.py"):
            continue
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Compare) and re.search(r"attr='(version|glibc_version)'|id='version'", ast.dump(node)):
                wrong.append("%s:%d" % (label(path), node.lineno))
    assert not wrong


def test_numbers_of_glibc_structs_stand_in_layouts_alone() -> None:
    """How many elements a field has is asked of the field: the next release changes layouts.py and no other file. (64 of a sum or a shift is bits or bytes.)"""
    from gdbheapx.glibc import layouts

    rows = (layouts.MALLOC_PAR, layouts.MALLOC_STATE, layouts.HEAP_INFO, layouts.TCACHE)
    counts = {field.count for row in rows for field in row.fields if isinstance(field.count, int) and field.count > 8}
    numbers = {*counts, layouts.NBINS, layouts.TCACHE_BINS, layouts.MAX_TCACHE_COUNT}
    wrong = []
    for path in files():
        if folder(label(path)) != "glibc" or path.name == "layouts.py":
            continue
        summed = {id(part) for node in ast.walk(parse(path)) if isinstance(node, ast.BinOp) for part in (node.left, node.right)}
        named = {id(part) for node in parse(path).body if isinstance(node, ast.Assign) for part in ast.walk(node.value)}
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and node.value in numbers and id(node) not in summed | named:
                wrong.append("%s:%d: %s" % (label(path), node.lineno, node.value))
    assert not wrong


ARCH = "inferior/arch/"
OF_A_MACHINE = re.compile(
    r"x86|\bx64|amd64|i386|aarch64|arm64|riscv|powerpc|s390|tpidr|0xC00000|\b(EM|AUDIT_ARCH|NT_386|NT_X86|NT_ARM)_[A-Z0-9]"
    r"|\b[re]([abcd]x|[sb]p|[sd]i|ip|flags)\b|\bfs_base\b|\borig_[er]ax\b|\br(8|9|1[0-5])\b|\b[xyz]mm\d|\"x\d+\"|machine(\.startswith| ==)"
)
"""Names and numbers of machines, and their registers."""


def test_a_machine_is_known_in_its_file_alone() -> None:
    """Outside arch/, and files of the labs that are named for a machine, no source has its name, a register of it or a number of its ABI."""
    wrong = []
    for path in files():
        if label(path).startswith(ARCH) or folder(label(path)) in ("kernel", "packs") or (folder(label(path)) == "addons/labs" and path.stem in ("__init__", "x86_64", "aarch64")):
            continue
        for number, line in enumerate(path.read_text().split("\n"), 1):
            if line.startswith("from gdbheapx.addons.labs.sites.x86_64 import"):  # its file's name
                continue
            wrong += ["%s:%d: %s" % (label(path), number, word.group()) for word in OF_A_MACHINE.finditer(line)]
    assert not wrong


def test_byte_order_is_named_in_one_place() -> None:
    """arch.byte_order, of which a target and an ELF header have theirs; the kernel has its own."""
    sources = [path for path in files() if folder(label(path)) != "kernel" and not label(path).startswith(ARCH)]
    assert not [label(path) for path in sources if re.search(r'"(little|big)" if', path.read_text())]


def test_importing_opens_nothing() -> None:
    """At import no module opens files, runs programs or asks gdb: such calls stand inside functions only."""
    forbidden = {"open", "execute", "run", "Popen", "listdir", "CDLL", "lookup_type", "parse_and_eval"}
    wrong = []
    for path in files():
        if label(path) == "gdbinit.py":
            continue
        for node in parse(path).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or (isinstance(node, ast.If) and "__main__" in ast.dump(node.test)):
                continue
            for inner in ast.walk(node):
                name = getattr(inner.func, "attr", getattr(inner.func, "id", "")) if isinstance(inner, ast.Call) else ""
                if name in forbidden:
                    wrong.append("%s:%d calls %s" % (label(path), inner.lineno, name))
    assert not wrong


STARTS = "Popen|run|call|check_call|check_output|getoutput|getstatusoutput|system|popen|posix_spawnp?|spawn[lv]p?e?|exec[lv]p?e?|which"
STARTING = {
    "common/child_python.py",  # Python
    "app/gdb_process.py",  # gdb
    "inferior/live/tracer.py",  # /bin/sh
    "addons/monitor/capture/turn.py",  # what the kernel would have started
    "kernel/build.py",  # a compiler, in a folder of its own
}
"""Files that start programs; of those by name child_python.find_program tells the path, which kernel/build.py has no package to ask."""


def test_one_file_starts_an_interpreter() -> None:
    """Python is started by child_python.py alone: no other file has its path, its options or its variables; few files start anything."""
    of_python, starting = set(), set()
    for path in files():
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Constant) and node.value in ("-m", "-c", "PYTHONPATH") or isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.executable":
                of_python.add(label(path))
            if isinstance(node, ast.Call) and re.match(r"(subprocess|os|shutil)\.(%s)$" % STARTS, ast.unparse(node.func)):
                starting.add(label(path))
    assert of_python == {"common/child_python.py", "inferior/live/tracer.py"}  # sh has a -c, too
    assert starting == STARTING


def test_every_test_states_a_fact() -> None:
    """Each test function has a docstring."""
    missing = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node):
                missing.append("%s:%s" % (path.name, node.name))
    assert not missing


def test_every_module_says_where_it_runs() -> None:
    """Each test module outside tests/unit states in pytestmark, with a reason, what runs it: the images too (image), no image (once), `make wild` (wild). It may be among
    the first, too, which `make test` runs."""
    missing = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        stated = re.findall(r"^pytestmark = \[?pytest\.mark\.(image|once|wild)(?:, pytest\.mark\.first\])?  # \w.*$", path.read_text(), re.MULTILINE)
        if len(stated) != 1 and "unit" not in path.relative_to(ROOT).parts:
            missing.append(path.name)
    assert not missing


BESIDE = ("tests", "tools", "bench", "demo", "docker")
"""Folders of Python that are no product."""


def beside() -> Iterator[Path]:
    """Their files."""
    every = (path for name in BESIDE for path in sorted((ROOT / name).rglob("*.py")))
    return (path for path in every if not any(part.startswith(".") for part in path.relative_to(ROOT).parts))


def test_nobody_edits_the_path() -> None:
    """Tests, tools and benchmarks are packages, found from the root: none puts a folder on sys.path."""
    wrong = []
    for path in beside():
        for node in ast.walk(parse(path)):
            edited = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
            touched = [edited] + [one.value if isinstance(one, ast.Subscript) else one for one in targets]
            if any(isinstance(one, ast.Attribute) and one.attr == "path" and getattr(one.value, "id", "") == "sys" for one in touched):
                wrong.append("%s:%d" % (path.relative_to(ROOT), node.lineno))
    assert not wrong


def test_no_test_imports_a_test() -> None:
    """What several need is in tests/support; support itself imports nothing of the tests."""
    wrong = []
    for path in beside():
        for node in ast.walk(parse(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = ["%s.%s" % (node.module, alias.name) for alias in node.names]
            for name in names:
                parts = name.split(".")
                if any(part.startswith("test_") or part == "conftest" for part in parts[:-1]) or (parts[0] == "tests" and parts[1] != "support"):
                    wrong.append("%s:%d imports %s" % (path.relative_to(ROOT), node.lineno, name))
    assert not wrong


def test_every_mark_is_declared() -> None:
    """Whatever follows pytest.mark. is in pyproject.toml, and what is declared there is used."""
    declared = set(re.findall(r'^    "(\w+): ', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    text = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    used = set(re.findall(r"pytest\.mark\.(\w+)", text)) - {"parametrize", "skipif", "skip", "usefixtures", "xfail"}
    given = set(re.findall(r'(?:yield|add_marker\()\s*"(\w+)"', (ROOT / "tests" / "conftest.py").read_text()))
    assert used | given == declared


@pytest.mark.parametrize("name", [name for name in FOLDERS if name != ADDONS])
def test_a_product_folder_has_its_unit_tests(name: str) -> None:
    """tests/unit mirrors gdbheapx/ and commands/: a folder for each, with tests in it. An add-on has its own below tests/addons/, to be deleted with it."""
    where = ROOT / "tests" / (name if name.startswith(ADDONS) else "unit/" + name)
    assert list(where.rglob("test_*.py"))


def test_files_that_tests_name_exist() -> None:
    """A test module may say of which files it is (`Files: ...` ends its docstring); each is a file of the product."""
    modules = [path.read_text() for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    named = {name for text in modules for line in re.findall(r"^Files: ((?:.|\n(?!\"\"\"))*)", text, re.MULTILINE) for name in re.findall(r"[\w/]+\.py", line)}
    assert named - {label(path) for path in files()} == set()


def test_docker_is_no_package() -> None:
    """docker/ never gets an __init__.py: it would shadow the docker SDK."""
    assert not (ROOT / "docker" / "__init__.py").exists()


def test_lines_are_short() -> None:
    """No line of the product has more than 140 characters."""
    sources = files() + [path for pattern in ("*.c", "*.h") for path in sorted((ROOT / "gdbheapx").rglob(pattern))]
    assert not ["%s:%d" % (label(path), number) for path in sources for number, line in enumerate(path.read_text().split("\n"), 1) if len(line) > 140]


def test_the_toy_allocator_is_small() -> None:
    """A third allocator takes at most 100 lines: with a reserve, statuses of its own, a copy that is not used and memory that it returns."""
    assert len((ROOT / "tests" / "support" / "toy_allocator.py").read_text().splitlines()) <= 100
