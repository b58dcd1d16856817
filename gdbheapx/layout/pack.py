"""What is known of one build, as a JSON file keyed by build-id: types, relative addresses and constants of an allocator; vtables of C++."""

import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx import packs
from gdbheapx.errors import HeapxError
from gdbheapx.files import open_regular
from gdbheapx.inferior.base import Member, Module, StructType, Target, TypeSet, Vtable
from gdbheapx.problems import BAD_PACK, FILE_UNREADABLE, MISSING_PACKAGE, MISSING_SYMBOLS

MOST_VTABLES = 200_000
MOST_NAME_CHARACTERS = 4000
"""Longer names are cut, with three dots."""
MOST_ADDRESS = 1 << 48
MOST_WITHIN = 1 << 20


class Classes:
    """The vtables of one build's C++ classes: read when they are asked for, since a large program has 10,000.

    What stands in a pack is `"OFFSET": "CLASS"`: OFFSET, in hex, is the vtable's address point in the file, so that the first word of an
    object of CLASS is the module's load bias plus OFFSET. `"OFFSET": ["CLASS", N]` is the vtable of a base that begins N bytes
    into the object.
    """

    def __init__(self, known: Union[bytes, Dict[str, Any], Dict[int, Vtable], None] = None, path: str = "") -> None:
        """`known`: the member of a pack, as text or as JSON has it, or the vtables themselves."""
        self._unread: Optional[Union[bytes, Dict[str, Any]]] = None
        self._found: Dict[int, Vtable] = {}
        self._path = path
        if isinstance(known, bytes) or (isinstance(known, dict) and any(isinstance(key, str) for key in known)):
            self._unread = known  # type: ignore[assignment]
        elif known:
            self._found = dict(sorted(known.items()))  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._unread or self._found)

    def all(self) -> Dict[int, Vtable]:
        """By address. HeapxError in one line if the pack is damaged here."""
        if self._unread is not None:
            try:
                tree = json.loads(self._unread.decode("utf-8")) if isinstance(self._unread, bytes) else self._unread
                self._found = dict(sorted((_address(key), _vtable(value)) for key, value in tree.items()))
            except RecursionError:
                raise HeapxError("%s is not a pack: its vtables are nested too deep" % self._path, code=BAD_PACK)
            except (ValueError, TypeError, AttributeError) as error:
                reason = " ".join(str(error).split())[:200]
                raise HeapxError("%s is not a pack: %s" % (self._path, reason), "make it again with gdbheapx symbols export", code=BAD_PACK)
            self._unread = None
        return self._found

    def tree(self) -> Dict[str, Any]:
        """As JSON has it."""
        return {"%x" % at: [_cut(vtable.name), vtable.within] if vtable.within else _cut(vtable.name) for at, vtable in self.all().items()}


def _cut(name: str) -> str:
    return name if len(name) <= MOST_NAME_CHARACTERS else name[: MOST_NAME_CHARACTERS - 3] + "..."


def _address(key: str) -> int:
    address = int(key, 16)
    if not 0 <= address < MOST_ADDRESS:
        raise ValueError("%s is not the place of a vtable" % key[:60])
    return address


def _vtable(value: Any) -> Vtable:
    name, within = value if isinstance(value, list) else (value, 0)
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME_CHARACTERS:
        raise ValueError("%s is not the name of a class" % json.dumps(name)[:60])
    if not isinstance(within, int) or isinstance(within, bool) or not 0 <= within <= MOST_WITHIN:
        raise ValueError("%s is not a place in an object" % json.dumps(within)[:60])
    return Vtable(name, within)


SCHEMA = "gdbheapx-pack/1"
MAX_FILE_BYTES = 32 << 20
MAX_FILES = 1000
"""Files looked at in one directory of packs."""
MAX_STRUCTS = 4096
MAX_OFFSET = 1 << 48
KIND = re.compile(r"int|uint|bool|char|float|pointer|string|(enum|struct) .*")
BUILD_ID = re.compile(r"[0-9a-f]{4,128}")
VTABLES = b',\n"vtables": {\n'
"""What stands before them in a file as dump() writes it: no text of JSON has a line's end in it."""


class Pack(NamedTuple):
    """One build."""

    allocator: str
    """Its name; empty where the pack has vtables alone."""
    version_text: Optional[str]
    """The string it was built with, such as `5.3.0-0-g54ead...` or `2.36`."""
    build_id: str
    """Of the library as it is distributed; lower-case hex."""
    machine: str
    """In gdb's words, as Target.machine."""
    word_bytes: int
    prefix: str
    """Private prefix, such as `je_`; names here go without it. Empty where there is none."""
    public_prefix: str
    """Prefix of mallctl and the rest of the public interface. Empty where there is none."""
    symbols: Dict[str, Tuple[int, int]]
    """Variable -> (address in the file, size_bytes)."""
    thread_locals: Dict[str, Tuple[int, int]]
    """Variable -> (offset in the object's thread-local block, size_bytes)."""
    types: TypeSet
    constants: Dict[str, int]
    """What the build fixed: `lg_page`, `lg_vaddr`, as far as its maker knew."""
    made_from: str
    """In words: what kind of debug information, by which compiler."""
    exactness: str
    """In words: how far it is known to be that of the distributed library; empty for `all of it`."""
    vtables: Classes = Classes()
    """Of the C++ classes of the build."""


class Listed(NamedTuple):
    """A file that is, or claims to be, a pack."""

    path: str
    pack: Optional[Pack]
    problem: Optional[str]
    """Why it cannot be used."""


def tree(pack: Pack) -> Dict[str, Any]:
    """As JSON has it."""
    names = ("allocator", "version_text", "build_id", "machine", "word_bytes", "prefix", "public_prefix", "made_from", "exactness")
    members: Dict[str, Any] = {"schema": SCHEMA}
    members.update({name: getattr(pack, name) for name in names})
    members["constants"] = dict(sorted(pack.constants.items()))
    structs = pack.types.structs.items()
    tables: Dict[str, Dict[str, Any]] = {
        "symbols": {name: list(place) for name, place in pack.symbols.items()},
        "thread_locals": {name: list(place) for name, place in pack.thread_locals.items()},
        "variables": {name: list(place)[1:] for name, place in pack.types.variables.items()},
        "enums": {
            name: dict(sorted(values.items(), key=lambda struct: (struct[1], struct[0]))) for name, values in pack.types.enums.items()
        },
        "structs": {name: [struct.size_bytes, {field: list(place) for field, place in struct.members.items()}] for name, struct in structs},
    }
    members.update({name: {key: table[key] for key in sorted(table)} for name, table in tables.items()})
    if pack.vtables:
        members["vtables"] = pack.vtables.tree()
    return members


def dump(pack: Pack) -> str:
    """As the text of a file: the same for equal packs, one struct, variable or class a line; the vtables last."""
    lines = []
    for name, value in tree(pack).items():
        if isinstance(value, dict) and name != "constants":
            rows = ",\n".join("%s: %s" % (_json(key), _json(entry)) for key, entry in value.items())
            lines.append("%s: {\n%s\n}" % (_json(name), rows))
        else:
            lines.append("%s: %s" % (_json(name), _json(value)))
    return "{\n%s\n}\n" % ",\n".join(lines)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def load(path: str) -> Pack:
    """The pack in a file. HeapxError in one line if it is not one."""
    try:
        with open(open_regular(path), "rb") as file:
            data = file.read(min(os.fstat(file.fileno()).st_size, MAX_FILE_BYTES) + 1)
    except OSError as error:
        raise HeapxError("cannot read the pack %s: %s" % (path, error.strerror), code=FILE_UNREADABLE)
    return parse(data, path)


def parse(data: bytes, path: str) -> Pack:
    """The pack in these bytes, which stand in the file `path`."""
    if len(data) > MAX_FILE_BYTES:
        raise HeapxError("%s is not a pack: it is larger than %d bytes" % (path, MAX_FILE_BYTES), code=BAD_PACK)
    try:
        tree = _json_tree(data)
        schema = tree.get("schema") if isinstance(tree, dict) else None
        if schema != SCHEMA:
            raise ValueError("its schema is %s, not %s" % (_json(schema)[:60], SCHEMA))
        return _pack(tree, path)
    except RecursionError:
        raise HeapxError("%s is not a pack: it is nested too deep" % path, code=BAD_PACK)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        reason = "it lacks %s" % error if isinstance(error, KeyError) else " ".join(str(error).split())[:200]
        raise HeapxError("%s is not a pack: %s" % (path, reason), "make it again with gdbheapx symbols export", code=BAD_PACK)


def _json_tree(data: bytes) -> Any:
    """The pack's members; its vtables, if they stand last as dump() writes them, as the text that they are."""
    head, mark, classes = data.partition(VTABLES)
    if mark and data.endswith(b"}\n}\n"):
        try:
            tree = json.loads((head + b"\n}\n").decode("utf-8"))
        except ValueError:  # the mark stands inside another member
            return json.loads(data.decode("utf-8"))
        tree["vtables"] = b"{" + classes[:-2]
        return tree
    return json.loads(data.decode("utf-8"))


def _pack(tree: Dict[str, Any], path: str) -> Pack:
    structs = {
        name: StructType(_number(struct[0]), {field: _member(place) for field, place in struct[1].items()})
        for name, struct in tree["structs"].items()
    }
    variables = {name: _member([0] + place) for name, place in tree["variables"].items()}
    enums = {name: {key: _number(value, -MAX_OFFSET) for key, value in values.items()} for name, values in tree["enums"].items()}
    types = TypeSet(structs, enums, variables)
    for name, members in [(name, struct.members) for name, struct in structs.items()] + [("variables", variables)]:
        for field, member in members.items():
            _check_reference("%s.%s" % (name, field), member, types)
    _check_nesting(types)
    if tree["word_bytes"] not in (4, 8):
        raise ValueError("word_bytes is neither 4 nor 8")
    if not BUILD_ID.fullmatch(_text(tree["build_id"])):
        raise ValueError("its build-id is invalid")
    return Pack(
        allocator=_text(tree["allocator"]),
        version_text=None if tree["version_text"] is None else _text(tree["version_text"]),
        build_id=_text(tree["build_id"]),
        machine=_text(tree["machine"]),
        word_bytes=tree["word_bytes"],
        prefix=_text(tree["prefix"]),
        public_prefix=_text(tree["public_prefix"]),
        symbols={name: (_number(place[0]), _number(place[1])) for name, place in tree["symbols"].items()},
        thread_locals={name: (_number(place[0]), _number(place[1])) for name, place in tree["thread_locals"].items()},
        types=types,
        constants={name: _number(value) for name, value in tree["constants"].items()},
        made_from=_text(tree["made_from"]),
        exactness=_text(tree["exactness"]),
        vtables=_classes(tree.get("vtables"), path),
    )


def _classes(classes: Any, path: str) -> Classes:
    if not isinstance(classes, (bytes, dict, type(None))):
        raise ValueError("its vtables are no table")
    return Classes(classes, path)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise ValueError("%s is not a short text" % _json(value)[:60])
    return value


def _number(value: Any, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < MAX_OFFSET:
        raise ValueError("%s is not a size, offset or constant" % _json(value)[:60])
    return value


def _member(place: Any) -> Member:
    offset, size_bytes, count, kind = place
    if not isinstance(kind, str) or not KIND.fullmatch(kind):
        raise ValueError("%s is not a kind of member" % _json(kind)[:60])
    return Member(_number(offset), _number(size_bytes), _number(count), kind)


def _check_reference(name: str, member: Member, types: TypeSet) -> None:
    """What the member is made of stands in the pack, with the size that the member gives it."""
    if member.struct is not None:
        if member.struct not in types.structs or types.structs[member.struct].size_bytes != member.size_bytes:
            raise ValueError("%s is a %s, which the pack does not include" % (name, member.kind))
    elif member.kind.startswith("enum "):
        if member.kind[5:] not in types.enums:
            raise ValueError("%s is an %s, which the pack does not include" % (name, member.kind))
    elif member.size_bytes not in (1, 2, 4, 8, 16):
        raise ValueError("%s is a number of %d bytes" % (name, member.size_bytes))


def _check_nesting(types: TypeSet) -> None:
    """No struct contains itself, and no member reaches beyond its struct."""
    for name, struct in types.structs.items():
        for field, member in struct.members.items():
            if member.offset + member.size_bytes * member.count > struct.size_bytes:
                raise ValueError("%s.%s reaches beyond its struct" % (name, field))
    if len(types.structs) > MAX_STRUCTS:
        raise ValueError("it has more than %d structs" % MAX_STRUCTS)
    inside = {name: {member.struct for member in struct.members.values() if member.struct} for name, struct in types.structs.items()}
    while inside:
        leaves = [name for name, held in inside.items() if not any(other in inside for other in held)]
        if not leaves:
            raise ValueError("%s contains itself" % min(inside))
        for name in leaves:
            del inside[name]


def no_types(target: Target, module: Module, hint: Optional[str]) -> HeapxError:
    """Why there are no types to make a pack of; `hint`: how to get the debug information where it is not here."""
    why = target.unread_types(module)
    if why is not None:
        what = "the debug information of %s (build-id %s) is here, and cannot be read without gdb: %s" % (module.name, module.build_id, why)
        return HeapxError(what, "pip install pyelftools, or run it with gdb", code=MISSING_PACKAGE)
    return HeapxError("no debug information for %s (build-id %s)" % (module.name, module.build_id), hint, code=MISSING_SYMBOLS)


def find(build_id: str, allocator: str, directories: Sequence[str] = ()) -> Optional[Pack]:
    """The pack of that build's allocator: BUILDID.json, or any file with that build-id, in these directories, then the shipped one.

    HeapxError if a file of its name is damaged: the user meant it.
    """
    return next((pack for pack in _of_build(build_id.lower(), directories) if pack.allocator == allocator), None)


def classes(target: Target, module: Module, directories: Sequence[str] = ()) -> Optional[Dict[int, Vtable]]:
    """The vtables of a module's C++ classes by their address points in its file: from a pack of its build, else from its file. None where
    neither is here; empty if it has no such class. HeapxError if the pack is damaged."""
    for pack in _of_build(module.build_id.lower(), directories) if module.build_id else ():
        if pack.vtables:
            return pack.vtables.all()
    return target.vtables(module)


def _of_build(build_id: str, directories: Sequence[str]) -> Iterator[Pack]:
    """Every pack of a build, in the order of the search."""
    for directory in directories:
        path = os.path.join(directory, build_id + ".json")
        if os.path.exists(path):
            pack = load(path)
            if pack.build_id != build_id:
                raise HeapxError("the pack %s belongs to build-id %s" % (path, pack.build_id), code=BAD_PACK)
            yield pack
        yield from (entry.pack for entry in in_directory(directory) if entry.pack is not None and entry.pack.build_id == build_id)
    yield from (entry.pack for entry in _shipped(lambda name: name == build_id + ".json") if entry.pack is not None)


def in_directory(directory: str) -> List[Listed]:
    """Every pack in a directory, by file name; of other JSON files only those that claim to be one."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))[:MAX_FILES]
    except OSError as error:
        return [Listed(directory, None, "cannot read %s: %s" % (directory, error.strerror))]
    packs = []
    for name in names:
        path = os.path.join(directory, name)
        try:
            packs.append(Listed(path, load(path), None))
        except HeapxError as problem:
            if BUILD_ID.fullmatch(name[:-5]) or _claims(path):
                packs.append(Listed(path, None, problem.message))
    return packs


def _claims(path: str) -> bool:
    try:
        with open(open_regular(path), "rb") as file:
            return SCHEMA.split("/")[0].encode() in file.read(4096)
    except OSError:
        return False


def shipped() -> List[Pack]:
    """The packs that come with gdbheapx, by build-id."""
    return [entry.pack for entry in _shipped(lambda _: True) if entry.pack is not None]


def listed(directories: Sequence[str]) -> List[Listed]:
    """Every pack that would be found, in the order of the search, with the damaged ones."""
    return [entry for directory in directories for entry in in_directory(directory)] + _shipped(lambda _: True)


def _shipped(is_asked: Callable[[str], bool]) -> List[Listed]:
    """Shipped packs whose file name is wanted; their directory may be text inside one large file."""
    if packs.EMBEDDED:
        texts = [(name, text) for name, text in sorted(packs.EMBEDDED.items()) if name.endswith(".json") and is_asked(name)]
        return [Listed(name, parse(text.encode(), name), None) for name, text in texts]
    folder = os.path.dirname(os.path.abspath(packs.__file__))
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and is_asked(name))
    return [Listed(os.path.join(folder, name), load(os.path.join(folder, name)), None) for name in names]


def shipped_text(name: str) -> str:
    """What stands in another file of the same folder."""
    if packs.EMBEDDED:
        return packs.EMBEDDED[name]
    with open(os.path.join(os.path.dirname(os.path.abspath(packs.__file__)), name), encoding="ascii") as file:
        return file.read()
