"""The one walk over types: what readers see is the same whatever the compiler and the build called it.

Files: inferior/base.py.
"""

from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.inferior.base import Member
from gdbheapx.inferior.elf.type_walk import RawMember, RawType, Reader, Walk, private_prefix


class Raw(RawType):
    """A type made by hand."""

    def __init__(self, code: str, size_bytes: int = 8, name: str = "", members: Any = (), element: Any = None, enumerators: Any = None) -> None:
        self.code, self.size_bytes, self.name = code, size_bytes, name
        self._members, self._element, self._enumerators = list(members), element, enumerators or {}

    def members(self) -> List[RawMember]:
        return self._members

    def element(self) -> Tuple[RawType, int]:
        return self._element  # type: ignore[no-any-return]

    def enumerators(self) -> Dict[str, int]:
        return self._enumerators  # type: ignore[no-any-return]


class ByHand(Reader):
    """Types by name."""

    def __init__(
        self, structs: Dict[str, RawType], variables: Optional[Dict[str, RawType]] = None, enums: Optional[Dict[str, RawType]] = None
    ) -> None:
        self.structs, self.variables, self.enums = structs, variables or {}, enums or {}

    def struct(self, name: str) -> Optional[RawType]:
        return self.structs.get(name)

    def variable(self, name: str) -> Optional[RawType]:
        return self.variables.get(name)

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        return self.enums.get(enumerator)


def member(name: str, offset: int, kind: RawType, is_bit_field: bool = False) -> RawMember:
    """A member."""
    return RawMember(name, offset, is_bit_field, kind)


UINT, INT, POINTER = Raw("uint"), Raw("int", 4), Raw("pointer")
ATOMIC = Raw("struct", 8, "atomic_zu_t", [member("repr", 0, UINT)])
LOCKED = Raw("struct", 8, "locked_u64_s", [member("val", 0, ATOMIC)])


def walk(members: List[RawMember], prefix: str = "je_") -> Any:
    """The struct s_s with these members, walked."""
    return Walk(ByHand({"s_s": Raw("struct", 64, "s_s", members)}), prefix).collect(["s_s", "missing_s"], [], [])


def test_atomics_are_scalars() -> None:
    """A struct whose only member is repr or val reads as that scalar, also twice around and in arrays; others do not."""
    time = Raw("struct", 8, "nstime_t", [member("ns", 0, UINT)])
    array = Raw("array", 32, element=(ATOMIC, 4))
    found = walk([member("a", 0, ATOMIC), member("b", 8, LOCKED), member("c", 16, array), member("d", 48, time)])
    assert found.structs["s_s"].members == {
        "a": Member(0, 8, 1, "uint"),
        "b": Member(8, 8, 1, "uint"),
        "c": Member(16, 8, 4, "uint"),
        "d": Member(48, 8, 1, "struct nstime_t"),
    }
    assert sorted(found.structs) == ["nstime_t", "s_s"]


def test_anonymous_members_are_the_owners() -> None:
    """Members of anonymous structs and unions count as the owner's, at any depth; bit fields are left out."""
    inner = Raw("struct", 16, "", [member("x", 0, UINT), member("bits", 8, INT, True), member("y", 8, INT)])
    union = Raw("struct", 16, "", [member("", 0, inner), member("z", 0, POINTER)])
    found = walk([member("first", 0, INT), member("", 8, union)])
    places = {name: place.offset for name, place in found.structs["s_s"].members.items()}
    assert places == {"first": 0, "x": 8, "y": 16, "z": 8}


def test_names_of_what_has_none() -> None:
    """A struct without tag and typedef is called OWNER.member; an enum without a name joins the nameless enumerators."""
    head = Raw("struct", 8, "", [member("qlh_first", 0, POINTER)])
    state = Raw("enum", 4, "", enumerators={"off": 0, "on": 1})
    found = walk([member("queue", 0, head), member("state", 8, state)])
    assert found.structs["s_s"].members["queue"].kind == "struct s_s.queue" and "s_s.queue" in found.structs
    assert found.enums == {"": {"off": 0, "on": 1}} and found.enumerator("on") == 1


def test_prefixes_are_stripped() -> None:
    """tsd's mangling and the private prefix go from members; variables are found with and without the prefix."""
    mangles = ["use_a_getter_or_setter_instead_tcache", "cant_access_tsd_items_directly_use_a_getter_or_setter_arena", "_rjem_je_arenas", "state"]
    raw = Raw("struct", 64, "s_s", [member(name, 8 * place, UINT) for place, name in enumerate(mangles)])
    reader = ByHand({"s_s": raw}, {"_rjem_je_arenas": Raw("array", element=(POINTER, 4095)), "narenas_total": INT})
    found = Walk(reader, "_rjem_je_").collect(["s_s"], ["arenas", "narenas_total", "nothing"], [])
    assert list(found.structs["s_s"].members) == ["tcache", "arena", "arenas", "state"]
    assert found.variables == {"arenas": Member(0, 8, 4095, "pointer"), "narenas_total": Member(0, 4, 1, "int")}
    assert [private_prefix(name) for name in ("je_arenas", "_rjem_je_arenas", "__je_arenas", "narenas_total")] == ["je_", "_rjem_je_", "__je_", ""]


def test_flexible_and_nested_arrays() -> None:
    """A flexible array member has 0 elements, dimensions multiply; what has no kind (void, functions) is left out."""
    flexible = Raw("array", 0, element=(UINT, 0))
    nested = Raw("array", 64, element=(Raw("array", 16, element=(UINT, 2)), 3))
    found = walk([member("a", 0, nested), member("gone", 48, Raw("other")), member("tail", 64, flexible)])
    assert found.structs["s_s"].members == {"a": Member(0, 8, 6, "uint"), "tail": Member(64, 8, 0, "uint")}


def test_enums_by_an_enumerator() -> None:
    """An enum that no struct holds is found by one of its enumerators, once."""
    reader = ByHand({}, enums={"tsd_state_nominal": Raw("enum", 4, "", enumerators={"tsd_state_nominal": 0, "tsd_state_uninitialized": 6})})
    found = Walk(reader, "").collect([], [], ["tsd_state_nominal", "extent_state_active"])
    assert found.enumerator("tsd_state_uninitialized") == 6 and found.enumerator("extent_state_active") is None


def test_a_struct_that_contains_itself_ends() -> None:
    """Damaged debug information in which a struct contains itself by value does not hang the walk."""
    loop = Raw("struct", 64, "s_s")
    loop._members = [member("me", 0, loop), member("x", 8, UINT)]
    found = Walk(ByHand({"s_s": loop}), "").collect(["s_s"], [], [])
    assert list(found.structs["s_s"].members) == ["me", "x"]
    loop._members = [member("val", 0, loop)]
    assert list(Walk(ByHand({"s_s": loop}), "").collect(["s_s"], [], []).structs) == ["s_s"]
