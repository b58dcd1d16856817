"""The struct types of one build as a whole: nested members by path, the same from gdb, from an ELF file's DWARF and from a pack."""

from typing import Dict, NamedTuple, Optional, Tuple


class Member(NamedTuple):
    """A member of a struct, or a variable (offset 0)."""

    offset: int
    size_bytes: int
    """Size of one element."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """Elements: 1 for no array, 0 for a flexible array member. Dimensions of an array of arrays are multiplied."""
    kind: str
    """`int`, `uint`, `bool`, `float`, `pointer`, `string` (char *), `char`, `enum NAME` or `struct NAME`; NAME is a key of the TypeSet."""

    @property
    def signed(self) -> bool:
        """A signed integer."""
        return self.kind == "int"

    @property
    def struct(self) -> Optional[str]:
        """Name of the element's struct in the TypeSet; None for scalars."""
        return self.kind[7:] if self.kind.startswith("struct ") else None


class StructType(NamedTuple):
    """One struct or union."""

    size_bytes: int
    members: Dict[str, Member]
    """In memory order. Members of anonymous structs and unions count as its own; bit fields are left out."""


class Vtable(NamedTuple):
    """A vtable of a C++ class."""

    name: str
    """Of the class, in the words of the source; mangled where nothing could read it."""
    within: int
    """Where the part of the object that points to it begins: 0 for the object's first word."""


class TypeSet:
    """Structs, enums and variables of one build.

    However it was made, these rules hold, so that readers never see where it came from: a struct goes by its tag, one without a
    tag by its typedef's name, one without either by `OWNER.member`; a struct whose only member is `repr` or `val` (such as
    atomics) is that scalar; prefixes that a build gave to names (`je_`, `cant_access_tsd_items_directly_...`) are stripped.
    """

    def __init__(
        self,
        structs: Optional[Dict[str, StructType]] = None,
        enums: Optional[Dict[str, Dict[str, int]]] = None,
        variables: Optional[Dict[str, Member]] = None,
    ) -> None:
        self.structs = structs or {}
        """By name."""
        self.enums = enums or {}
        """Enum name -> enumerator -> value; enums without a name stand together under the empty one."""
        self.variables = variables or {}
        """Types of variables by their name without prefix."""
        self.origin = ""
        """In words: who read them from what. Empty where no pack is to be made of them."""
        self._places: Dict[Tuple[str, str], Optional[Member]] = {}
        """What place() has answered: a process with thousands of threads has the same asked for each."""

    def size_bytes(self, struct: str) -> int:
        """sizeof(struct)."""
        return self.structs[struct].size_bytes

    def enumerator(self, name: str) -> Optional[int]:
        """The value of an enumerator of any enum; None if no enum has it."""
        return next((values[name] for values in self.enums.values() if name in values), None)

    def place(self, struct: str, path: str) -> Optional[Member]:
        """Where `path` (`a.b.c`, `bins[3].lock`) lies from the start of `struct`; None if this build has no such member."""
        key = (struct, path)
        if key not in self._places:
            self._places[key] = self._find(struct, path)
        return self._places[key]

    def _find(self, struct: str, path: str) -> Optional[Member]:
        offset, found = 0, None
        for step in path.split("."):
            if struct not in self.structs:
                return None
            name, index = _split(step)
            found = self.structs[struct].members.get(name)
            if found is None:
                return None
            offset += found.offset + (index or 0) * found.size_bytes
            if index is not None:
                found = found._replace(count=1)
            struct = found.struct or ""
        return found._replace(offset=offset) if found is not None else None

    def first(self, struct: str, *paths: str) -> Optional[str]:
        """The first of these paths that this build has: newest first, as its sources moved members about."""
        return next((path for path in paths if self.place(struct, path) is not None), None)

    def update(self, other: "TypeSet") -> None:
        """Take over what the other has and this one lacks."""
        self._places.clear()
        self.structs = {**other.structs, **self.structs}
        self.variables = {**other.variables, **self.variables}
        for name, values in other.enums.items():
            self.enums.setdefault(name, {}).update(values)


def _split(step: str) -> Tuple[str, Optional[int]]:
    """`bins[3]` -> (`bins`, 3)."""
    name, bracket, rest = step.partition("[")
    return name, int(rest.rstrip("]")) if bracket else None
