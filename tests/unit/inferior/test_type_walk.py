"""The one walk over types: what readers see is the same whatever the compiler and the build called it.

Files: inferior/base.py.
"""

from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.inferior.base import Member
from gdbheapx.inferior.elf.dwarf import RawMember, RawType, TypeReader, TypeWalk


class Raw(RawType):
    """A type made by hand."""

    def __init__(self, code: str, size_bytes: int = 8, name: str = "", members: Any = (), element: Any = None, enumerators: Any = None) -> None:
        self.code, self.size_bytes, self.name = code, size_bytes, name
        self._members, self._move_to_element, self._enumerators = list(members), element, enumerators or {}

    def members(self) -> List[RawMember]:
        return self._members

    def element(self) -> Tuple[RawType, int]:
        return self._move_to_element  # type: ignore[no-any-return]

    def enumerators(self) -> Dict[str, int]:
        return self._enumerators  # type: ignore[no-any-return]


class ByHand(TypeReader):
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
    return (name, offset, is_bit_field, kind)


UINT, INT, POINTER = Raw("uint"), Raw("int", 4), Raw("pointer")
ATOMIC = Raw("struct", 8, "atomic_zu_t", [member("repr", 0, UINT)])
LOCKED = Raw("struct", 8, "locked_u64_s", [member("val", 0, ATOMIC)])


def walk(members: List[RawMember], prefix: str = "je_") -> Any:
    """The struct s_s with these members, walked."""
    return TypeWalk(ByHand({"s_s": Raw("struct", 64, "s_s", members)}), prefix).collect(["s_s", "missing_s"], [], [])


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


def test_a_struct_that_contains_itself_ends() -> None:
    """Damaged debug information in which a struct contains itself by value does not hang the walk."""
    loop = Raw("struct", 64, "s_s")
    loop._members = [member("me", 0, loop), member("x", 8, UINT)]
    found = TypeWalk(ByHand({"s_s": loop}), "").collect(["s_s"], [], [])
    assert list(found.structs["s_s"].members) == ["me", "x"]
    loop._members = [member("val", 0, loop)]
    assert list(TypeWalk(ByHand({"s_s": loop}), "").collect(["s_s"], [], []).structs) == ["s_s"]
