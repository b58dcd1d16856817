"""Demangle names of C++ and Rust.

Names of C++ go to the C++ runtime of this machine (abi::__cxa_demangle); without one, plain nested names are read here and others stay
mangled. A name of 241 letters may expand to gigabytes, since each part may refer twice to the part before it: `_Lengths` adds up
lengths by the same grammar (Itanium C++ ABI, 5.1) before the runtime is called. Rust's v0 names follow RFC 2603; legacy names are
those of C++ with `$LT$` and the like.
"""

import ctypes
import re
from typing import Any, Callable, List, Optional

from gdbheapx.budget import TooMuchWork, WorkCounter

RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1")
START = "typeinfo name for "
MOST_BYTES = 4096
MOST_REPETITIONS = 1000
"""Of letters that make the demangler call itself."""
_RUNTIME: List[Any] = []
"""What was found, once it was looked for."""
MOST_STEPS, MOST_DEPTH = 3000, 60
MOST_RUST_LETTERS = 1 << 16
"""Of all identifiers of a name of Rust."""
MOST_UNDERSCORES = 6
"""Each reference to an earlier part of a name ends in one, and doubles it at most."""
PARAMETER = re.compile(r"T\d*_")
"""Refers to several arguments."""
NAMES = WorkCounter("names of classes and variables", lasts=False)
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


def demangle_class(mangled: str) -> str:
    """The name of the class; the mangled one if nothing here can read it."""
    if len(mangled) > MOST_BYTES:
        return mangled
    return demangle_plain(mangled) or _demangle_by_runtime(mangled) or mangled


def demangle_variable(name: str) -> str:
    """The name of a variable as the source has it (`_ZN3foo3barE`, `_ZL3bar`, Rust's `_RNvC3foo3bar`); of C, and where nothing here can
    read it, as it is."""
    mangled = name.partition(".")[0]  # `.lto_priv.0`, `.llvm.123`: compilers' own
    if mangled.startswith("_R"):
        return demangle_rust_path(mangled) or name
    if not mangled.startswith("_Z") or len(mangled) > MOST_BYTES:
        return name
    known = demangle_plain(mangled[3:] if mangled.startswith("_ZL") else mangled[2:]) or _demangle_by_runtime(mangled, "", "")
    return ABI_TAG.sub("", LEGACY_HASH.sub("", known)) if known else name


def demangle_plain(mangled: str) -> Optional[str]:
    """Demangle a name without templates and the like; None for all others."""
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


def _demangle_by_runtime(mangled: str, prefix: str = "_ZTS", start: str = START) -> Optional[str]:
    if not _RUNTIME:
        _RUNTIME.append(_load_runtime())
    if _RUNTIME[0] is None or not 0 < len(mangled) <= MOST_BYTES or not re.fullmatch(r"[\w.$]+", mangled, re.A):
        return None
    if sum(map(mangled.count, "PROKVI")) > MOST_REPETITIONS:
        return None
    if (mangled.count("_") > MOST_UNDERSCORES or PARAMETER.search(mangled)) and not has_short_expansion(prefix + mangled):
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


def _load_runtime() -> Any:
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


class _UnreadRustName(Exception):
    """Not a Rust name, or nested too deeply."""


def demangle_rust_owner(symbol: str) -> Optional[str]:
    """T of a method of `<T as Trait>` or `T`, of drop_in_place::<T>, or a closure by the function around it; None: another function."""
    if not symbol.isascii() or len(symbol) > MOST_BYTES:
        return None
    if symbol.startswith("_R"):
        try:
            return _RustName(symbol.partition(".")[0][2:]).owner()
        except _UnreadRustName:
            return None
    return _find_legacy_owner(symbol) if symbol.startswith("_ZN") else None


def demangle_rust_path(symbol: str) -> Optional[str]:
    """Demangle a v0 name of Rust; None if it is none."""
    if not symbol.isascii() or len(symbol) > MOST_BYTES:
        return None
    try:
        return _RustName(symbol[2:]).path()
    except _UnreadRustName:
        return None


def _find_legacy_owner(symbol: str) -> Optional[str]:
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
    words = [_unescape_part(part) for part in parts[:-1]]
    if CLOSURE in words:
        return "::".join(words[: words.index(CLOSURE) + 1])
    first = next((word for word in words if word.startswith(("<", "drop_in_place<"))), None)
    return _first_argument(first[first.index("<") + 1 :]) if first is not None else None


def _unescape_part(part: str) -> str:
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


class _RustName:
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
        self._parse_path(True)
        return self._owner

    def path(self) -> str:
        """Return the whole path."""
        return self._parse_path()

    def _parse_step(self) -> str:
        self._steps += 1
        if self._steps > MOST_STEPS or self._at >= len(self._text):
            raise _UnreadRustName
        self._at += 1
        return self._text[self._at - 1]

    def _has_letter(self, letter: str) -> bool:
        has = self._text.startswith(letter, self._at)
        self._at += len(letter) if has else 0
        return has

    def _parse_base62(self) -> int:
        """Base 62, ended by _."""
        if self._has_letter("_"):
            return 0
        digits = re.match(r"([0-9a-zA-Z]{1,12})_", self._text[self._at :])
        if digits is None:
            raise _UnreadRustName
        self._at += digits.end()
        value = 0
        for letter in digits[1]:
            value = value * 62 + (int(letter, 36) if not letter.isupper() else ord(letter) - ord("A") + 36)
        return value + 1

    def _parse_identifier(self) -> str:
        self._number_of = self._parse_base62() + 1 if self._has_letter("s") else 0
        is_unicode = self._has_letter("u")
        digits = re.match(r"(0|[1-9]\d{0,3})_?", self._text[self._at :])
        if digits is None:
            raise _UnreadRustName
        start = self._at + digits.end()
        self._at = start + int(digits[1])
        self._letters += int(digits[1])
        if self._at > len(self._text) or self._letters > MOST_RUST_LETTERS:
            raise _UnreadRustName
        return ("punycode " if is_unicode else "") + self._text[start : self._at]

    def _follow_back_reference(self, what: str) -> str:
        start = self._at - 1
        to = self._parse_base62()
        if to >= start:
            raise _UnreadRustName
        kept, self._at = self._at, to
        text = self._parse_path() if what == "path" else self._parse_type()
        self._at = kept
        return text

    def _enter_deeper(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _UnreadRustName

    def _parse_path(self, is_outer: bool = False) -> str:
        self._enter_deeper()
        text = self._path_at(is_outer)
        self._depth -= 1
        return text

    def _path_at(self, is_outer: bool) -> str:
        kind = self._parse_step()
        if kind == "C":
            return self._parse_identifier()
        if kind in "MXY":
            if kind != "Y":
                if self._has_letter("s"):
                    self._parse_base62()
                self._parse_path()
            type_ = self._parse_type()
            if is_outer and self._owner is None:
                self._owner = type_
            return "<%s>" % (type_ if kind == "M" else "%s as %s" % (type_, self._parse_path()))
        if kind == "N":
            space = self._parse_step()
            path = self._parse_path(is_outer)
            name = self._parse_identifier()
            text = "%s::%s" % (path, "{closure#%d}" % self._number_of if space == "C" else name or "{%s}" % space)
            self._owner = text if is_outer and space == "C" else self._owner
            return text
        if kind == "I":
            path = self._parse_path(is_outer)
            arguments = self._parse_list(self._parse_argument)
            if is_outer and path.endswith("::drop_in_place") and arguments:
                self._owner = arguments[0]
            return "%s<%s>" % (path, ", ".join(argument for argument in arguments if argument))
        if kind == "B":
            return self._follow_back_reference("path")
        raise _UnreadRustName

    def _parse_list(self, read: Callable[[], str]) -> List[str]:
        texts: List[str] = []
        while not self._has_letter("E"):
            texts.append(read())
        return texts

    def _parse_argument(self) -> str:
        if self._has_letter("L"):
            self._parse_base62()
            return ""
        return self._parse_constant() if self._has_letter("K") else self._parse_type()

    def _parse_constant(self) -> str:
        if self._has_letter("p"):
            return "_"
        if self._has_letter("B"):
            self._parse_base62()
            return "_"
        if self._parse_step() not in BASIC:
            raise _UnreadRustName
        value = re.match(r"n?[0-9a-f]*_", self._text[self._at :])
        if value is None:
            raise _UnreadRustName
        self._at += value.end()
        digits = value[0].strip("n_")
        return str(int(digits, 16)) if digits else "0"

    def _parse_type(self) -> str:
        self._enter_deeper()
        text = self._type_at()
        self._depth -= 1
        return text

    def _type_at(self) -> str:
        kind = self._parse_step()
        if kind in BASIC:
            return BASIC[kind]
        if kind == "p":
            return "_"
        if kind == "A":
            type_ = self._parse_type()
            return "[%s; %s]" % (type_, self._parse_constant())
        if kind == "S":
            return "[%s]" % self._parse_type()
        if kind == "T":
            return "(%s)" % ", ".join(self._parse_list(self._parse_type))
        if kind in "RQ":
            if self._has_letter("L"):
                self._parse_base62()
            return ("&" if kind == "R" else "&mut ") + self._parse_type()
        if kind in "PO":
            return ("*const " if kind == "P" else "*mut ") + self._parse_type()
        if kind == "F":
            return self._parse_function()
        if kind == "D":
            return self._parse_bounds()
        if kind == "B":
            return self._follow_back_reference("type")
        self._at -= 1
        return self._parse_path()

    def _parse_function(self) -> str:
        if self._has_letter("G"):
            self._parse_base62()
        self._has_letter("U")
        if self._has_letter("K") and not self._has_letter("C"):
            self._parse_identifier()
        arguments = self._parse_list(self._parse_type)
        result = self._parse_type()
        return "fn(%s)%s" % (", ".join(arguments), "" if result == "()" else " -> " + result)

    def _parse_bounds(self) -> str:
        if self._has_letter("G"):
            self._parse_base62()
        bounds = []
        while not self._has_letter("E"):
            path = self._parse_path()
            while self._has_letter("p"):
                self._parse_identifier()
                self._parse_type()
            bounds.append(path)
        if not self._has_letter("L"):
            raise _UnreadRustName
        self._parse_base62()
        return "dyn " + " + ".join(bounds)


REFERENCE = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
PACK = re.compile(r"Dp|sp|s[zZPR]|f[lrLR]")
"""What is written once for each of several arguments, of which there are no more than letters."""
MOST_LETTERS = 1 << 18
"""Of a name that is shown. A longer one stays mangled."""
QUICK_LETTERS = 1 << 25
"""Names that cannot come to more, whatever refers to what, are written out at once: 60 ms."""
BUILTIN_LETTERS, STANDARD_LETTERS, OPERATOR_LETTERS = 20, 80, 20
"""At most: `unsigned __int128`; `std::basic_string<char, std::char_traits<char>, std::allocator<char> >`; `operator co_await`."""
UNARY, BINARY = "ad ng ps de co nt", "pl mi ml dv rm an or eo ls rs eq ne lt gt le ge aa oo"
"""Operators of expressions."""
MOST_CXX_DEPTH = 100


class UnfollowedName(Exception):
    """The name has what is not followed here, or is none."""


def has_short_expansion(mangled: str) -> bool:
    """The name, which begins with _Z, is not too long once it is written out."""
    doubles = len(REFERENCE.findall(mangled)) + len(mangled).bit_length() * len(PACK.findall(mangled))
    if STANDARD_LETTERS * len(mangled) << min(doubles, 64) <= QUICK_LETTERS:
        return True
    try:
        return _Lengths(mangled.partition(".")[0]).whole() <= MOST_LETTERS
    except (UnfollowedName, IndexError, ValueError):
        return False


class _Lengths:
    """A name that is read from left to right. Each method reads one production of the grammar and returns its length."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._parts: List[int] = []
        """Of what S_, S0_ and so on refer to."""
        self._widest = self._parameters = 0
        """The longest template argument, which T_ may refer to, and how many of these there were."""
        self._lambdas = 0
        """Closures and unnamed types: libstdc++ up to release 10 numbers each as a part of its own."""
        self._longest = 1
        """The most arguments that one list has."""

    def whole(self) -> int:
        """Return the length of the whole name."""
        if self._has_text("_Z"):
            letters = self._measure_special() if self._text[self._at] in "TG" else self._measure_encoding()
        else:
            letters = self._measure_type()
        if self._at != len(self._text):
            raise UnfollowedName
        return letters

    def _has_text(self, text: str) -> bool:
        has = self._text.startswith(text, self._at)
        self._at += len(text) if has else 0
        return has

    def _next_letter(self) -> str:
        return self._text[self._at]

    def _add_substitution(self, letters: int) -> int:
        """Make it a part that may be referred to."""
        self._parts.append(letters)
        return self._measure_small(letters)

    def _measure_small(self, letters: int) -> int:
        if letters > MOST_LETTERS:
            raise UnfollowedName
        return letters

    def _read_length(self) -> int:
        match = re.compile(r"n?(\d{0,9})").match(self._text, self._at)
        self._at = match.end() if match else self._at
        return int(match[1] or 0) if match else 0

    def _measure_below(self, read: Callable[[], int]) -> int:
        self._depth += 1
        if self._depth > MOST_CXX_DEPTH:
            raise UnfollowedName
        letters = read()
        self._depth -= 1
        return letters

    def _measure_special(self) -> int:
        kind = self._text[self._at : self._at + 2]
        self._at += 2
        if kind in ("TV", "TT", "TI", "TS"):
            return 40 + self._measure_type()
        if kind == "GV":
            return 40 + self._measure_name()
        raise UnfollowedName

    def _measure_encoding(self) -> int:
        before, letters = self._parameters, self._measure_name()
        if self._parameters != before:  # they may stand for arguments that follow
            raise UnfollowedName
        while self._at < len(self._text) and self._next_letter() != "E":
            letters += 2 + self._measure_type()
        self._parameters = before
        return letters

    def _measure_name(self) -> int:
        return self._measure_below(self._name_at)

    def _name_at(self) -> int:
        if self._has_text("N"):
            return self._measure_nested()
        if self._has_text("Z"):
            return self._measure_local()
        is_part = False
        if self._has_text("St"):
            letters = 5 + self._measure_unqualified()
        elif self._next_letter() == "S":
            letters, is_part = self._measure_reference(), True
        else:
            letters = self._measure_unqualified()
        if self._at < len(self._text) and self._next_letter() == "I":
            letters = (letters if is_part else self._add_substitution(letters)) + self._measure_arguments()
        return letters

    def _measure_nested(self) -> int:
        letters = 0
        while self._next_letter() in "rVKROH":
            letters, self._at = letters + 10, self._at + 1
        while not self._has_text("E"):
            is_reference = False
            if self._has_text("St"):
                letters, is_reference = letters + 5, True
            elif self._next_letter() == "S":
                letters, is_reference = letters + self._measure_reference(), True
            elif self._next_letter() == "T":
                letters += self._measure_parameter()
            elif self._next_letter() == "I":
                letters += self._measure_arguments()
            elif self._has_text("M"):
                continue
            else:
                letters += 2 + self._measure_unqualified()
            if not is_reference and self._next_letter() != "E":
                self._add_substitution(letters)
        return letters

    def _measure_local(self) -> int:
        letters = self._measure_below(self._measure_encoding)
        if not self._has_text("E"):
            raise UnfollowedName
        if self._has_text("s"):
            letters += 14
        else:
            if self._has_text("d"):
                self._read_length()
                self._at += 1
            letters += 2 + self._measure_name()
        if self._has_text("_"):
            is_long = self._has_text("_")
            self._read_length()
            if is_long and not self._has_text("_"):
                raise UnfollowedName
        return letters

    def _measure_unqualified(self) -> int:
        letters = 0
        self._has_text("L")
        next_ = self._next_letter()
        if next_.isdigit():
            letters += self._measure_source_name()
        elif self._has_text("Ul"):
            before, self._lambdas = self._parameters, self._lambdas + 1
            while not self._has_text("E"):
                letters += 2 + self._measure_type()
            letters += 12 + self._read_ordinal()
            self._parameters = before  # these are `auto`
        elif self._has_text("Ut"):
            self._lambdas += 1
            letters += 16 + self._read_ordinal()
        elif self._has_text("DC"):
            while not self._has_text("E"):
                letters += 2 + self._measure_source_name()
        elif next_ in "CD" and self._text[self._at + 1 : self._at + 2].isdigit():
            self._at += 2
            letters += STANDARD_LETTERS + max(self._parts, default=0)
        elif self._has_text("li"):
            letters += 12 + self._measure_source_name()
        elif next_.islower() and self._text[self._at + 1].isalpha():
            self._at += 2
            letters += OPERATOR_LETTERS
        else:
            raise UnfollowedName
        while self._at < len(self._text) and self._has_text("B"):
            letters += 6 + self._measure_source_name()
        return letters

    def _measure_source_name(self) -> int:
        size = self._read_length()
        self._at += size
        if not size or self._at > len(self._text):
            raise UnfollowedName
        return max(size, 21)  # `(anonymous namespace)`

    def _read_ordinal(self) -> int:
        self._read_length()
        if not self._has_text("_"):
            raise UnfollowedName
        return 10

    def _measure_reference(self) -> int:
        self._at += 1
        kind = self._next_letter()
        if kind.islower():
            self._at += 1
            letters = STANDARD_LETTERS
            while self._at < len(self._text) and self._has_text("B"):
                letters = self._add_substitution(letters + 6 + self._measure_source_name())
            return letters
        match = re.compile(r"([0-9A-Z]{0,6})_").match(self._text, self._at)
        if match is None:
            raise UnfollowedName
        self._at = match.end()
        number = int(match[1], 36) + 1 if match[1] else 0
        return max([self._parts[number], *self._parts[max(0, number - self._lambdas) : number]])

    def _measure_parameter(self) -> int:
        self._at += 1
        self._parameters += 1
        self._read_ordinal()
        return self._widest

    def _measure_arguments(self) -> int:
        letters, count = 3, 0
        self._at += 1
        while not self._has_text("E"):
            before, argument = self._parameters, self._measure_below(self._measure_argument)
            self._widest = max(self._widest, argument if self._parameters == before else 0)
            letters, count = self._measure_small(letters + 2 + argument), count + 1
        self._longest = max(self._longest, count)
        return letters

    def _measure_argument(self) -> int:
        if self._next_letter() in "IJ":
            return self._measure_arguments()
        if self._has_text("X"):
            letters = self._measure_expression()
            if not self._has_text("E"):
                raise UnfollowedName
            return letters
        return self._measure_literal() if self._has_text("L") else self._measure_type()

    def _measure_expression(self) -> int:
        return self._measure_small(self._measure_below(self._expression_at))

    def _expression_at(self) -> int:
        if self._has_text("L"):
            return self._measure_literal()
        if self._next_letter() == "T":
            return self._measure_parameter()
        code = self._text[self._at : self._at + 2]
        self._at += 2
        if code == "sr":
            letters = self._measure_type() + self._measure_unqualified()
            return letters + (self._measure_arguments() if self._next_letter() == "I" else 0)
        if code in ("st", "at"):
            return 10 + self._measure_type()
        if code in UNARY:
            return 4 + self._measure_expression()
        if code in BINARY:
            return 8 + self._measure_expression() + self._measure_expression()
        raise UnfollowedName

    def _measure_literal(self) -> int:
        if self._has_text("_Z"):
            letters = self._measure_encoding()
        else:
            letters = 4 + self._measure_type()
            end = self._text.index("E", self._at)
            letters, self._at = letters + end - self._at, end
        if not self._has_text("E"):
            raise UnfollowedName
        return letters

    def _measure_type(self) -> int:
        return self._measure_small(self._measure_below(self._type_at))

    def _type_at(self) -> int:
        kind = self._next_letter()
        if kind in "rVK":
            while self._next_letter() in "rVK":
                self._at += 1
            return self._add_substitution(24 + self._measure_type())
        if kind in "PROCG":
            self._at += 1
            return self._add_substitution(10 + self._measure_type())
        if kind.isdigit() or kind in "NZ":
            return self._add_substitution(self._measure_name())
        if kind == "S":
            return self._measure_class()
        if kind == "T":
            letters = self._add_substitution(self._measure_parameter())
            return (
                letters
                if self._at >= len(self._text) or self._next_letter() != "I"
                else self._add_substitution(letters + self._measure_arguments())
            )
        if kind in "FAMD":
            return self._measure_compound(kind)
        if kind.islower() and kind != "u":
            self._at += 1
            return BUILTIN_LETTERS
        raise UnfollowedName

    def _measure_class(self) -> int:
        """A type that begins with a reference: one alone is no new part."""
        if self._text.startswith("St", self._at):
            return self._add_substitution(self._measure_name())
        letters = self._measure_reference()
        if self._at >= len(self._text) or self._next_letter() != "I":
            return letters
        return self._add_substitution(letters + self._measure_arguments())

    def _measure_compound(self, kind: str) -> int:
        self._at += 1
        if kind == "F":
            self._has_text("Y")
            letters = 10
            while not self._has_text("E"):
                if self._next_letter() in "RO" and self._text.startswith("E", self._at + 1):
                    self._at += 1
                    continue
                letters += 2 + self._measure_type()
            return self._add_substitution(letters)
        if kind == "A":
            self._read_length()
            if not self._has_text("_"):
                raise UnfollowedName
            return self._add_substitution(16 + self._measure_type())
        if kind == "M":
            return self._add_substitution(8 + self._measure_type() + self._measure_type())
        if kind == "D" and self._has_text("p"):
            return self._add_substitution(self._longest * (2 + self._measure_type()))
        if kind == "D" and self._next_letter() in "nacdefhsui":
            self._at += 1
            return BUILTIN_LETTERS
        raise UnfollowedName
