"""Demangle names of C++ and Rust.

Names of C++ go to the C++ runtime of this machine (abi::__cxa_demangle); without one, plain nested names are read here and others stay
mangled. A name of 241 letters may expand to gigabytes, since each part may refer twice to the part before it: `_Lengths` adds up
lengths by the same grammar (Itanium C++ ABI, 5.1) before the runtime is called. Rust's v0 names follow RFC 2603; legacy names are
those of C++ with `$LT$` and the like.
"""

import ctypes
import re
from functools import cache
from typing import Any, Callable, Dict, List, Optional, Pattern, Sequence, Tuple, Union

from gdbheapx.common.budget import TooMuchWork, WorkCounter

RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1")
START = "typeinfo name for "
MOST_BYTES = 4096
MOST_REPETITIONS = 1000
"""Of letters that make the demangler call itself."""
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
    "a": "i8", "s": "i16", "l": "i32", "x": "i64", "n": "i128", "i": "isize", "f": "f32", "d": "f64", "b": "bool", "c": "char",
    "h": "u8", "t": "u16", "m": "u32", "y": "u64", "o": "u128", "j": "usize", "e": "str", "u": "()", "v": "...", "z": "!",
}  # fmt: skip
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
        return _parse_rust_name(mangled)[0] or name
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
    runtime = _load_runtime()
    if runtime is None or not 0 < len(mangled) <= MOST_BYTES or not re.fullmatch(r"[\w.$]+", mangled, re.A):
        return None
    if sum(map(mangled.count, "PROKVI")) > MOST_REPETITIONS:
        return None
    if (mangled.count("_") > MOST_UNDERSCORES or PARAMETER.search(mangled)) and not has_short_expansion(prefix + mangled):
        return None
    demangle, free = runtime
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


@cache
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
    if symbol.startswith("_R"):
        return _parse_rust_name(symbol)[1]
    return _find_legacy_owner(symbol) if symbol.startswith("_ZN") and symbol.isascii() and len(symbol) <= MOST_BYTES else None


def _parse_rust_name(symbol: str) -> Tuple[Optional[str], Optional[str]]:
    """Return the path of a v0 name of Rust, and its owner as demangle_rust_owner has it; None if it is none."""
    if not symbol.isascii() or len(symbol) > MOST_BYTES:
        return None, None
    name = _RustName(symbol.partition(".")[0][2:])
    try:
        return name.parse(False, True), name.owner
    except _UnreadRustName:
        return None, None


def _find_legacy_owner(symbol: str) -> Optional[str]:
    parts: List[str] = []
    at = 3
    digits = re.match(r"\d{1,4}", symbol[at:])
    while digits is not None:
        start = at + digits.end()
        at = start + int(digits[0])
        parts.append(symbol[start:at])
        digits = re.match(r"\d{1,4}", symbol[at:])
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
        self.owner: Optional[str] = None
        """See demangle_rust_owner."""
        self._letters = 0
        """Of all identifiers."""
        self._number_of = 0
        """Of the last identifier, among those that are equal."""

    def parse(self, is_type: bool = True, is_outer: bool = False) -> str:
        """A path or, where one may stand, any other type."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _UnreadRustName
        kind = self._parse_step()
        if kind == "B":
            start, to = self._at - 1, self._parse_base62()
            if to >= start:
                raise _UnreadRustName
            kept, self._at = self._at, to
            text = self.parse(is_type)
            self._at = kept
        elif kind in "CMXYNI":
            text = self._parse_path(kind, is_outer)
        elif is_type:
            text = self._parse_plain_type(kind)
        else:
            raise _UnreadRustName
        self._depth -= 1
        return text

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

    def _skip_numbered(self, letter: str) -> bool:
        """A binder, lifetime or disambiguator: the letter and a number, of which nothing is shown."""
        has = self._has_letter(letter)
        if has:
            self._parse_base62()
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

    def _parse_path(self, kind: str, is_outer: bool) -> str:
        if kind == "C":
            return self._parse_identifier()
        if kind in "MXY":
            if kind != "Y":
                self._skip_numbered("s")
                self.parse(False)
            type_ = self.parse()
            if is_outer and self.owner is None:
                self.owner = type_
            return "<%s>" % (type_ if kind == "M" else "%s as %s" % (type_, self.parse(False)))
        if kind == "N":
            space = self._parse_step()
            path = self.parse(False, is_outer)
            name = self._parse_identifier()
            text = "%s::%s" % (path, "{closure#%d}" % self._number_of if space == "C" else name or "{%s}" % space)
            self.owner = text if is_outer and space == "C" else self.owner
            return text
        path = self.parse(False, is_outer)
        arguments = self._parse_list(self._parse_argument)
        if is_outer and path.endswith("::drop_in_place") and arguments:
            self.owner = arguments[0]
        return "%s<%s>" % (path, ", ".join(argument for argument in arguments if argument))

    def _parse_list(self, read: Callable[[], str]) -> List[str]:
        texts: List[str] = []
        while not self._has_letter("E"):
            texts.append(read())
        return texts

    def _parse_argument(self) -> str:
        if self._skip_numbered("L"):
            return ""
        return self._parse_constant() if self._has_letter("K") else self.parse()

    def _parse_constant(self) -> str:
        if self._has_letter("p") or self._skip_numbered("B"):
            return "_"
        value = re.match(r"n?[0-9a-f]*_", self._text[self._at + 1 :])
        if self._parse_step() not in BASIC or value is None:
            raise _UnreadRustName
        self._at += value.end()
        return str(int(value[0].strip("n_") or "0", 16))

    def _parse_plain_type(self, kind: str) -> str:
        if kind in BASIC:
            return BASIC[kind]
        if kind == "p":
            return "_"
        if kind == "A":
            type_ = self.parse()
            return "[%s; %s]" % (type_, self._parse_constant())
        if kind == "S":
            return "[%s]" % self.parse()
        if kind == "T":
            return "(%s)" % ", ".join(self._parse_list(self.parse))
        if kind in "RQ":
            self._skip_numbered("L")
            return ("&" if kind == "R" else "&mut ") + self.parse()
        if kind in "PO":
            return ("*const " if kind == "P" else "*mut ") + self.parse()
        if kind == "F":
            self._skip_numbered("G")
            self._has_letter("U")
            if self._has_letter("K") and not self._has_letter("C"):
                self._parse_identifier()
            arguments = self._parse_list(self.parse)
            result = self.parse()
            return "fn(%s)%s" % (", ".join(arguments), "" if result == "()" else " -> " + result)
        if kind == "D":
            self._skip_numbered("G")
            bounds = self._parse_list(self._parse_bound)
            if self._skip_numbered("L"):
                return "dyn " + " + ".join(bounds)
        raise _UnreadRustName

    def _parse_bound(self) -> str:
        path = self.parse(False)
        while self._has_letter("p"):
            self._parse_identifier()
            self.parse()
        return path


REFERENCE = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
PACK = re.compile(r"Dp|sp|s[zZPR]|f[lrLR]")
"""What is written once for each of several arguments, of which there are no more than letters."""
MOST_LETTERS = 1 << 18
"""Of a name that is shown. A longer one stays mangled."""
QUICK_LETTERS = 1 << 25
"""Names that cannot come to more, whatever refers to what, are written out at once: 60 ms."""
BUILTIN_LETTERS, STANDARD_LETTERS, OPERATOR_LETTERS = 20, 80, 20
"""At most: `unsigned __int128`; `std::basic_string<char, std::char_traits<char>, std::allocator<char> >`; `operator co_await`."""
MOST_CXX_DEPTH = 150


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


Row = Tuple[Pattern[str], int, Sequence[str]]


def _compile_rows(*rows: Tuple[str, int, str]) -> Sequence[Row]:
    return [(re.compile(start), letters, following.split()) for start, letters, following in rows]


LITERAL = (r"L_Z", 0, "encoding E"), (r"L", 4, "type value E")
GRAMMAR: Dict[str, Sequence[Row]] = {
    "symbol": _compile_rows((r"_ZT[VTIS]", 40, "type"), (r"_ZGV", 40, "name"), (r"_Z(?![TG])", 0, "encoding"), (r"(?!_Z)", 0, "type")),
    "name": _compile_rows((r"N", 0, "nested"), (r"Z", 0, "local"), (r"(?=S[^t])", 0, "reference arguments"), (r"(?!S[^t])", 0, "template")),
    "prefix": _compile_rows(
        (r"St", 5, ""),
        (r"(?=S)", 0, "reference"),
        (r"(?=T)", 0, "parameter"),
        (r"(?=I)", 0, "arguments"),
        (r"M", 0, ""),
        (r"", 2, "unqualified"),
    ),
    "unqualified": _compile_rows(
        (r"L?(?=\d)", 0, "source tags"),
        (r"L?Ul", 12, "lambda ordinal tags"),
        (r"L?Ut", 16, "unnamed ordinal tags"),
        (r"L?DC", 0, "source* tags"),
        (r"L?[CD]\d", STANDARD_LETTERS, "class_name tags"),
        (r"L?li", 12, "source tags"),
        (r"L?[a-z][A-Za-z]", OPERATOR_LETTERS, "tags"),
    ),
    "argument": _compile_rows((r"(?=[IJ])", 0, "arguments"), (r"X", 0, "expression E"), *LITERAL, (r"", 0, "type")),
    "expression": _compile_rows(
        *LITERAL,
        (r"(?=T)", 0, "parameter"),
        (r"sr", 0, "type unqualified arguments"),
        (r"st|at", 10, "type"),
        (r"ad|ng|ps|de|co|nt", 4, "expression"),
        (r"pl|mi|ml|dv|rm|an|or|eo|ls|rs|eq|ne|lt|gt|le|ge|aa|oo", 8, "expression expression"),
    ),
    "type": _compile_rows(
        (r"[rVK]+", 24, "type part"),
        (r"[PROCG]", 10, "type part"),
        (r"(?=[0-9NZ]|St)", 0, "name part"),
        (r"(?=[ST])", 0, "class"),
        (r"FY?", 10, "type* part"),
        (r"An?\d{0,9}_", 16, "type part"),
        (r"M", 8, "type type part"),
        (r"Dp", 0, "pack part"),
        (r"D[nacdefhsui]|[a-tv-z]", BUILTIN_LETTERS, ""),
    ),
}
"""Rows of each production: how it begins, how many letters that comes to at most, and what follows: other productions (`*`: any number of
them, up to E), methods of _Lengths, and `part` where S_, S0_ and so on may refer to all of it."""


class _Lengths:
    """A name that is read from left to right by GRAMMAR. Methods read what its rows cannot say; all return lengths."""

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
        letters = self.measure("symbol")
        if self._at != len(self._text):
            raise UnfollowedName
        return letters

    def measure(self, name: str) -> int:
        """Read what GRAMMAR, or a method, has by this name."""
        if name not in GRAMMAR:
            return int(getattr(self, "_measure_" + name)())
        self._depth += 1
        row = next((row for row in GRAMMAR[name] if row[0].match(self._text, self._at)), None)
        if row is None or self._depth > MOST_CXX_DEPTH:
            raise UnfollowedName
        pattern, letters, followed_by = row
        self._take(pattern)
        for following in followed_by:
            if following == "part":
                self._parts.append(letters)
            elif following == "E":
                self._take(r"E")
            elif following.endswith("*"):
                letters += self._measure_list(following[:-1])
            else:
                letters += self.measure(following)
        if letters > MOST_LETTERS:
            raise UnfollowedName
        self._depth -= 1
        return letters

    def _take(self, pattern: Union[str, Pattern[str]]) -> "re.Match[str]":
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            raise UnfollowedName
        self._at = match.end()
        return match

    def _is_next(self, letters: str) -> bool:
        return self._text[self._at : self._at + 1] in tuple(letters)

    def _measure_list(self, name: str) -> int:
        letters = 0
        while not self._take(r"(?:[RO](?=E))?(E?)")[1]:  # a function may end with its ref-qualifier
            letters += 2 + self.measure(name)
        return letters

    def _measure_encoding(self) -> int:
        before, letters = self._parameters, self.measure("name")
        if self._parameters != before:  # they may stand for arguments that follow
            raise UnfollowedName
        while self._at < len(self._text) and not self._is_next("E"):
            letters += 2 + self.measure("type")
        self._parameters = before
        return letters

    def _measure_template(self) -> int:
        letters = (5 if self._take(r"(St)?")[1] else 0) + self.measure("unqualified")
        if self._is_next("I"):
            self._parts.append(letters)
        return letters + self._measure_arguments()

    def _measure_nested(self) -> int:
        letters = 10 * len(self._take(r"[rVKROH]*")[0])
        while not self._take(r"(E?)")[1]:
            is_new = not self._is_next("SM")
            letters += self.measure("prefix")
            if is_new and not self._is_next("E"):
                self._parts.append(letters)
        return letters

    def _measure_local(self) -> int:
        letters = self.measure("encoding")
        if self._take(r"E(s|dn?\d{0,9}_)?")[1] == "s":
            letters += 14
        else:
            letters += 2 + self.measure("name")
        self._take(r"__n?\d{0,9}_|(?!__)(_n?\d{0,9})?")
        return letters

    def _measure_lambda(self) -> int:
        before, self._lambdas = self._parameters, self._lambdas + 1
        letters = self._measure_list("type")
        self._parameters = before  # these are `auto`
        return letters

    def _measure_unnamed(self) -> int:
        self._lambdas += 1
        return 0

    def _measure_ordinal(self) -> int:
        self._take(r"n?\d{0,9}_")
        return 10

    def _measure_class_name(self) -> int:
        """Return the longest part: which one a constructor repeats is not followed."""
        return max(self._parts, default=0)

    def _measure_tags(self) -> int:
        letters = 0
        while self._take(r"(B?)")[1]:
            letters += 6 + self._measure_source()
        return letters

    def _measure_source(self) -> int:
        size = int(self._take(r"\d{1,9}")[0])
        self._at += size
        if not size or self._at > len(self._text):
            raise UnfollowedName
        return max(size, 21)  # `(anonymous namespace)`

    def _measure_value(self) -> int:
        return len(self._take(r"[^E]*")[0])

    def _measure_reference(self) -> int:
        match = self._take(r"S(?:[a-z]|([0-9A-Z]{0,6})_)")
        if match[1] is None:
            letters = STANDARD_LETTERS
            while self._take(r"(B?)")[1]:
                letters += 6 + self._measure_source()
                self._parts.append(letters)
            return letters
        number = int(match[1], 36) + 1 if match[1] else 0
        return max([self._parts[number], *self._parts[max(0, number - self._lambdas) : number]])

    def _measure_parameter(self) -> int:
        self._parameters += 1
        self._take(r"Tn?\d{0,9}_")
        return self._widest

    def _measure_arguments(self) -> int:
        """Return the length of a template's arguments; 0 if there are none."""
        if not self._is_next("IJ"):
            return 0
        letters, count = 3, 0
        self._at += 1
        while not self._take(r"(E?)")[1]:
            before, argument = self._parameters, self.measure("argument")
            self._widest = max(self._widest, argument if self._parameters == before else 0)
            letters, count = letters + 2 + argument, count + 1
        self._longest = max(self._longest, count)
        return letters

    def _measure_class(self) -> int:
        """A type that begins with a reference: one alone is no new part, a parameter is."""
        is_parameter = self._is_next("T")
        letters = self._measure_parameter() if is_parameter else self._measure_reference()
        if is_parameter:
            self._parts.append(letters)
        if self._is_next("I"):
            letters += self._measure_arguments()
            self._parts.append(letters)
        return letters

    def _measure_pack(self) -> int:
        return self._longest * (2 + self.measure("type"))
