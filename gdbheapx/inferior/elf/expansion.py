"""How long a mangled name is in the words of the source, before it is written out (Itanium C++ ABI, 5.1).

A name of 241 letters may come to gigabytes: each part may refer twice to the part before it. The numbering of parts is the ABI's
(5.1.10, compression), so this follows its grammar of names and types, and adds up lengths in place of texts. What it does not follow
(expressions, constraints) counts as if each reference doubled what is there so far.
"""

import re
from typing import Callable, List

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
MOST_DEPTH = 100


class Unfollowed(Exception):
    """The name has what is not followed here, or is none."""


def is_short(mangled: str) -> bool:
    """The name, which begins with _Z, is not too long once it is written out."""
    doubles = len(REFERENCE.findall(mangled)) + len(mangled).bit_length() * len(PACK.findall(mangled))
    if STANDARD_LETTERS * len(mangled) << min(doubles, 64) <= QUICK_LETTERS:
        return True
    try:
        return _Lengths(mangled.partition(".")[0]).whole() <= MOST_LETTERS
    except (Unfollowed, IndexError, ValueError):
        return False


class _Lengths:
    """A name that is read from left to right. Each method reads one production of the grammar and returns its length."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._parts: List[int] = []
        """Of what S_, S0_ and so on refer to."""
        self._widest = self._parameters = 0
        """The longest template argument, for which T_ may stand, and how many of these there were."""
        self._lambdas = 0
        """Closures and unnamed types: libstdc++ up to release 10 numbers each as a part of its own."""
        self._longest = 1
        """The most arguments that one list has."""

    def whole(self) -> int:
        """All of it."""
        if self._has("_Z"):
            letters = self._special() if self._text[self._at] in "TG" else self._encoding()
        else:
            letters = self._type()
        if self._at != len(self._text):
            raise Unfollowed
        return letters

    def _has(self, text: str) -> bool:
        has = self._text.startswith(text, self._at)
        self._at += len(text) if has else 0
        return has

    def _next(self) -> str:
        return self._text[self._at]

    def _add(self, letters: int) -> int:
        """Make it a part that may be referred to."""
        self._parts.append(letters)
        return self._small(letters)

    def _small(self, letters: int) -> int:
        if letters > MOST_LETTERS:
            raise Unfollowed
        return letters

    def _number(self) -> int:
        match = re.compile(r"n?(\d{0,9})").match(self._text, self._at)
        self._at = match.end() if match else self._at
        return int(match[1] or 0) if match else 0

    def _below(self, read: Callable[[], int]) -> int:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise Unfollowed
        letters = read()
        self._depth -= 1
        return letters

    def _special(self) -> int:
        kind = self._text[self._at : self._at + 2]
        self._at += 2
        if kind in ("TV", "TT", "TI", "TS"):
            return 40 + self._type()
        if kind == "GV":
            return 40 + self._name()
        raise Unfollowed

    def _encoding(self) -> int:
        before, letters = self._parameters, self._name()
        if self._parameters != before:  # they may stand for arguments that follow
            raise Unfollowed
        while self._at < len(self._text) and self._next() != "E":
            letters += 2 + self._type()
        self._parameters = before
        return letters

    def _name(self) -> int:
        return self._below(self._name_at)

    def _name_at(self) -> int:
        if self._has("N"):
            return self._nested()
        if self._has("Z"):
            return self._local()
        is_part = False
        if self._has("St"):
            letters = 5 + self._unqualified()
        elif self._next() == "S":
            letters, is_part = self._reference(), True
        else:
            letters = self._unqualified()
        if self._at < len(self._text) and self._next() == "I":
            letters = (letters if is_part else self._add(letters)) + self._arguments()
        return letters

    def _nested(self) -> int:
        letters = 0
        while self._next() in "rVKROH":
            letters, self._at = letters + 10, self._at + 1
        while not self._has("E"):
            is_reference = False
            if self._has("St"):
                letters, is_reference = letters + 5, True
            elif self._next() == "S":
                letters, is_reference = letters + self._reference(), True
            elif self._next() == "T":
                letters += self._parameter()
            elif self._next() == "I":
                letters += self._arguments()
            elif self._has("M"):
                continue
            else:
                letters += 2 + self._unqualified()
            if not is_reference and self._next() != "E":
                self._add(letters)
        return letters

    def _local(self) -> int:
        letters = self._below(self._encoding)
        if not self._has("E"):
            raise Unfollowed
        if self._has("s"):
            letters += 14
        else:
            if self._has("d"):
                self._number()
                self._at += 1
            letters += 2 + self._name()
        if self._has("_"):
            is_long = self._has("_")
            self._number()
            if is_long and not self._has("_"):
                raise Unfollowed
        return letters

    def _unqualified(self) -> int:
        letters = 0
        self._has("L")
        next_ = self._next()
        if next_.isdigit():
            letters += self._source()
        elif self._has("Ul"):
            before, self._lambdas = self._parameters, self._lambdas + 1
            while not self._has("E"):
                letters += 2 + self._type()
            letters += 12 + self._ordinal()
            self._parameters = before  # these are `auto`
        elif self._has("Ut"):
            self._lambdas += 1
            letters += 16 + self._ordinal()
        elif self._has("DC"):
            while not self._has("E"):
                letters += 2 + self._source()
        elif next_ in "CD" and self._text[self._at + 1 : self._at + 2].isdigit():
            self._at += 2
            letters += STANDARD_LETTERS + max(self._parts, default=0)
        elif self._has("li"):
            letters += 12 + self._source()
        elif next_.islower() and self._text[self._at + 1].isalpha():
            self._at += 2
            letters += OPERATOR_LETTERS
        else:
            raise Unfollowed
        while self._at < len(self._text) and self._has("B"):
            letters += 6 + self._source()
        return letters

    def _source(self) -> int:
        size = self._number()
        self._at += size
        if not size or self._at > len(self._text):
            raise Unfollowed
        return max(size, 21)  # `(anonymous namespace)`

    def _ordinal(self) -> int:
        self._number()
        if not self._has("_"):
            raise Unfollowed
        return 10

    def _reference(self) -> int:
        self._at += 1
        kind = self._next()
        if kind.islower():
            self._at += 1
            letters = STANDARD_LETTERS
            while self._at < len(self._text) and self._has("B"):
                letters = self._add(letters + 6 + self._source())
            return letters
        match = re.compile(r"([0-9A-Z]{0,6})_").match(self._text, self._at)
        if match is None:
            raise Unfollowed
        self._at = match.end()
        number = int(match[1], 36) + 1 if match[1] else 0
        return max([self._parts[number], *self._parts[max(0, number - self._lambdas) : number]])

    def _parameter(self) -> int:
        self._at += 1
        self._parameters += 1
        self._ordinal()
        return self._widest

    def _arguments(self) -> int:
        letters, count = 3, 0
        self._at += 1
        while not self._has("E"):
            before, argument = self._parameters, self._below(self._argument)
            self._widest = max(self._widest, argument if self._parameters == before else 0)
            letters, count = self._small(letters + 2 + argument), count + 1
        self._longest = max(self._longest, count)
        return letters

    def _argument(self) -> int:
        if self._next() in "IJ":
            return self._arguments()
        if self._has("X"):
            letters = self._expression()
            if not self._has("E"):
                raise Unfollowed
            return letters
        return self._literal() if self._has("L") else self._type()

    def _expression(self) -> int:
        return self._small(self._below(self._expression_at))

    def _expression_at(self) -> int:
        if self._has("L"):
            return self._literal()
        if self._next() == "T":
            return self._parameter()
        code = self._text[self._at : self._at + 2]
        self._at += 2
        if code == "sr":
            letters = self._type() + self._unqualified()
            return letters + (self._arguments() if self._next() == "I" else 0)
        if code in ("st", "at"):
            return 10 + self._type()
        if code in UNARY:
            return 4 + self._expression()
        if code in BINARY:
            return 8 + self._expression() + self._expression()
        raise Unfollowed

    def _literal(self) -> int:
        if self._has("_Z"):
            letters = self._encoding()
        else:
            letters = 4 + self._type()
            end = self._text.index("E", self._at)
            letters, self._at = letters + end - self._at, end
        if not self._has("E"):
            raise Unfollowed
        return letters

    def _type(self) -> int:
        return self._small(self._below(self._type_at))

    def _type_at(self) -> int:
        kind = self._next()
        if kind in "rVK":
            while self._next() in "rVK":
                self._at += 1
            return self._add(24 + self._type())
        if kind in "PROCG":
            self._at += 1
            return self._add(10 + self._type())
        if kind.isdigit() or kind in "NZ":
            return self._add(self._name())
        if kind == "S":
            return self._class()
        if kind == "T":
            letters = self._add(self._parameter())
            return letters if self._at >= len(self._text) or self._next() != "I" else self._add(letters + self._arguments())
        if kind in "FAMD":
            return self._compound(kind)
        if kind.islower() and kind != "u":
            self._at += 1
            return BUILTIN_LETTERS
        raise Unfollowed

    def _class(self) -> int:
        """A type that begins with a reference: one alone is no new part."""
        if self._text.startswith("St", self._at):
            return self._add(self._name())
        letters = self._reference()
        if self._at >= len(self._text) or self._next() != "I":
            return letters
        return self._add(letters + self._arguments())

    def _compound(self, kind: str) -> int:
        self._at += 1
        if kind == "F":
            self._has("Y")
            letters = 10
            while not self._has("E"):
                if self._next() in "RO" and self._text.startswith("E", self._at + 1):
                    self._at += 1
                    continue
                letters += 2 + self._type()
            return self._add(letters)
        if kind == "A":
            self._number()
            if not self._has("_"):
                raise Unfollowed
            return self._add(16 + self._type())
        if kind == "M":
            return self._add(8 + self._type() + self._type())
        if kind == "D" and self._has("p"):
            return self._add(self._longest * (2 + self._type()))
        if kind == "D" and self._next() in "nacdefhsui":
            self._at += 1
            return BUILTIN_LETTERS
        raise Unfollowed
