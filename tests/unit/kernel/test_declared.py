"""C and Python declare alike what crosses between them: numbers, structs and functions of the headers gdbheapx*.h.

Files: kernel/glibc/walkers.py, kernel/jemalloc/walkers.py.
"""

import ctypes
import importlib
import re
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import pytest

from gdbheapx.kernel import build
from gdbheapx.kernel.common import library
from tools import arrows

pytestmark = pytest.mark.once  # reads the sources

ROOT = Path(__file__).parents[3]
KERNEL = ROOT / "gdbheapx" / "kernel"
HEADERS = {path.parent.name: path for folder in ("gdbheapx", "tests/support") for path in sorted((ROOT / folder).rglob("gdbheapx*.h"))}
ROOMS = sorted(HEADERS)


class Header(NamedTuple):
    """The declarations of one header."""

    numbers: Dict[str, int]
    structs: Dict[str, List[Tuple[str, str, int]]]
    """(type, name, length of an array or 0) of each member, by the struct's tag."""
    functions: List[str]


def read_header(room: str) -> Header:
    """Parse the header of a folder: comments, enums, #define of numbers, structs and prototypes are all there is."""
    text = re.sub(r"/\*.*?\*/", "", HEADERS[room].read_text(encoding="utf-8"), flags=re.DOTALL)
    numbers = {name: int(value, 0) for name, value in re.findall(r"^#define (\w+) (0x[0-9a-f]+|\d+)", text, re.MULTILINE)}
    for items in re.findall(r"enum \{(.*?)\};", text, re.DOTALL):
        numbers.update((name, int(value)) for name, value in re.findall(r"(\w+) = (-?\d+)", items))
    structs = {tag: list(read_members(body)) for tag, body in re.findall(r"struct (\w+) \{(.*?)\};", text, re.DOTALL)}
    exported = text.partition("#pragma GCC visibility push(default)")[2].partition("#pragma")[0]
    return Header(numbers, structs, normal(exported))


def read_members(body: str) -> Iterator[Tuple[str, str, int]]:
    """Yield the members of a struct."""
    for declaration in filter(None, map(str.strip, body.split(";"))):
        kind, names = re.fullmatch(r"(struct \w+|\w+)\s+(.*)", declaration, re.DOTALL).groups()  # type: ignore[union-attr]
        for name, length in re.findall(r"(\w+)(?:\[(\d+)\])?", names):
            yield kind, name, int(length or 0)


def normal(prototypes: str) -> List[str]:
    """Return the prototypes, each on one line, sorted."""
    return sorted(" ".join(prototype.split()) for prototype in prototypes.split(";") if prototype.strip())


def modules_of(room: str) -> List[Any]:
    """Import the Python modules of a folder."""
    where = HEADERS[room].parent
    package = ".".join(where.relative_to(ROOT).parts)
    return [importlib.import_module("%s.%s" % (package, path.stem)) for path in sorted(where.glob("*.py")) if path.stem != "__init__"]


def records_of(room: str) -> Dict[str, Any]:
    """Return the records that the modules of a folder define, by the tag of their struct: WalkResult and NativeWalkResult are struct
    walk_result."""
    return {
        re.sub(r"(?<!^)(?=[A-Z])", "_", name[len("Native") :] if name.startswith("Native") else name).lower(): kind
        for module in modules_of(room)
        for name, kind in vars(module).items()
        if hasattr(kind, "_fields") and kind.__module__ == module.__name__
    }


def structure(tag: str, structs: Dict[str, List[Tuple[str, str, int]]]) -> Any:
    """Return the ctypes structure of a struct of a header."""
    fields = []
    for kind, name, length in structs[tag]:
        inner = ctypes.c_uint64 if kind == "uint64_t" else structure(kind.split()[1], structs)
        fields.append((name, inner * length if length else inner))
    return type(tag, (ctypes.Structure,), {"_fields_": fields})


def flat_members(kind: Any) -> Iterator[Tuple[str, int]]:
    """Yield (name, numbers) of each member of a record that crosses; a member that is a record counts its numbers. Rows, of which there may be
    any number, follow the struct."""
    for name, annotation in kind.__annotations__.items():
        inner = library._record_in(annotation)
        text = str(annotation)
        if "..." in text:
            continue
        if inner is not None:
            yield name, sum(count for _, count in flat_members(inner))
        elif text.startswith("typing.Tuple[int"):
            yield name, text.count("int")
        elif annotation in (int, bool) or text == "typing.Optional[int]":
            yield name, 1


@pytest.mark.parametrize("room", ROOMS)
def test_numbers(room: str) -> None:
    """A Python module of the folder has each number of the header."""
    modules = modules_of(room)
    for name, value in read_header(room).numbers.items():
        values = {vars(module)[name] for module in modules if isinstance(vars(module).get(name), int)}
        assert value in values, name


@pytest.mark.parametrize("room", ROOMS)
def test_structs(room: str) -> None:
    """Each struct has the members of its record, in their order, at their offsets: all are numbers of 64 bits, or structs of such."""
    records, structs = records_of(room), {**read_header("common").structs, **read_header(room).structs}
    for tag in read_header(room).structs:
        members, kind, offset = list(flat_members(records[tag])), structure(tag, structs), 0
        assert [name for name, _ in members] == [name for name, _ in kind._fields_], tag
        for name, count in members:
            field = getattr(kind, name)
            assert (field.offset, field.size) == (offset, 8 * count), (tag, name)
            offset += 8 * count
        assert ctypes.sizeof(kind) == offset, tag


@pytest.mark.parametrize("room", ROOMS)
def test_functions(room: str) -> None:
    """Each function that a module of the folder calls is one of the library's, and each prototype of the header is in the library."""
    texts = build.all_sources()
    texts.update(build.read_sources(str(ROOT / "tests" / "support" / "toy_kernel")))
    declared = build.list_prototypes(texts)
    assert set(read_header(room).functions) <= set(declared)
    known = set(re.findall(r"\b(heapx_\w+)\(", "\n".join(declared)))
    sources = [path.read_text(encoding="utf-8") for path in HEADERS[room].parent.glob("*.py")]
    called = {name for source in sources for name in re.findall(r"library\.(heapx_\w+)\(", source)}
    assert called <= known | {"heapx_prototypes"}


def test_each_c_file_stands_by_itself() -> None:
    """clangd reads each C file with gdbheapx/compile_flags.txt, and so does `gcc -fsyntax-only`: those are flags that the build has, too."""
    flags = (KERNEL.parent / "compile_flags.txt").read_text(encoding="utf-8").split()
    assert {*flags} - {"-Ikernel"} <= {*build.FLAGS}
    check_syntax(path for root in build.source_roots() for path in build.list_sources(root) if path.endswith(".c"))


def check_syntax(paths: Iterable[str]) -> None:
    """Compile files without output; a warning fails."""
    words = build.find_compiler()
    if not words:
        pytest.skip("no compiler here")
    command = [*words, "@compile_flags.txt", "-fsyntax-only", "-Werror", *paths]
    done = subprocess.run(command, cwd=KERNEL.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("result", ["double", "int"])
def test_a_function_that_is_declared_otherwise_is_not_compiled(tmp_path: Path, result: str) -> None:
    """A function that is not declared at all is not compiled, either."""
    words = build.find_compiler()
    if not words:
        pytest.skip("no compiler here")
    function = "%s heapx_tiny_share(void)\n{\n    return 1;\n}\n" % result
    texts = {"tiny/gdbheapx_tiny.h": "double heapx_tiny_share(void);\n", "tiny/a.c": '#include "gdbheapx_tiny.h"\n' + function}
    assert (build.compile_into(str(tmp_path / "a.so"), words, texts, 1).returncode == 0) == (result == "double")
    texts["tiny/a.c"] = function
    assert build.compile_into(str(tmp_path / "b.so"), words, texts, 1).returncode != 0


def test_types_of_functions(c_library: str) -> None:
    """A function has the types of its prototype."""
    loaded = library.load_library_at(c_library)
    assert (loaded.heapx_source_new.restype, loaded.heapx_source_free.restype) == (ctypes.c_void_p, None)
    assert loaded.heapx_source_new.argtypes == [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    assert loaded.heapx_abi.argtypes == []
    assert loaded.heapx_marks_open.argtypes == [ctypes.c_void_p, ctypes.c_uint32]


def test_rooms() -> None:
    """No file and no folder of the kernel goes round in a circle; an allocator's folder knows blocks and what is common, not the other's."""
    assert not arrows.circles({str(one): {str(other) for other in others} for one, others in arrows.joined(arrows.arrows(KERNEL)).items()})
    rooms = {(one, other) for one, other in arrows.between(arrows.arrows(KERNEL), KERNEL) if (KERNEL / one).is_dir() and other != "build.py"}
    named = {one.parent.name for one in KERNEL.glob("*/*.c")} - {"blocks", "common"}
    assert rooms == {("blocks", "common")} | {(one, other) for one in named for other in ("blocks", "common")}
