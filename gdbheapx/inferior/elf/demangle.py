"""Class names as a type_info has them (`N3foo3barE`) in the words of the source (`foo::bar`).

The C++ runtime of this machine knows the whole grammar (abi::__cxa_demangle; gdb itself needs that library). Where it is not installed,
plain nested names are read here, and others stay as they are.

Whose methods symbols of Rust are: `_RNvXs_..` (v0) and `_ZN..17h..E` (legacy) in the words of the source.

The grammar of v0 is that of RFC 2603; legacy names are those of C++ with `$LT$` and the like for what these cannot have.
"""

import ctypes
import re
from typing import Any, Callable, List, Optional

from gdbheapx.work import TooMuchWork, Work

RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1")
START = "typeinfo name for "
MOST_BYTES = 4096
MOST_REPETITIONS = 1000
"""Of letters that make the demangler call itself."""
_RUNTIME: List[Any] = []
"""What was found, once it was looked for."""
MOST_STEPS, MOST_DEPTH = 3000, 60
MOST_LETTERS = 1 << 16
"""Of all identifiers of a name of Rust."""
MOST_UNDERSCORES = 6
"""Each reference to an earlier part of a name ends in one, and doubles it at most."""
PARAMETER = re.compile(r"T\d*_")
"""May stand for several arguments."""
NAMES = Work("names of classes and variables", lasts=False)
ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
BASIC = {
    "a": "i8",
    "s": "i16",
    "l": "i32",
    "x": "i64",
    "n": "i128",
    "i": "isize",
    "f": "f32",
    "d": "f64",
    "b": "bool",
    "c": "char",
    "h": "u8",
    "t": "u16",
    "m": "u32",
    "y": "u64",
    "o": "u128",
    "j": "usize",
    "e": "str",
    "u": "()",
    "v": "...",
    "z": "!",
}
CLOSURE = "{{closure}}"
LEGACY_HASH = re.compile(r"::h[0-9a-f]{16}$")
"""The last part of a legacy name of Rust."""
ABI_TAG = re.compile(r"\[abi:\w+\]")
"""Of a name that the C++ runtime has in two forms: no source has it."""


def class_name(mangled: str) -> str:
    """The name of the class; the mangled one if nothing here can read it."""
    if len(mangled) > MOST_BYTES:
        return mangled
    return plain(mangled) or _by_runtime(mangled) or mangled


def variable_name(name: str) -> str:
    """The name of a variable as the source has it (`_ZN3foo3barE`, `_ZL3bar`, Rust's `_RNvC3foo3bar`); of C, and where nothing here can
    read it, as it is."""
    mangled = name.partition(".")[0]  # `.lto_priv.0`, `.llvm.123`: compilers' own
    if mangled.startswith("_R"):
        return rust_path(mangled) or name
    if not mangled.startswith("_Z") or len(mangled) > MOST_BYTES:
        return name
    known = plain(mangled[3:] if mangled.startswith("_ZL") else mangled[2:]) or _by_runtime(mangled, "", "")
    return ABI_TAG.sub("", LEGACY_HASH.sub("", known)) if known else name


def plain(mangled: str) -> Optional[str]:
    """Of names without templates and the like; None for all others."""
    text, parts = mangled, []
    if text.startswith("N") and text.endswith("E"):
        text = text[1:-1]
    if text.startswith("St") and text[2:3].isdigit():
        text, parts = text[2:], ["std"]
    while text:
        match = re.match(r"[1-9]\d{0,3}", text)
        if match is None:
            return None
        end = match.end() + int(match.group())
        part, text = text[match.end() : end], text[end:]
        if len(part) < int(match.group()) or not re.fullmatch(r"[A-Za-z_$][\w$]*", part, re.A):
            return None
        parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N") else part)
    return "::".join(parts) if parts else None


def _by_runtime(mangled: str, prefix: str = "_ZTS", start: str = START) -> Optional[str]:
    if not _RUNTIME:
        _RUNTIME.append(_runtime())
    if _RUNTIME[0] is None or not 0 < len(mangled) <= MOST_BYTES or not re.fullmatch(r"[\w.$]+", mangled, re.A):
        return None
    if sum(map(mangled.count, "PROKVI")) > MOST_REPETITIONS:
        return None
    if mangled.count("_") > MOST_UNDERSCORES or PARAMETER.search(mangled):
        from gdbheapx.inferior.elf.expansion import is_short  # few names need it

        if not is_short(prefix + mangled):
            return None
    demangle, free = _RUNTIME[0]
    status = ctypes.c_int(0)
    pointer = demangle((prefix + mangled).encode(), None, None, ctypes.byref(status))
    if not pointer:
        return None
    text = ctypes.string_at(pointer).decode("utf-8", "replace")
    free(pointer)
    try:
        NAMES.spend(1 + (len(text) >> 2))
    except TooMuchWork:
        return None
    return text[len(start) :] if status.value == 0 and text.startswith(start) else None


def _runtime() -> Any:
    """(abi::__cxa_demangle, free); None without a C++ runtime."""
    for name in RUNTIMES:
        try:
            demangle, free = getattr(ctypes.CDLL(name), "__cxa_demangle"), ctypes.CDLL(None).free
        except (OSError, AttributeError):
            continue
        demangle.restype, demangle.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        free.restype, free.argtypes = None, [ctypes.c_void_p]
        return demangle, free
    return None


class _Unread(Exception):
    """This is no such name, or one that is too deep."""


def rust_type(symbol: str) -> Optional[str]:
    """T of a method of `<T as Trait>` or `T`, of drop_in_place::<T>, or a closure by what it stands in; None: another function."""
    if not symbol.isascii() or len(symbol) > MOST_BYTES:
        return None
    if symbol.startswith("_R"):
        try:
            return _Name(symbol.partition(".")[0][2:]).owner()
        except _Unread:
            return None
    return _legacy(symbol) if symbol.startswith("_ZN") else None


def rust_path(symbol: str) -> Optional[str]:
    """What a v0 name is the name of; None where it is none."""
    if not symbol.isascii() or len(symbol) > MOST_BYTES:
        return None
    try:
        return _Name(symbol[2:]).path()
    except _Unread:
        return None


def _legacy(symbol: str) -> Optional[str]:
    parts: List[str] = []
    at = 3
    while symbol[at : at + 1].isdigit():
        digits = re.match(r"\d{1,4}", symbol[at:])
        length = int(digits.group()) if digits is not None else 0
        at += len(digits.group()) if digits is not None else 0
        parts.append(symbol[at : at + length])
        at += length
    if symbol[at : at + 1] != "E" or len(parts) < 2 or not re.fullmatch(r"h[0-9a-f]{16}", parts[-1]):
        return None
    words = [_unescaped(part) for part in parts[:-1]]
    if CLOSURE in words:
        return "::".join(words[: words.index(CLOSURE) + 1])
    first = next((word for word in words if word.startswith(("<", "drop_in_place<"))), None)
    return _first_argument(first[first.index("<") + 1 :]) if first is not None else None


def _unescaped(part: str) -> str:
    part = part[1:] if part.startswith("_$") else part
    part = re.sub(r"\$u([0-9a-f]{1,6})\$", lambda match: chr(min(int(match[1], 16), 0x10FFFF)), part)
    part = re.sub(r"\$([A-Z]{1,2})\$", lambda match: ESCAPES.get(match[1], match[0]), part)
    return part.replace("..", "::")


def _first_argument(text: str) -> Optional[str]:
    """Up to ` as ` or the bracket that ends it."""
    depth = 0
    for at, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">" and text[at - 1 : at] != "-":
            depth -= 1
        if depth < 0 or (not depth and text.startswith(" as ", at)):
            return text[:at] or None
    return None


class _Name:
    """A v0 name, read from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._steps, self._depth = text, 0, 0, 0
        self._owner: Optional[str] = None
        self._letters = 0
        """Of all identifiers."""
        self._number_of = 0
        """Of the last identifier, among those that are equal."""

    def owner(self) -> Optional[str]:
        """See type_of."""
        self._path(True)
        return self._owner

    def path(self) -> str:
        """All of it."""
        return self._path()

    def _step(self) -> str:
        self._steps += 1
        if self._steps > MOST_STEPS or self._at >= len(self._text):
            raise _Unread
        self._at += 1
        return self._text[self._at - 1]

    def _has(self, letter: str) -> bool:
        has = self._text.startswith(letter, self._at)
        self._at += len(letter) if has else 0
        return has

    def _number(self) -> int:
        """Base 62, ended by _."""
        if self._has("_"):
            return 0
        digits = re.match(r"([0-9a-zA-Z]{1,12})_", self._text[self._at :])
        if digits is None:
            raise _Unread
        self._at += digits.end()
        value = 0
        for letter in digits[1]:
            value = value * 62 + (int(letter, 36) if not letter.isupper() else ord(letter) - ord("A") + 36)
        return value + 1

    def _identifier(self) -> str:
        self._number_of = self._number() + 1 if self._has("s") else 0
        is_unicode = self._has("u")
        digits = re.match(r"(0|[1-9]\d{0,3})_?", self._text[self._at :])
        if digits is None:
            raise _Unread
        start = self._at + digits.end()
        self._at = start + int(digits[1])
        self._letters += int(digits[1])
        if self._at > len(self._text) or self._letters > MOST_LETTERS:
            raise _Unread
        return ("punycode " if is_unicode else "") + self._text[start : self._at]

    def _back(self, what: str) -> str:
        start = self._at - 1
        to = self._number()
        if to >= start:
            raise _Unread
        kept, self._at = self._at, to
        text = self._path() if what == "path" else self._type()
        self._at = kept
        return text

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _Unread

    def _path(self, is_outer: bool = False) -> str:
        self._deeper()
        text = self._path_at(is_outer)
        self._depth -= 1
        return text

    def _path_at(self, is_outer: bool) -> str:
        kind = self._step()
        if kind == "C":
            return self._identifier()
        if kind in "MXY":
            if kind != "Y":
                if self._has("s"):
                    self._number()
                self._path()
            type_ = self._type()
            if is_outer and self._owner is None:
                self._owner = type_
            return "<%s>" % (type_ if kind == "M" else "%s as %s" % (type_, self._path()))
        if kind == "N":
            space = self._step()
            path = self._path(is_outer)
            name = self._identifier()
            text = "%s::%s" % (path, "{closure#%d}" % self._number_of if space == "C" else name or "{%s}" % space)
            self._owner = text if is_outer and space == "C" else self._owner
            return text
        if kind == "I":
            path = self._path(is_outer)
            arguments = self._list(self._argument)
            if is_outer and path.endswith("::drop_in_place") and arguments:
                self._owner = arguments[0]
            return "%s<%s>" % (path, ", ".join(argument for argument in arguments if argument))
        if kind == "B":
            return self._back("path")
        raise _Unread

    def _list(self, read: Callable[[], str]) -> List[str]:
        texts: List[str] = []
        while not self._has("E"):
            texts.append(read())
        return texts

    def _argument(self) -> str:
        if self._has("L"):
            self._number()
            return ""
        return self._constant() if self._has("K") else self._type()

    def _constant(self) -> str:
        if self._has("p"):
            return "_"
        if self._has("B"):
            self._number()
            return "_"
        if self._step() not in BASIC:
            raise _Unread
        value = re.match(r"n?[0-9a-f]*_", self._text[self._at :])
        if value is None:
            raise _Unread
        self._at += value.end()
        digits = value[0].strip("n_")
        return str(int(digits, 16)) if digits else "0"

    def _type(self) -> str:
        self._deeper()
        text = self._type_at()
        self._depth -= 1
        return text

    def _type_at(self) -> str:
        kind = self._step()
        if kind in BASIC:
            return BASIC[kind]
        if kind == "p":
            return "_"
        if kind == "A":
            type_ = self._type()
            return "[%s; %s]" % (type_, self._constant())
        if kind == "S":
            return "[%s]" % self._type()
        if kind == "T":
            return "(%s)" % ", ".join(self._list(self._type))
        if kind in "RQ":
            if self._has("L"):
                self._number()
            return ("&" if kind == "R" else "&mut ") + self._type()
        if kind in "PO":
            return ("*const " if kind == "P" else "*mut ") + self._type()
        if kind == "F":
            return self._function()
        if kind == "D":
            return self._bounds()
        if kind == "B":
            return self._back("type")
        self._at -= 1
        return self._path()

    def _function(self) -> str:
        if self._has("G"):
            self._number()
        self._has("U")
        if self._has("K") and not self._has("C"):
            self._identifier()
        arguments = self._list(self._type)
        result = self._type()
        return "fn(%s)%s" % (", ".join(arguments), "" if result == "()" else " -> " + result)

    def _bounds(self) -> str:
        if self._has("G"):
            self._number()
        bounds = []
        while not self._has("E"):
            path = self._path()
            while self._has("p"):
                self._identifier()
                self._type()
            bounds.append(path)
        if not self._has("L"):
            raise _Unread
        self._number()
        return "dyn " + " + ".join(bounds)
