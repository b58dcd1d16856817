"""Contents of blocks: texts that many have, and contents that several blocks have alike."""

import random
from collections import Counter
from itertools import islice
from typing import Annotated, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import find, registry
from gdbheapx.analysis.census.find import BEYOND, Census, LabelSet
from gdbheapx.analysis.census.images import Images
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE, CensusTarget, Signature
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.paths import Namer
from gdbheapx.common.columns import BYTES, IF_ANY, TEXT, Column
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.hints import hint_again, hint_command
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import NO_ANSWER, NOT_FOUND, NOT_IN_SNAPSHOT, OUT_OF_MEMORY, USAGE
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.blocks import graph_queries as kernel
from gdbheapx.kernel.blocks.graph import Graph, NativeSum
from gdbheapx.kernel.blocks.signatures import STRING

MOST_BYTES = 60
"""Of a text."""
LEAST_BYTES = 4
MOST_TEXTS = 3
"""Of a block."""
MOST_SHOWN_WORDS = 16
"""Of a block that are looked through."""
INLINE_BYTES = 16
"""Of libstdc++'s std::string."""
MOST_LOOKED = 200_000
"""Blocks whose sizes say what a typical one of their class is."""
BLANKS = bytes(0x20 if value in b"\t\n\r" else value for value in range(256))
"""For bytes.translate: what parts the lines of a text is shown as a blank."""


class TextBlock(NamedTuple):
    """A block whose texts are asked for."""

    address: TargetAddress
    size_bytes: int
    """Of one that represents others, of those on average."""
    signature: Optional[str]


def read_texts(target: Target, address: int, size_bytes: int) -> List[str]:
    """Return the texts of a block: its own, or those that its first words lead to."""
    word = target.word_bytes
    own = decode_sample(target.read_prefix(address, MOST_BYTES))  # it ends with a zero, wherever the block does
    data = target.read_prefix(address, min(size_bytes, MOST_SHOWN_WORDS * word))
    found = [own] if own else []
    for place, value in enumerate(target.words_in(data)[:MOST_SHOWN_WORDS] if not own else ()):
        at, length = address + place * word, data[(place + 1) * word : (place + 2) * word]
        is_inline = value == at + 2 * word and int.from_bytes(length, target.byte_order) < INLINE_BYTES
        if is_inline or value - address >= size_bytes or value < address:
            found.append(decode_sample(target.read_prefix(value, INLINE_BYTES if is_inline else MOST_BYTES)))
    return list(dict.fromkeys(one for one in found if one))[:MOST_TEXTS]


class SampleText(NamedTuple):
    """Block that represents others."""

    address: TargetAddress
    signature: str
    """As its row has it; empty: not named."""
    texts: Sequence[str]
    """Of the block itself, and of what it points to: cut at MOST_BYTES, as the program has them."""
    contents: Optional[str] = None
    """What a runtime says that it has: `dict of 3 entries`."""


def list_census_examples(census: Census, limit: int, told: Optional[LabelSet] = None) -> List[TextBlock]:
    """Return example blocks of the first rows, and of contents that several blocks have. The labels give typical blocks if a row's sizes
    differ.
    """
    typical = _find_typical_blocks(told) if told is not None and any(row.size_bytes is None for row in census.rows[:limit]) else {}
    rows = []
    for row in census.rows[:limit]:
        address, size_bytes = row.sample, row.bytes // max(1, row.blocks)
        if row.signature is not None and row.size_bytes is None:
            address, size_bytes = typical.get(Signature(row.signature, row.module, row.sure), (address, size_bytes))
        if address is not None:
            rows.append(TextBlock(address, size_bytes, row.signature))
    largest = census.copies.largest if census.copies is not None else ()
    return rows + [TextBlock(same.sample, same.size_bytes, same.signature) for same in largest]


def _find_typical_blocks(told: LabelSet) -> Dict[Optional[Signature], Tuple[TargetAddress, int]]:
    ids = [number for number in range(0, len(told.labels), 1 + len(told.labels) // MOST_LOOKED) if told.labels[number]]
    sums: Dict[Optional[Signature], Counter[int]] = {}
    blocks: Dict[Tuple[Optional[Signature], int], TargetAddress] = {}
    for number, (address, size_bytes) in zip(ids, told.reach.graph.blocks(ids)):
        name = told.names[told.labels[number] - 1]
        sums.setdefault(name, Counter())[size_bytes] += size_bytes
        blocks.setdefault((name, size_bytes), TargetAddress(address))
    most = {name: sizes.most_common(1)[0][0] for name, sizes in sums.items()}
    return {name: (blocks[name, size_bytes], size_bytes) for name, size_bytes in most.items()}


def find_sample_texts(
    session: Session, examples: Iterable[TextBlock], world: Optional[CensusTarget], graph: Optional[Graph]
) -> List[SampleText]:
    """Return the texts of sample blocks. Without `graph` a block is as large as its example says; HeapxError if memory cannot be read."""
    target = session.target
    if world is None or not target.can_read_on:
        raise HeapxError("no text can be read: a snapshot has no memory, and a process that was not copied runs on", code=NO_ANSWER)
    namers = [namer for namer in (recogniser.namer(world) for recogniser in registry.find_present(world)) if namer is not None]
    samples = []
    for one in dict.fromkeys(examples):
        place = graph.find(one.address) if graph is not None else None
        if graph is not None and place is not None:
            one = one._replace(size_bytes=graph.blocks([place[0]])[0][1] or one.size_bytes)
        texts: List[str] = []
        content: Optional[str] = None
        for namer in namers:
            content = namer.contents(*one)
            told = dict.fromkeys(text[:MOST_BYTES] for text in namer.texts(*one) if text.strip("\0"))
            texts = list(islice(told, MOST_TEXTS))
            if texts or content is not None:
                break
        else:
            texts = read_texts(target, one.address, one.size_bytes)
        if texts or content is not None:
            samples.append(SampleText(one.address, one.signature or "", texts, content))
    return samples


def decode_sample(data: bytes, least_bytes: int = LEAST_BYTES) -> str:
    """Return the text that bytes begin with, up to a zero and cut if it is long; empty if they are no text."""
    begin, end, _ = data[:MOST_BYTES].partition(b"\0")
    is_cut = not end and len(begin) == MOST_BYTES
    try:
        made = begin.translate(BLANKS).decode("utf-8")
    except UnicodeDecodeError as error:
        if not is_cut or error.start < MOST_BYTES - 3 or error.reason != "unexpected end of data":  # within the last letter
            return ""
        made = begin[: error.start].translate(BLANKS).decode("utf-8")
    return made if len(begin) >= least_bytes and made.isprintable() and made.strip() and (end or is_cut) else ""


MOST_BLOCKS, MOST_NAMED = 100_000, 20_000
"""That are looked at, by an offset and by what a language calls a field: of more, some by chance."""
SAMPLED, SAMPLED_BYTES = 256, 1 << 20
"""Of which the field is chosen: so many, or less of large ones."""
LEAST_SHARE = 4
"""A field counts if one of so many of these has a text there."""
INLINE_STEP = 4
"""Bytes: an array of characters may begin anywhere, and after numbers of four bytes mostly does so here."""
LEAST_INLINE = 3
"""Characters of a text that is in the block itself."""
MOST_TOLD = 8
MOST_WORDS = 2048
"""Of a block that are looked through."""
TAKE_A_CORE = "take a core and ask that: gcore PID"
Texts = Dict[str, str]
"""Of one block, by field: `+0x18`, or as the language calls it."""


class TextRow(NamedTuple):
    """Objects with one text."""

    text: Annotated[Optional[str], Column("text", TEXT)]
    """Cut at MOST_BYTES; None: they have none there."""
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    share_percent: Annotated[float, Column("%", "percent", goes=1)]
    """Of the bytes that were looked at."""
    sample: Annotated[TargetAddress, Column("example", TEXT, goes=2)]


class FieldRow(NamedTuple):
    """A place where objects of the class have texts."""

    field: Annotated[str, Column("field", TEXT)]
    objects: Annotated[int, Column("with a text")]
    texts: Annotated[int, Column("texts")]
    """That differ."""


class FoundTexts(NamedTuple):
    """The answer."""

    rows: Sequence[TextRow]
    """Those with most bytes first."""
    field: str
    """Whose texts these are."""
    names: Sequence[str]
    """What the objects are called in the census."""
    blocks: int
    bytes: int
    looked_blocks: int
    """Of them; the rows count these."""
    fields: Sequence[FieldRow]
    """All that a sample of them has."""
    sampled_blocks: int


def by_text(session: Session, like: Optional[str], wanted: str, world: Optional[CensusTarget]) -> FoundTexts:
    """Group objects by text. `like`: the name of the objects; `wanted`: a field, a text that one has, or empty: the field whose texts
    separate most groups. HeapxError if there is no such object or text, or memory has changed.
    """
    if world is None:
        next_step = "ask the process or its core: %s" % hint_again()
        raise HeapxError("no text can be read: a snapshot has no memory", next_step, code=NO_ANSWER)
    if like is None:
        next_step = "such as: %s" % hint_command("census --like Task --by-text")
        raise HeapxError("--by-text groups objects of a class: it needs --like", next_step, code=USAGE)
    told = find.take_census(session, world, contents=False, owning=False).told
    if not session.target.can_read_on or told is None:
        raise HeapxError("no text can be read: the process was not copied, and runs on", TAKE_A_CORE, code=NO_ANSWER)
    session.budget.progress.stage = "reading texts"
    objects, ids = _Objects(session.target, world, told), _find_block_ids(told, like)
    if not ids:
        raise HeapxError("no class has %s in its name" % ascii(like), "they are listed by: %s" % hint_command("census"), code=NOT_FOUND)
    total = sum(size for _, size in told.reach.graph.blocks(ids))
    most = max(1, min(SAMPLED, SAMPLED_BYTES * len(ids) // max(1, total)))
    sampled = [objects.texts(block) for block in _iterate_blocks(told, _sample_ids(ids, most))]
    fields = _list_fields(sampled)
    field = _find_field(fields, sampled, wanted)
    if field is None:
        seen = ", ".join(row.field for row in fields[:MOST_TOLD])
        next_step = "fields with texts: %s" % seen if seen else "their first %d words reference no text" % MOST_WORDS
        what = "no field of these objects is called %s, or has such a text" % ascii(wanted) if wanted else "these objects have no texts"
        raise HeapxError(what, next_step, code=NOT_FOUND)
    chosen = _sample_ids(ids, MOST_BLOCKS if field.startswith("+") else MOST_NAMED)
    counts: Dict[Optional[str], List[int]] = {}
    names = set()
    for number, block in enumerate(_iterate_blocks(told, chosen)):
        row = counts.setdefault(objects.text(block, field), [0, 0, block.address])
        row[0] += 1
        row[1] += block.size_bytes
        names.add(block.signature or "")
        if not number % 1024:
            heap_graph.check_time(session)
    heap_graph.check_time(session)
    whole = sum(row[1] for row in counts.values())
    rows = [TextRow(text, row[0], row[1], round(100.0 * row[1] / whole, 1), TargetAddress(row[2])) for text, row in counts.items()]
    rows.sort(key=lambda row: (-row.bytes, row.text or ""))
    return FoundTexts(rows, field, sorted(names), len(ids), total, len(chosen), fields, len(sampled))


def _find_block_ids(labels: find.LabelSet, like: str) -> List[int]:
    """Return blocks of the classes with this text in their name: of exactly that class if there is one; and of classes rather than of
    places, which have the name of their holder.
    """
    named = {label: name for label, name in enumerate(labels.names, 1) if name is not None and find.has_in_name(name.name, like)}
    exact = {label for label, name in named.items() if name.name.lower() == like.lower()}
    wanted = exact or {label for label, name in named.items() if name.sure != PLACE} or set(named)
    return [number for number, label in enumerate(labels.labels) if label in wanted]


def _sample_ids(ids: Sequence[int], most: int) -> Sequence[int]:
    return ids if len(ids) <= most else sorted(random.Random(len(ids)).sample(ids, most))


def _iterate_blocks(labels: find.LabelSet, ids: Sequence[int]) -> Iterator[TextBlock]:
    for number, (address, size) in zip(ids, labels.reach.graph.blocks(ids)):
        name = labels.name_block(number)
        yield TextBlock(TargetAddress(address), size, name.name if name is not None else "")


def _list_fields(sampled: Sequence[Texts]) -> List[FieldRow]:
    counts: Dict[str, Counter[str]] = {}
    for texts in sampled:
        for field, text in texts.items():
            counts.setdefault(field, Counter())[text] += 1
    groups = {field: sum(number > 1 for number in texts.values()) if len(texts) > 1 else -1 for field, texts in counts.items()}
    rows = [FieldRow(field, sum(texts.values()), len(texts)) for field, texts in counts.items()]
    return sorted(rows, key=lambda row: (LEAST_SHARE * row.objects < len(sampled), -groups[row.field], -row.objects))


def _find_field(fields: Sequence[FieldRow], sampled: Sequence[Texts], wanted: str) -> Optional[str]:
    """Return the field that is meant, or None if there is none."""
    names = [row.field for row in fields]
    if not wanted:
        return names[0] if names else None
    if wanted.startswith("+"):
        try:
            return "+0x%x" % int(wanted[1:], 0)
        except ValueError:
            return None
    if wanted in names:
        return wanted
    return next((name for name in names if any(wanted in texts.get(name, "") for texts in sampled)), None)


class _Objects:
    """Reads texts of objects."""

    def __init__(self, target: Target, world: CensusTarget, labels: find.LabelSet) -> None:
        self._target, self._images, self._labels = target, world.once(Images), labels
        namers = (recogniser.namer(world) for recogniser in registry.find_present(world))
        self._namers: List[Namer] = [namer for namer in namers if namer is not None]

    def texts(self, block: TextBlock) -> Texts:
        return self._read_named_texts(block) or dict(self._by_offset(block))

    def text(self, block: TextBlock, field: str) -> Optional[str]:
        if not field.startswith("+"):
            return self._read_named_texts(block).get(field)
        offset = int(field[1:], 16)
        data = self._target.read_prefix(block.address + offset, min(MOST_BYTES, max(block.size_bytes - offset, 0)))
        return self._read_text_at(block, offset, data, 1) or None

    def _read_named_texts(self, block: TextBlock) -> Texts:
        for namer in self._namers:
            told = {name: text[:MOST_BYTES] for name, text in islice(namer.named_texts(*block), MOST_WORDS)}
            if told:
                return told
        return {}

    def _by_offset(self, block: TextBlock) -> Iterable[Tuple[str, str]]:
        word = self._target.word_bytes
        data = self._target.read_prefix(block.address, min(block.size_bytes, MOST_WORDS * word))
        after = 0
        for offset in range(0, len(data), INLINE_STEP):
            before = data[max(offset - LEAST_INLINE, 0) : offset].translate(BLANKS)
            is_rest = len(before) == LEAST_INLINE and all(0x20 <= byte < 0x7F for byte in before)  # of a text that began elsewhere
            text = self._read_text_at(block, offset, data[offset:], MOST_BYTES + 1 if is_rest else LEAST_INLINE) if offset >= after else ""
            if text:
                yield "+0x%x" % offset, text
                is_inline = data[offset : offset + MOST_BYTES].translate(BLANKS).startswith(text.encode())
                after = offset + (len(text.encode()) if is_inline else 0)

    def _read_text_at(self, block: TextBlock, offset: int, data: bytes, least: int) -> str:
        """Return the text at the offset, or the one that the word there leads to, a std::string's own characters too; empty if there is
        none.
        """
        word = self._target.word_bytes
        words = () if offset % word else self._target.words_in(data[: min(2 * word, len(data) // word * word)])
        if not words or self._images.mapping_at(words[0]) is None:
            return decode_sample(data, least)
        at, pointer = block.address + offset, words[0]
        if len(words) > 1 and pointer == at + 2 * word and words[1] < INLINE_BYTES:
            return decode_sample(self._target.read_prefix(pointer, INLINE_BYTES), 1)
        if block.address <= pointer < block.address + block.size_bytes:
            return ""
        place = self._labels.reach.graph.find(pointer)
        if place is not None and not place[1] and place[0] < self._labels.reach.numbers.blocks:
            name = self._labels.name_block(place[0])
            if name is not None and name.sure in (EXACT, SHAPE) and name != BEYOND[STRING]:
                return ""  # the letters of a magic number are no text
        return decode_sample(self._target.read_prefix(pointer, MOST_BYTES), 1)


NOT_NAMED = (None, "", "")
MOST_CONTENTS = 1 << 16
"""That are listed one by one: those with most to spare."""


class CopyRow(NamedTuple):
    """Blocks with one content."""

    signature: Annotated[Optional[str], Column("content", TEXT)]
    """Of the first one; None: nothing but its size is known."""
    module: Annotated[str, Column("module", TEXT, goes=2)]
    size_bytes: Annotated[int, Column("size", BYTES, goes=1)]
    """Of each: usable bytes."""
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    spare_bytes: Annotated[int, Column("would save", BYTES)]
    """All but one of them."""
    sample: Annotated[TargetAddress, Column("example", TEXT, goes=3)]


class CopyClass(NamedTuple):
    """Copies whose first block has one signature."""

    signature: Annotated[Optional[str], Column("type", TEXT)]
    module: Annotated[str, Column("module", TEXT, shown=IF_ANY, goes=2)]
    contents: Annotated[int, Column("contents")]
    """That differ."""
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    spare_bytes: Annotated[int, Column("would save", BYTES)]


class CopySearch(NamedTuple):
    """The answer."""

    rows: Sequence[CopyRow]
    """At most MOST_CONTENTS, those with most to spare first."""
    classes: Sequence[CopyClass]
    contents: int
    """That several blocks have: four or more blocks, or 64 KiB of them."""
    blocks: int
    bytes: int
    spare_bytes: int
    """If each content were there once."""
    zeros: NativeSum
    """Blocks that have nothing but zeros; some may never have been written to."""
    unlike_blocks: int
    """Left out: numbers made of their contents are the same, the contents are not, or could not be read once more."""
    used_blocks: int
    used_bytes: int


def find_copies(session: Session, like: Optional[str], world: Optional[CensusTarget]) -> Tuple[CopySearch, find.CensusLook]:
    """Find blocks with equal contents. `like`: only rows and classes that have this in their name. HeapxError if contents cannot be
    compared.
    """
    if world is None:
        next_step = "ask the process or its core: %s" % hint_again()
        raise HeapxError("a snapshot has no contents to compare", next_step, code=NOT_IN_SNAPSHOT)
    lacking = heap_graph.check_fit(session, find.CENSUS_BYTES + kernel.COPIES_BYTES)
    if lacking is not None:
        what = make_sentence("comparing contents takes about %s of memory, and this process may use %s", *map(SentenceSize, lacking))
        raise HeapxError(what, "run it where there is more memory", code=OUT_OF_MEMORY)
    looked = find.take_census(session, world, owning=False, beyond=True)
    labels = looked.told
    if not session.target.can_read_on or labels is None or looked.signer is None:
        raise HeapxError("contents cannot be compared: the process was not copied, and runs on", TAKE_A_CORE, code=NO_ANSWER)
    session.budget.progress.stage = "comparing contents"
    compared = kernel.compare_contents(looked.signer, labels.reach.graph, MOST_CONTENTS)
    heap_graph.check_time(session)
    rows: List[CopyRow] = []
    for (first, blocks), (address, size) in zip(compared.largest, labels.reach.graph.blocks([first for first, _ in compared.largest])):
        signature, module, _ = labels.name_block(first) or NOT_NAMED
        if find.has_in_name(signature, like):
            rows.append(CopyRow(signature, module, size, blocks, blocks * size, (blocks - 1) * size, TargetAddress(address)))
    sums: Dict[Tuple[Optional[str], str], CopyClass] = {}
    for label, tallied in enumerate(compared.by_label):
        signature, module, _ = (labels.names[label - 1] if label else None) or NOT_NAMED
        if tallied.contents and find.has_in_name(signature, like):
            before = sums.get((signature, module), CopyClass(signature, module, 0, 0, 0, 0))
            sums[signature, module] = CopyClass(signature, module, *map(sum, zip(before[2:], tallied)))
    classes = sorted(sums.values(), key=lambda row: (-row.spare_bytes, row.signature or "", row.module))
    zeros, used = NativeSum(compared.zero_blocks, compared.zero_bytes), (looked.census.blocks, looked.census.bytes)
    return CopySearch(rows, classes, *compared.all, zeros, compared.unlike_blocks, *used), looked
