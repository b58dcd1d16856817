"""Types as gdb reads them. gdb's module is handed over: only target.py and inferior.py import it."""

from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.inferior.elf.type_walk import RawMember, RawType, Reader


class GdbRaw(RawType):
    """A gdb.Type."""

    def __init__(self, api: Any, kind: Any) -> None:
        self._api = api
        alias = ""
        while kind.code == api.TYPE_CODE_TYPEDEF:
            alias, kind = kind.name or alias, kind.target()
        self._type = kind
        self.name = getattr(kind, "tag", None) or alias
        self.size_bytes = int(kind.sizeof) if kind.code != api.TYPE_CODE_VOID else 0
        self.code = self._code(kind)

    def _code(self, kind: Any) -> str:
        api = self._api
        if kind.code in (api.TYPE_CODE_STRUCT, api.TYPE_CODE_UNION):
            return "struct"
        if kind.code == api.TYPE_CODE_PTR:
            inner = kind.target()
            while inner.code == api.TYPE_CODE_TYPEDEF:
                inner = inner.target()
            return "string" if inner.code in (api.TYPE_CODE_INT, api.TYPE_CODE_CHAR) and inner.unqualified().name == "char" else "pointer"
        if kind.code in (api.TYPE_CODE_INT, api.TYPE_CODE_CHAR):
            return "char" if kind.unqualified().name == "char" else "int" if is_signed(api, kind) else "uint"
        return {api.TYPE_CODE_ARRAY: "array", api.TYPE_CODE_ENUM: "enum", api.TYPE_CODE_BOOL: "bool", api.TYPE_CODE_FLT: "float"}.get(
            kind.code, "other"
        )

    def members(self) -> List[RawMember]:
        fields = [field for field in self._type.fields() if hasattr(field, "bitpos")]
        return [RawMember(field.name or "", field.bitpos // 8, bool(field.bitsize), GdbRaw(self._api, field.type)) for field in fields]

    def element(self) -> Tuple[RawType, int]:
        try:
            low, high = self._type.range()
        except (self._api.error, RuntimeError):  # a flexible array
            low, high = 0, -1
        return GdbRaw(self._api, self._type.target()), max(0, int(high) - int(low) + 1)

    def enumerators(self) -> Dict[str, int]:
        return {field.name: int(field.enumval) for field in self._type.fields()}


class GdbReader(Reader):
    """Reads types of the compilation unit of one symbol."""

    def __init__(self, api: Any, objfile: Any, block: Any) -> None:
        self._api = api
        self._objfile = objfile
        self._unit: Optional[Dict[str, List[Any]]] = None
        self._block = block

    def struct(self, name: str) -> Optional[RawType]:
        for symbol in self._of_unit().get(name, ()):
            if symbol.addr_class == self._api.SYMBOL_LOC_TYPEDEF:
                raw = GdbRaw(self._api, symbol.type)
                if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                    return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        for symbol in variables(self._objfile, name):
            if self._is_own(symbol) and (symbol.is_variable or symbol.addr_class == self._api.SYMBOL_LOC_UNRESOLVED):
                return GdbRaw(self._api, symbol.type)
        return None

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        for symbol in self._of_unit().get(enumerator, ()):
            if symbol.type is not None and symbol.type.strip_typedefs().code == self._api.TYPE_CODE_ENUM:
                return GdbRaw(self._api, symbol.type)
        return None

    def _of_unit(self) -> Dict[str, List[Any]]:
        """The symbols of the unit by name. gdb's own lookup goes on in all other units for a name that this one lacks."""
        if self._unit is None:
            self._unit = {}
            for block in (self._block, self._block.global_block):
                for symbol in block:
                    self._unit.setdefault(symbol.name, []).append(symbol)
        return self._unit

    def _is_own(self, symbol: Any) -> bool:
        return symbol.symtab is not None and symbol.symtab.objfile == self._objfile


def variables(objfile: Any, name: str) -> List[Any]:
    """gdb's symbols of a variable of one object: its definition, or the declaration in a header of a unit that gdb has read.

    A declaration has the type and, by the symbol table, the address. Having gdb search for the definition (`info line`, `info
    variables`) makes it read every unit: a minute and gigabytes for a program of ordinary size.
    """
    return [symbol for symbol in (objfile.lookup_static_symbol(name), objfile.lookup_global_symbol(name)) if symbol is not None]


def is_signed(api: Any, kind: Any) -> bool:
    """True for signed integers and enums. Type.is_signed came with gdb 12."""
    if kind.code not in (api.TYPE_CODE_INT, api.TYPE_CODE_CHAR, api.TYPE_CODE_ENUM):
        return False
    if hasattr(kind, "is_signed"):
        return bool(kind.is_signed)
    return "unsigned" not in str(kind) and str(kind) not in ("char8_t", "char16_t", "char32_t", "bool", "_Bool")
