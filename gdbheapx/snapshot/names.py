"""Names that a snapshot has from the program: which there are, and a snapshot without them.

Addresses without where the process had its memory: each mapping begins where its number says, and what lies in it keeps its offset.

A snapshot is mailed: real addresses would show an attacker of a process that still runs what address space layout randomisation hides. They
stay as long as they were, so that tables stay straight. Addresses below 4 GiB are those of programs linked to a fixed place; they show
nothing.
"""

import re
from bisect import bisect_right
from typing import Any, Callable, Dict, Iterable, List, Sequence, Set, Tuple

from gdbheapx.allocators import REGISTRY
from gdbheapx.analysis.census import owned
from gdbheapx.analysis.reachability.paths import PathStep
from gdbheapx.catalogue import ADDON_ALLOCATORS
from gdbheapx.inferior.base import Mapping
from gdbheapx.kernel.blocks.packed import Move
from gdbheapx.model import TargetAddress
from gdbheapx.snapshot.record import RecordedMapping, SnapshotRecord
from gdbheapx.units import Sentence

FIRST, STEP = 1 << 44, 1 << 32
FIXED = 1 << 32
HEX = re.compile(r"\b0x([0-9a-f]{9,16})\b")
KEYS = {
    "signature": "type",
    "module": "module",
    "owner": "owner",
    "holders": "owner",
    "file": "file",
    "object": "module",
    "executable": "program",
    "thread": "thread",
    "path": "path",
    "function": "function",
}
"""Members of records and JSON objects that hold a name, and what is there instead, with a number."""
RUNTIMES = "python jvm perl ruby php lua redis bind postgresql nginx sqlite rust c++"
WORDS_OF_OURS = (
    "main thread auto manual huge used cached free text zeros global mapping block shared thread-local data stack registers "
    "list deque vector string dict"
)
ALLOCATORS = (*(name.split(".")[1] for name in REGISTRY if "." in name), *(name for files in ADDON_ALLOCATORS.values() for name in files))
OURS = frozenset([*owned.WORDS, *WORDS_OF_OURS.split(), *RUNTIMES.split(), *ALLOCATORS])
"""What gdbheapx says itself where names are."""
IN_SENTENCES = (
    "bytes block blocks arena arenas memory free used cached in of the a it is and by program heap heaps thread threads chunk chunks page "
    "pages share shared size sizes data stack root roots mapping mappings object objects type types list text zeros pool pools cache caches"
)
SENTENCES = frozenset(IN_SENTENCES.split())
"""Words of our own sentences and headings that programs name things by, too: they stay where they are not alone."""
WORDS = re.compile(r"[A-Za-z0-9_.:/<>~@*&\[\]()$+-]+")


STEP_OF_PATH = frozenset(PathStep._fields)
OF_BOOKS = frozenset(("inuse_bytes", "waiting"))
"""Members of a memory context, and of tasks of one name (analysis/addon_answers.py)."""


class MovedAddresses:
    """Map from the real addresses of all mappings to those in the snapshot. `is_kept`: both are equal."""

    def __init__(self, mappings: Sequence[Mapping], is_kept: bool = False) -> None:
        self.is_kept = is_kept
        self._starts: List[int] = []
        self._rows: List[Tuple[int, int, int, str]] = []
        at, end = FIRST, 0
        for mapping in sorted(mappings):
            if mapping.start < FIXED:
                continue
            if is_kept:
                at = mapping.start
            elif mapping.start != end:  # what lies side by side stays so
                at = -(-at // STEP) * STEP
            self._starts.append(mapping.start)
            self._rows.append((mapping.start, mapping.end, at, mapping.name))
            at, end = at + mapping.end - mapping.start, mapping.end

    def places(self) -> List[RecordedMapping]:
        """Return all mappings at their addresses in the snapshot."""
        return [RecordedMapping(seems, seems + end - start, name) for start, end, seems, name in self._rows]

    def moves(self) -> List[Move]:
        """Return the moves of all memory, by address."""
        return [(0, FIXED, 0), *((start, end, seems) for start, end, seems, _ in self._rows)]

    def address(self, value: int) -> int:
        """Return the address in the snapshot; one that lies in no mapping keeps its distance to the mapping before it, if that is near,
        else it is hidden.
        """
        if value < FIXED or self.is_kept:
            return value
        place = bisect_right(self._starts, value) - 1
        if place < 0:
            return FIXED
        start, end, seems, _ = self._rows[place]
        return seems + value - start if value - start <= -(-(end - start) // STEP) * STEP else FIXED

    def text(self, text: str) -> str:
        """Return the text with all addresses in it moved."""
        return HEX.sub(lambda match: "0x%0*x" % (len(match.group(1)), self.address(int(match.group(1), 16))), text)

    def value(self, value: Any) -> Any:
        """Records with addresses in them."""
        return replace_names(value, self.text, self.address)


def replace_names(value: Any, text: Callable[[str], str], address: Callable[[int], int]) -> Any:
    """Return a copy of the value with every text and every address replaced; keys of mappings are members' names, and allocators'."""
    if isinstance(value, TargetAddress):
        return TargetAddress(address(value))
    if isinstance(value, Sentence):
        return Sentence(text(value), text(value.plain))
    if isinstance(value, str):
        return text(value)
    names = getattr(value, "_fields", None)
    if names is not None:
        return type(value)(*(replace_names(member, text, address) for member in value))
    if isinstance(value, dict):
        return {key: replace_names(member, text, address) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(replace_names(member, text, address) for member in value)
    return value


def list_strings(record: SnapshotRecord) -> List[str]:
    """Every text in it, once, sorted."""
    all_texts: Set[str] = set()

    def keep_text(text: str) -> str:
        all_texts.add(text)
        return text

    replace_names([record.head, record.outcomes, record.models], keep_text, int)
    return sorted(all_texts)


def escape_shown_name(name: str) -> str:
    """A name as lines of text have it, control and non-ASCII characters escaped: what report.text.make_printable() makes of it."""
    return "".join(
        letter if " " <= letter <= "~" else letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in name
    )


class NameNumbers:
    """Gives every name a number."""

    def __init__(self, known: Iterable[str]) -> None:
        self._numbers: Dict[str, str] = {}
        self._counts: Dict[str, int] = {}
        self._odd: List[str] = []
        self._seen = 0
        for name in known:
            self.instead(name, "name")
            for part in name.split("/"):
                self.instead(part, "name")

    def instead(self, name: str, kind: str) -> str:
        """Return the replacement of a name; a name is replaced by the same everywhere."""
        if not name or name in OURS or name.isdigit():
            return name
        if name not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[name] = "%s-%d" % (kind, self._counts[kind])
            self._numbers.setdefault(escape_shown_name(name), self._numbers[name])  # as tables have it
        return self._numbers[name]

    def gather(self, value: Any, key: str = "") -> None:
        """Learns the names in records, by the members in which they are."""
        names: Sequence[str] = getattr(value, "_fields", ())
        if isinstance(value, str):
            if key in KEYS:
                self.instead(value, KEYS[key])
        elif isinstance(value, dict):
            for name, member in value.items():
                self.gather(member, name)
            if isinstance(value.get("name"), str) and (set(value) == STEP_OF_PATH or "retained_bytes" in value or OF_BOOKS & set(value)):
                self.instead(value["name"], "owner")
        elif names:
            for name, member in zip(names, value):
                self.gather(member, name)
        elif isinstance(value, (list, tuple)):
            for member in value:
                self.gather(member, key)

    def text(self, text: str) -> str:
        """A text without them: whole, or where they are in it as words."""
        if text in OURS or text in self._numbers:
            return self._numbers.get(text, text)
        if self._seen != len(self._numbers):  # names that are no single word; there are few of them
            self._seen = len(self._numbers)
            self._odd = sorted((name for name in self._numbers if not WORDS.fullmatch(name)), key=len, reverse=True)
        for name in self._odd:
            if name in text:
                text = text.replace(name, self._numbers[name])
        return WORDS.sub(lambda match: self._replace_word(match.group()), text)

    def _replace_word(self, word: str) -> str:
        if word.strip(".:()[],") in SENTENCES:
            return word
        if word in self._numbers:
            return self._numbers[word]
        bare = word.strip(".:()[]")
        if bare != word and bare in self._numbers:
            return word.replace(bare, self._numbers[bare])
        for between in ("+0x", "/", ":"):
            if between in word:
                parts = word.split(between)
                return between.join(self._numbers.get(part, part) for part in parts)
        return word


def remove_names(record: SnapshotRecord, known: Iterable[str]) -> SnapshotRecord:
    """The record without names. `known`: those of files and threads, which are in sentences."""
    nameless = NameNumbers(known)
    nameless.gather([record.head, record.outcomes, record.models])

    head, outcomes, models = (
        replace_names(value, nameless.text, int) for value in (record.head, dict(record.outcomes), dict(record.models))
    )
    infos = [info._replace(object=nameless.instead(info.object, "module"), build_id=None) for info in record.head.allocators]
    kept = {name: getattr(record.head, name) for name in ("version", "taken", "core_written", "kind")}
    return SnapshotRecord(head._replace(has_names=False, allocators=infos, **kept), outcomes, models, record.streams)
