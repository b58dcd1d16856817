"""Where the vtables of an ELF file's C++ classes lie, and whose they are, by the Itanium C++ ABI.

A vtable has before its address point, which objects point to, the word that leads to its class's type_info, and before that the distance
to the object's start: 0, or minus the place of a base inside the object. So the type_infos tell nearly all, whether the file is stripped or
not: their own vtables come from the C++ runtime under names that the dynamic linker needs. Symbols `_ZTV...` tell the rest, built without
RTTI; there a class with virtual bases is not found, because nothing tells how many words stand before its address point.
"""

from bisect import bisect_left, bisect_right
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.inferior.elf.file import STT_OBJECT, ElfFile
from gdbheapx.inferior.elf.relocated import Image

KINDS = ("N10__cxxabiv117__class_type_infoE", "N10__cxxabiv120__si_class_type_infoE", "N10__cxxabiv121__vmi_class_type_infoE")
"""The classes of type_infos of classes: without bases, with one, with several or virtual ones."""
VTABLE = "_ZTV"
TYPE_INFO = "_ZTI"
MOST_DISTANCE = 1 << 20
"""From a base to the start of its object, in bytes."""
MOST_BASES = 64
MOST_NAME_BYTES = 4096
MOST_VTABLES = 200_000


class RawVtable(NamedTuple):
    """One vtable."""

    mangled: str
    """Of the class, as in its type_info: `N3foo3barE`."""
    within: int
    """Where the part of the object that points here begins in the object: 0 for its own first word."""


class TypeInfo(NamedTuple):
    """One type_info of a class."""

    mangled: str
    kind: str
    """One of KINDS."""


def find(file: ElfFile, with_symbols: Sequence[ElfFile] = ()) -> Dict[int, RawVtable]:
    """Address point in the file -> vtable. `with_symbols`: files that may have symbols for it, such as its debug file."""
    image = Image(file)
    known = list(_symbols([file, *with_symbols]))
    infos = _type_infos(image, _kinds(image, known))
    found = dict(_with_type_info(image, infos, [(start, end) for start, end, _ in known]))
    word = image.word_bytes
    points = sorted(found)
    for start, end, name in known:
        is_plain = not (image.number(start) or image.number(start + word) or image.is_relocated(start + word))
        if is_plain and not _any_within(points, start, end):  # without RTTI, or a copy of another object's (R_..._COPY)
            found.setdefault(start + 2 * word, RawVtable(name, 0))
    return dict(sorted(found.items())[:MOST_VTABLES])


def _symbols(files: Sequence[ElfFile]) -> Iterator[Tuple[int, int, str]]:
    """(start, end, mangled class name) of every vtable that has a symbol."""
    met: Set[Tuple[int, int]] = set()
    for file in files:
        for name, symbol in file.symbols_starting(VTABLE):
            place = (symbol.value, symbol.value + symbol.size_bytes)
            if symbol.type == STT_OBJECT and symbol.size_bytes and place not in met:
                met.add(place)
                yield symbol.value, symbol.value + symbol.size_bytes, name[len(VTABLE) :]


def _kinds(image: Image, symbols: Sequence[Tuple[int, int, str]]) -> Dict[int, str]:
    """The address points of the vtables of the type_infos themselves, where they lie in this object: those of which of KINDS."""
    word = image.word_bytes
    found = {start + 2 * word: name for start, _, name in symbols if name in KINDS}
    if found:
        return found
    for kind in KINDS:  # a static executable without symbols: from the class's name to its type_info to its vtable
        names = set(image.find_text(kind.encode()))
        infos = {place - word for place in image.words_in(names)} if names else set()
        for place in image.words_in(infos) if infos else ():
            if image.number(place - word) == 0 and not image.is_relocated(place - word) and _has_code(image, place + word):
                found[place + word] = kind
    return found


def _type_infos(image: Image, kinds: Dict[int, str]) -> Dict[int, TypeInfo]:
    """Every type_info of a class, by its address."""
    word = image.word_bytes
    wanted = {VTABLE + kind: kind for kind in KINDS}
    places = [(place, kinds[image.pointer(place) or 0]) for place in image.words_in(set(kinds))] if kinds else []
    places += [(place, wanted[one.name]) for place, one in image.imported.items() if one.name in wanted and one.addend == 2 * word]
    found = {}
    for place, kind in places:
        at = image.pointer(place + word)
        text = image.text(at) if at else None
        mangled = type_name(text + b"\0") if text else None
        if mangled:
            found[place] = TypeInfo(mangled, kind)
    return found


def type_name(data: bytes) -> Optional[str]:
    """The mangled name that these bytes begin with, as a type_info points to it; None if it is none, or has no end."""
    text, end, _ = data.partition(b"\0")
    if not end or not text or len(text) > MOST_NAME_BYTES or not all(32 < byte < 127 for byte in text):
        return None
    return text.decode("ascii").lstrip("*")  # `*`: two of this name may be two classes


def _with_type_info(image: Image, infos: Dict[int, TypeInfo], symbols: List[Tuple[int, int]]) -> Iterator[Tuple[int, RawVtable]]:
    """(address point, vtable) of every place that points to a type_info and is no part of one."""
    word = image.word_bytes
    inside = _bases(image, infos)
    starts = sorted(symbols)
    named = [(place, infos[image.pointer(place) or 0].mangled) for place in image.words_in(set(infos))] if infos else []
    others = [(place, one.name) for place, one in image.imported.items() if one.name.startswith(TYPE_INFO) and not one.addend]
    named += [(place, name[len(TYPE_INFO) :]) for place, name in others]
    for place, name in named:
        distance = image.number(place - word)
        if place in inside or distance is None or image.is_relocated(place - word) or distance % word or not -MOST_DISTANCE < distance <= 0:
            continue
        if _covered(starts, place) or _has_code(image, place + word):
            yield place + word, RawVtable(name, -distance)


def _bases(image: Image, infos: Dict[int, TypeInfo]) -> Set[int]:
    """The places inside type_infos that lead to those of their bases."""
    word = image.word_bytes
    found: Set[int] = set()
    for start, one in infos.items():
        first = start + 2 * word
        if one.kind == KINDS[1]:
            found.add(first)
        elif one.kind == KINDS[2]:  # unsigned flags, count; then a pointer and a word for each base
            count = int.from_bytes(image.read(first + 4, 4), image.file.header.byte_order)
            found.update(first + 8 + 2 * word * number for number in range(min(count, MOST_BASES)))
    return found


def _has_code(image: Image, place: int) -> bool:
    """A function is among the first entries: those of an abstract class's destructors may be empty."""
    word = image.word_bytes
    for at in (place, place + word, place + 2 * word):
        found = image.pointer(at)
        if found is None:
            return at in image.imported
        if found:
            return image.is_code(found & ~1)
    return False


def _covered(ranges: Sequence[Tuple[int, int]], place: int) -> bool:
    """A sorted range begins at or before the place, and ends behind it."""
    number = bisect_right(ranges, (place, 1 << 64)) - 1
    return number >= 0 and place < ranges[number][1]


def _any_within(points: Sequence[int], start: int, end: int) -> bool:
    number = bisect_left(points, start)
    return number < len(points) and points[number] <= end
