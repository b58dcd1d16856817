"""Types made by hand, for the walk over types."""

from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.inferior.elf.dwarf import RawMember, RawType, TypeReader


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
