"""Objects of Ruby as they lie in memory: slots, arrays, hashes, variables, and the names of symbols.

What all releases of layouts.py share: st.h, id_table.c, symbol.h, variable.c; include/ruby/internal/core.
"""

import re
from struct import unpack
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.paths import ALL_WORDS, LAST_BIT

TYPE_MASK = 0x1F
"""Of a slot's flags: RUBY_T_MASK; 0: it is free (RUBY_T_NONE)."""
OBJECT, CLASS, MODULE, STRING, ARRAY, HASH, STRUCT, DATA, SYMBOL, IMEMO = 1, 2, 3, 5, 7, 8, 9, 12, 0x14, 0x1A
STATIC_SYMBOL = 0x0C
DELETED = (1 << 64) - 1
"""The hash of an entry that st_delete() has left."""
LEAST_ID = 256
"""IDs below are operators: their own serial numbers (tLAST_OP_ID is 170)."""
IDS_AT_ONCE = 512
"""ID_ENTRY_UNIT: pairs (name, symbol) in each array of symbols->ids."""
MOST_WORDS = 1 << 22
MOST_ABOVE = 64
"""Classes from one to its last ancestor."""
SHAPE_WORDS, SHAPE_SHIFT, NO_SHAPE = 5, 32, 0xFFFFFFFF
"""Of rb_shape {edges, name, next place and capacity, kind and parent, ...}; of flags: the number of an object's shape."""
SHAPE_VARIABLE, SHAPE_TABLE = 1, 4
"""SHAPE_IVAR; SHAPE_OBJ_TOO_COMPLEX: a table has the variables."""
MOST_SHAPES, LEAST_SHAPES = 1 << 24, 12
MOST_VARIABLES = 1 << 14
DATA_HEAD_WORDS = 5
UTF8, ASCII_ONLY = 1, 0x7F
ENCODING_SHIFT = 22
MOST_TEXT_BYTES = 4096


class RubyHeapPage(NamedTuple):
    """Heap page of slots."""

    address: int
    first_slot: int
    slot_bytes: int
    slots: int


RubyRun = Tuple[int, int]
"""Address and number of values side by side."""


class RubyShape(NamedTuple):
    """Variables of objects that have the same ones in the same order."""

    places: int
    names: Dict[int, str]
    """By place."""
    in_table: bool
    """By name instead."""


NO_VARIABLES = RubyShape(0, {}, False)


class RubyTable(NamedTuple):
    """The entries of a hash, in their order."""

    address: int
    entry_bytes: int
    key_offset: int
    """The value follows the key."""
    bound: int
    """Entries up to here, deleted ones included."""
    length: int
    type: int
    """Of an st_table: its st_hash_type; 0: a table of up to eight entries (ar_table)."""


class RubyLayout(NamedTuple):
    """Offsets of one release, in words of a slot unless another unit is named."""

    page_bytes: int
    start_word: int
    """Of struct heap_page: where its slots begin."""
    undef: int
    singleton: int
    """The flag of classes that are made for one object."""
    most_embedded: int
    """A mask: values that an Array may have in its slot; of a Struct the same."""
    text_length: Optional[int]
    """Of a String that has its characters in its slot; None: in its flags."""
    text: int
    """Where these begin."""
    pairs: Optional[int]
    """Of a Hash of up to eight entries, in its slot; None: a block has them."""
    table: Optional[int]
    """Of a larger Hash: its st_table, in its slot; None: a block."""
    variables: int
    """Of an Object: the pointer to its variables."""
    has_shapes: bool
    """Shapes name variables; else a table of the class does, and an Object has their number."""
    class_variables: Optional[int]
    """Of a Class: the pointer to the values that its shape names; None: see Objects.extension()."""
    constants: int
    class_path: Optional[int]
    most_variables: Optional[int]
    """How many variables an object of the class had at most."""
    embeds_data: bool
    """What C code keeps may be in the slot, after its head."""
    has_transient_heap: bool
    frame_words: int
    """Of rb_control_frame_t {pc, sp, iseq, self, ep, ...}."""
    local_table: int
    """Bytes, of the body of an instruction sequence."""
    local_table_size: int


class RubyObjects:
    """Reads objects of one target."""

    def __init__(self, world: CensusTarget, layout: RubyLayout, heap_pages: Sequence[RubyHeapPage]) -> None:
        self.world, self.layout = world, layout
        self._pages: Dict[int, RubyHeapPage] = {page.address: page for page in heap_pages}
        self._names: Dict[int, Optional[str]] = {}
        self._variables: Dict[int, Dict[int, str]] = {}
        self._shapes: Dict[int, RubyShape] = {}
        self.identity_type = 0
        """The st_hash_type of hashes that compare by identity; 0: not known."""
        self.symbols: Sequence[int] = self._find_symbols()
        """Of symbols->ids: the arrays in it. Empty: not found."""
        self._shape_list, self._shape_count = self._find_shapes() if layout.has_shapes and self.symbols else (0, 0)

    def words(self, address: int, count: int) -> Sequence[int]:
        """Return so many words; empty if they cannot all be read."""
        if not 0 < count <= MOST_WORDS or not 0 < address < 1 << 63:
            return ()
        data = self.world.read(address, 8 * count)
        return unpack("<%dQ" % count, data) if len(data) == 8 * count else ()

    def is_slot(self, address: int) -> bool:
        """Return True if an object begins at the address, or once did."""
        page = self._pages.get(address & -self.layout.page_bytes)
        if page is None:
            return False
        place, rest = divmod(address - page.first_slot, page.slot_bytes)
        return not rest and 0 <= place < page.slots

    def slot(self, address: int) -> Sequence[int]:
        """Return the five words of an object in use; empty if there is none."""
        words = self.words(address, 5) if self.is_slot(address) else ()
        return words if words and words[0] & TYPE_MASK else ()

    def most_flags(self) -> int:
        """Return the largest possible first word of an object."""
        shapes = self._shape_count or (1 << SHAPE_SHIFT if self.layout.has_shapes else 1)
        return (shapes << SHAPE_SHIFT) - 1

    def type_of(self, address: int) -> int:
        """Return the ruby_value_type; 0 if there is no object."""
        words = self.slot(address)
        return words[0] & TYPE_MASK if words else 0

    def array(self, address: int, words: Sequence[int]) -> RubyRun:
        # struct RArray
        if words[0] & USER[1]:
            return address + 16, words[0] >> 15 & self.layout.most_embedded
        return words[4], words[2]

    def members(self, address: int, words: Sequence[int]) -> RubyRun:
        # struct RStruct
        embedded = words[0] >> 13 & self.layout.most_embedded
        return (address + 16, embedded) if embedded else (words[3], words[2])

    def variables(self, address: int, words: Sequence[int]) -> RubyRun:
        """Return the instance variables of an Object (struct RObject); none if a table has them."""
        embedded, at = bool(words[0] & USER[1]), self.layout.variables
        if not self.layout.has_shapes:
            return (address + 16, 3) if embedded else (words[at], words[2] & 0xFFFFFFFF)
        shape = self.shape(words)
        return address + 16 if embedded else words[at], 0 if shape.in_table else shape.places

    def variable_table(self, words: Sequence[int]) -> Optional[RubyTable]:
        """Return the table of an Object with more variables than a shape can name, by their IDs."""
        return self.st_table(words[self.layout.variables]) if self.layout.has_shapes and self.shape(words).in_table else None

    def shape(self, words: Sequence[int]) -> RubyShape:
        """Return a shape by the number in an object's flags: it and those above it each name one variable."""
        number = words[0] >> SHAPE_SHIFT
        if number not in self._shapes:
            self._shapes[number] = self._read_shape(number)
        return self._shapes[number]

    def _read_shape(self, number: int) -> RubyShape:
        names: Dict[int, str] = {}
        first: Optional[Sequence[int]] = None
        for _ in range(MOST_VARIABLES):
            words = self.words(self._shape_list + 8 * SHAPE_WORDS * number, SHAPE_WORDS) if number < self._shape_count else ()
            if not words:
                return NO_VARIABLES
            first, kind, name = first or words, words[3] & 0xFF, self.id_name(words[1])
            if kind == SHAPE_VARIABLE and name is not None and words[2] & 0xFFFFFFFF:
                names.setdefault((words[2] & 0xFFFFFFFF) - 1, name)
            number = words[3] >> 32
            if number == NO_SHAPE:
                break
        count = first[2] & 0xFFFFFFFF if first is not None else 0
        return RubyShape(count, names, first is not None and first[3] & 0xFF == SHAPE_TABLE) if count <= MOST_VARIABLES else NO_VARIABLES

    def bytes_of(self, words: Sequence[int], address: int) -> Tuple[int, int]:
        """Return (address, bytes) of a String's characters."""
        if words[0] & USER[1]:
            return words[3], words[2]
        at = self.layout.text_length
        return address + 8 * self.layout.text, words[at] if at is not None else words[0] >> 14 & 31

    def text(self, address: int) -> Optional[str]:
        """Return a String's characters if they are few and mean the same in every encoding, else None."""
        words = self.slot(address)
        if not words or words[0] & TYPE_MASK != STRING:
            return None
        place, size = self.bytes_of(words, address)
        if size > MOST_TEXT_BYTES:
            return None
        data = self.world.read(place, size) if size else b""
        if len(data) != size:
            return None
        if not data or max(data) <= ASCII_ONLY:
            return data.decode("ascii")
        try:
            return data.decode("utf-8") if words[0] >> ENCODING_SHIFT & 127 == UTF8 else None
        except UnicodeDecodeError:
            return None

    def table(self, address: int, words: Sequence[int]) -> Optional[RubyTable]:
        # struct RHash
        if not words:
            return None
        if words[0] & USER[3]:
            return self.st_table(self.table_address(address, words))
        bound, count, at = words[0] >> 20 & 15, words[0] >> 16 & 15, self.layout.pairs
        pairs = words[2] if at is None else address + 8 * at
        return RubyTable(pairs, 16, 0, bound, count, 0) if pairs and count <= bound <= 8 else None

    def table_address(self, address: int, words: Sequence[int]) -> int:
        return words[2] if self.layout.table is None else address + 8 * self.layout.table

    def data(self, address: int, words: Sequence[int]) -> int:
        """Return the address of what C code keeps in an object (struct RTypedData {type, flags, data}: TYPED_DATA_EMBEDDED), or 0."""
        if not words:
            return 0
        return address + 8 * DATA_HEAD_WORDS if self.layout.embeds_data and words[3] < 8 and words[3] & 2 else words[4]

    def st_table(self, address: int) -> Optional[RubyTable]:
        # st.c
        words = self.words(address, 7)
        if not words or words[0] & 0xFF > 40 or not words[2] <= words[5] <= 1 << (words[0] & 0xFF):
            return None
        return RubyTable(words[6], 24, 8, words[5], words[2], words[1])

    def entries(self, table: Optional[RubyTable]) -> Iterator[Tuple[int, int]]:
        """Yield (key, value) of the table."""
        step = table.entry_bytes // 8 if table is not None else 1
        words = self.words(table.address, table.bound * step) if table is not None else ()
        for at in range(0, len(words), step):
            key, value = words[at + step - 2 : at + step]
            if not (words[at] == DELETED if step == 3 else key == self.layout.undef):
                yield key, value

    def is_deleted(self, table: RubyTable, entry: int) -> bool:
        """Return whether the hash or the key says that the entry is deleted; its value stays."""
        words = self.words(table.address + entry * table.entry_bytes, 1)
        return not words or words[0] == (self.layout.undef if table.entry_bytes == 16 else DELETED)

    def position(self, table: RubyTable, entry: int) -> Optional[int]:
        """Return the number of entries before one; None if they cannot be read, or are too many."""
        step = table.entry_bytes // 8
        words = self.words(table.address, entry * step) if entry else ()
        if len(words) < entry * step:
            return None
        return sum(words[at] != (DELETED if step == 3 else self.layout.undef) for at in range(0, len(words), step))

    def id_table(self, address: int) -> Iterator[Tuple[int, int]]:
        """Yield (serial number of the ID, value) of a table of id_table.c."""
        words = self.words(address, 3)
        capacity, used = (words[0] & 0xFFFFFFFF, words[0] >> 32) if words else (0, 0)
        items = self.words(words[2], 2 * capacity) if words and used <= capacity <= MOST_WORDS else ()
        for at in range(0, len(items), 2):
            if items[at] & 0xFFFFFFFF:
                yield items[at] & 0xFFFFFFFF, items[at + 1]

    def name(self, serial: int) -> Optional[str]:
        if serial not in self._names:
            part, place = divmod(serial, IDS_AT_ONCE)
            here = self.slot(self.symbols[part]) if part < len(self.symbols) else ()
            names = self.array(self.symbols[part], here) if here and here[0] & TYPE_MASK == ARRAY else None
            word = self.words(names[0] + 16 * place, 1) if names is not None and 2 * place < names[1] else ()
            self._names[serial] = self.text(word[0]) if word else None
        return self._names[serial]

    def id_name(self, number: int) -> Optional[str]:
        return self.name(number if number < LEAST_ID else number >> 4)

    def symbol(self, value: int) -> Optional[str]:
        if value & 0xFF == STATIC_SYMBOL:
            return self.id_name(value >> 8)
        words = self.slot(value)
        return self.text(words[3]) if words and words[0] & TYPE_MASK == SYMBOL else None

    def real_class(self, words: Sequence[int]) -> int:
        """Return an object's class, skipping singleton classes and those of included modules (rb_obj_class)."""
        address = words[1]
        for _ in range(MOST_ABOVE):
            found = self.slot(address)
            if not found or (found[0] & TYPE_MASK == CLASS and not found[0] & self.layout.singleton):
                return address if found else 0
            address = found[2]
        return 0

    def class_path(self, class_: int) -> Optional[str]:
        """Return the name of a class, such as `App::Item` (variable.c: classpath); None if it never had a name."""
        at = self.layout.class_path
        if at is not None:
            path = next(iter(self.words(class_ + 8 * at, 1)), 0) if self.type_of(class_) in (CLASS, MODULE) else 0
        else:
            path = next((value for name, value in self.class_variables(class_) if name == "__classpath__"), 0)
        return self.text(path)

    def extension(self, address: int) -> Sequence[int]:
        """Return the words of a class's struct rb_classext_struct {variables' places, variables, methods, constants}, which is outside
        its slot or in it.
        """
        words = self.slot(address)
        if not words or words[0] & TYPE_MASK not in (CLASS, MODULE):
            return ()
        return self.words(words[3], 4) if self.layout.class_variables is None else self.words(address, self.layout.constants + 1)

    def variable_names(self, words: Sequence[int]) -> Dict[int, str]:
        """Return the names of an Object's variables by place."""
        if self.layout.has_shapes:
            return self.shape(words).names
        class_ = self.real_class(words)  # iv_index_tbl
        if class_ not in self._variables:
            extension = self.extension(class_)
            names: Dict[int, str] = {}
            for number, entry in self.entries(self.st_table(extension[0])) if extension else ():
                place, name = self.words(entry, 1), self.id_name(number)
                if place and name is not None:
                    names[place[0] & 0xFFFFFFFF] = name
            self._variables[class_] = names
        return self._variables[class_]

    def places_of_variables(self, classes: Iterable[int]) -> Iterator[int]:
        """Return the tables of classes that map variables to their places (iv_index_tbl), and their entries; up to 3.1."""
        for class_ in () if self.layout.has_shapes else classes:
            extension = self.extension(class_)
            table = self.st_table(extension[0]) if extension else None
            if table is not None:
                yield from (extension[0], table.address)
                yield from (entry for _, entry in self.entries(table))

    def most_variables(self, class_: int) -> Optional[int]:
        """Return the most variables that an object of a class has had (max_iv_count), or None."""
        at = self.layout.most_variables
        words = self.words(class_ + 8 * at, 1) if at is not None and self.type_of(class_) == CLASS else ()
        return words[0] & 0xFFFFFFFF if words else None

    def class_variables(self, class_: int) -> Iterator[Tuple[str, int]]:
        """Yield (name, value) of a class's or module's own variables: `@name`, `@@name`, and hidden ones without a sign."""
        extension, at = self.extension(class_), self.layout.class_variables
        shape = self.shape(extension) if extension and at is not None else None
        if at is not None and shape is not None and not shape.in_table:
            values = self.words(extension[at], shape.places)
            yield from ((shape.names[place], value) for place, value in enumerate(values) if place in shape.names)
            return
        for number, value in self.entries(self.st_table(extension[1 if at is None else at])) if extension else ():
            name = self.id_name(number)
            if name is not None:
                yield name, value

    def members_of(self, class_: int) -> Sequence[str]:
        for _ in range(MOST_ABOVE):
            values = dict(self.class_variables(class_))
            found = self.slot(class_)
            if "__members__" in values or not found:
                break
            class_ = found[2]
        else:
            return ()
        names = self.slot(values.get("__members__", 0))
        elements = self.array(values["__members__"], names) if names and names[0] & TYPE_MASK == ARRAY else None
        values_ = self.words(*elements) if elements is not None else ()
        return [self.symbol(value) or "" for value in values_]

    def constants(self, class_: int) -> Iterator[Tuple[str, int]]:
        """Yield (name, value) of constants defined in a class or module."""
        extension = self.extension(class_)
        for serial, entry in self.id_table(extension[self.layout.constants]) if extension else ():
            name, words = self.name(serial), self.words(entry, 2)
            if name is not None and words and words[1] != self.layout.undef:
                yield name, words[1]

    def data_words(self) -> Iterator[Tuple[int, Sequence[int]]]:
        """Yield (address, words) of the writable data of the interpreter's files, .bss included."""
        for module in self.world.modules():
            if "ruby" in module.file_name:
                for start, _, end in self.world.target.writable_segments(module):
                    data = self.world.read(start, end - start)
                    yield start, unpack("<%dQ" % (len(data) // 8), data[: len(data) & -8])

    def _find_symbols(self) -> Sequence[int]:
        # found by rb_symbols_t {last_id, str_sym, ids, dsymbol_fstr_hash}: a number, a table, an Array of Arrays, and a Hash
        for _, words in self.data_words():
            for at in range(len(words) - 3):
                last, table, ids, strings = words[at : at + 4]
                if not self.is_slot(ids) or not self.is_slot(strings) or not 0 < last < 1 << 32:
                    continue
                array = self.slot(ids)
                if not array or array[0] & TYPE_MASK != ARRAY or self.type_of(strings) != HASH or self.st_table(table) is None:
                    continue
                elements = self.array(ids, array)
                if elements[1] == last // IDS_AT_ONCE + 1:
                    by_identity = self.table(strings, self.slot(strings))
                    self.identity_type = by_identity.type if by_identity is not None else 0
                    return self.words(*elements)
        return ()

    def _find_shapes(self) -> Tuple[int, int]:
        # found by rb_shape_tree_t {shapes, the first of them, how many, ...}: the first is nobody's child. (0, 0): not found
        tried = set()
        for _, words in self.data_words():
            for word in words:
                if word % 8 or word in tried:
                    continue
                tried.add(word)
                tree = self.words(word, 3)
                if tree and tree[0] == tree[1] and tree[0] and LEAST_SHAPES <= tree[2] & 0xFFFFFFFF <= MOST_SHAPES:
                    first = self.words(tree[0], SHAPE_WORDS)
                    if first and not any(first[1:3]) and first[3] == NO_SHAPE << 32:
                        return tree[0], tree[2] & 0xFFFFFFFF
        return 0, 0


def object_class(objects: RubyObjects) -> Optional[int]:
    """Return the class Object, found by its constant of that name, which leads to itself."""
    seen = set()
    for _, words in objects.data_words():
        for word in words:
            if word not in seen and objects.is_slot(word):
                seen.add(word)
                if objects.type_of(word) == CLASS and ("Object", word) in objects.constants(word):
                    return word
    return None


def global_variables(objects: RubyObjects) -> List[Tuple[str, int]]:
    """Return (name, value) of global variables. Each entry of rb_global_tbl repeats the ID that is its key."""
    tried = set()
    for _, words in objects.data_words():
        for word in words:
            if word % 8 or word in tried or objects.is_slot(word):
                continue
            tried.add(word)
            variables = _read_global_variables(objects, word)
            getter = next((getter for name, _, getter in variables if name == "$stdout"), 0)
            values = []
            for name, data, how in variables:
                if objects.is_slot(data):
                    values.append((name, data))
                elif how == getter and objects.words(data, 1):
                    values.append((name, objects.words(data, 1)[0]))
            if variables:
                return values
    return []


def _read_global_variables(objects: RubyObjects, address: int) -> Sequence[Tuple[str, int, int]]:
    """Return name, data and getter of the variables in a table of struct rb_global_entry {variable, id}, struct rb_global_variable
    {counter, data, getter, ...}; empty if an entry has another shape.
    """
    variables = []
    for serial, entry in objects.id_table(address):
        words, name = objects.words(entry, 2), objects.name(serial)
        variable = objects.words(words[0], 3) if words else ()
        if not variable or serial not in (words[1] >> 4, words[1]) or name is None or not name.startswith("$"):
            return ()
        variables.append((name, variable[1], variable[2]))
    return variables


USER = [1 << (12 + number) for number in range(20)]
"""RUBY_FL_USER0 and the following: what they mean depends on the type."""
VERSION_NUMBERS = 3
LIBRARY = re.compile(r"^libruby[-.](?:so\.)?([0-9]{1,3})\.([0-9]{1,3})")
"""`libruby-3.1.so.3.1.2`, and `libruby.so.3.1` of who has configured it otherwise."""
RUBY_3_1 = RubyLayout(
    page_bytes=16 << 10, start_word=4, undef=0x34, singleton=USER[0], most_embedded=3, text_length=None, text=2, pairs=None,
    table=None, variables=3, has_shapes=False, class_variables=None, constants=3, class_path=None, most_variables=None,
    embeds_data=False, has_transient_heap=True, frame_words=8, local_table=152, local_table_size=240,
)  # fmt: skip
RUBY_3_3 = RubyLayout(
    page_bytes=64 << 10, start_word=4, undef=0x24, singleton=USER[0], most_embedded=127, text_length=2, text=3, pairs=4, table=3,
    variables=2, has_shapes=True, class_variables=4, constants=5, class_path=19, most_variables=18, embeds_data=True,
    has_transient_heap=False, frame_words=7, local_table=144, local_table_size=232,
)  # fmt: skip
RUBY_3_4 = RUBY_3_3._replace(start_word=5, singleton=USER[1])
LAYOUTS = {(3, 1): RUBY_3_1, (3, 3): RUBY_3_3, (3, 4): RUBY_3_4}


def read_ruby_release(world: CensusTarget) -> Optional[Tuple[int, int]]:
    """Return the release by ruby_api_version, which the interpreter exports, or by the name of its library; None if neither is known."""
    symbol = world.target.dynamic_symbol("ruby_api_version")
    data = world.read(symbol.address, 4 * VERSION_NUMBERS) if symbol is not None else b""
    if len(data) == 4 * VERSION_NUMBERS:
        return unpack("<3i", data)[:2]
    names = (LIBRARY.search(module.file_name) for module in world.modules())
    return next(((int(name[1]), int(name[2])) for name in names if name), None)


RELEASES = ", ".join("%d.%d" % release for release in sorted(LAYOUTS))


def find_ruby_layout(world: CensusTarget) -> Optional[RubyLayout]:
    """Return the layout of the target's interpreter, or None for another release."""
    known = read_ruby_release(world)
    return LAYOUTS.get(known) if known is not None else None


BLOCK_BYTES = 32 << 10
HEAD_BYTES = 16
"""Of a block {index, last_marked_index, objects, next_block}, and of a piece {magic, size, next, dummy, object}."""
MAGIC = 0xFEAB
MOST_BLOCKS = 1024
HEAP_WORDS = 9
"""struct transient_heap: using_blocks, marked_blocks, free_blocks, counts (2 words), promoted_objects, their counts, arena, arena_index."""


class TransientHeap(NamedTuple):
    """Transient heap: blocks and pieces."""

    blocks: Sequence[int]
    pieces: Sequence[Tuple[int, int]]
    """(address, bytes), by address."""
    free_bytes: int
    promoted: int
    """A list of objects that have left it, which keeps none of them."""


def find_transient_heap(objects: RubyObjects) -> Optional[TransientHeap]:
    """Find the transient heap by its account in the interpreter's data: all lists lead into the arena, and have as many blocks as it
    says."""
    for _, words in objects.data_words():
        for at in range(len(words) - HEAP_WORDS + 1):
            using, marked, free, _, total, promoted, _, arena, index = words[at : at + HEAP_WORDS]
            if not arena or arena % BLOCK_BYTES or not 0 < index & 0xFFFFFFFF <= MOST_BLOCKS:
                continue
            lists = [_list_transient_blocks(objects, first, arena) for first in (using, marked, free)]
            lengths = [len(blocks) for blocks in lists if blocks is not None]
            if len(lengths) == 3 and sum(lengths) == index & 0xFFFFFFFF and lengths[0] + lengths[1] == total & 0xFFFFFFFF:
                return _cut_transient_heap(objects, sorted([*(lists[0] or ()), *(lists[1] or ())]), sorted(lists[2] or ()), promoted)
    return None


def _list_transient_blocks(objects: RubyObjects, first: int, arena: int) -> Optional[List[int]]:
    blocks: List[int] = []
    while first:
        words = objects.words(first, 2)
        if not words or first % BLOCK_BYTES or not arena <= first < arena + MOST_BLOCKS * BLOCK_BYTES or len(blocks) == MOST_BLOCKS:
            return None
        blocks.append(first)
        first = words[1]
    return blocks


def _cut_transient_heap(objects: RubyObjects, used: Sequence[int], unused: Sequence[int], promoted: int) -> TransientHeap:
    pieces: List[Tuple[int, int]] = []
    free_bytes = len(unused) * (BLOCK_BYTES - HEAD_BYTES)
    for block in used:
        words = objects.words(block, BLOCK_BYTES // 8)
        end, at = min((words[0] & 0xFFFF) if words else 0, BLOCK_BYTES - HEAD_BYTES), 0
        while at < end:
            head = words[(HEAD_BYTES + at) // 8]
            size = head >> 16 & 0xFFFF
            if head & 0xFFFF != MAGIC or size < HEAD_BYTES or size % 8 or at + size > end:
                break
            pieces.append((block + HEAD_BYTES + at + HEAD_BYTES, size - HEAD_BYTES))
            at += size
        free_bytes += BLOCK_BYTES - HEAD_BYTES - at
    return TransientHeap(sorted([*used, *unused]), pieces, free_bytes, promoted)


HEAD = 0b11
"""Words of a slot that lead to nothing of its own: flags and class."""
OWNING = {
    **dict.fromkeys(("Class", "Module", "Float", "internal class", "node of syntax", "text"), 0),
    "String": 0b11000,
    "Symbol": 0b1000,
    "Array": 0b11000,
    "Hash": 0b1100,
    "Data": 0b10000,
    "internal (imemo)": 0b1100,
}
"""By what a block is, where not each word after the head counts. What a class has is a start of its own: see RubyNamer.starts. After
a text lies what was there before."""
TABLE_WORDS = (3, 6)
"""Of an st_table: its bins and its entries."""
EMBEDDED_LENGTH, BOUND = 15, 20
"""Bits of flags: of an Array in its slot (RARRAY_EMBED_LEN_SHIFT), of a Hash (RHASH_AR_TABLE_BOUND_SHIFT)."""
IMEMO_KINDS, SEQUENCE, CALL_CACHE = 15 << 12, 7, 12
"""Of flags (internal/imemo.h: imemo_iseq, imemo_callcache): code, which is no place of data, and methods that classes have."""
MOST_PAIRS = 15
VALUES = 2
"""Words before the values of an Array, Struct or Object in its slot."""


def owning_words(layout: RubyLayout) -> Mapping[str, int]:
    """Return masks of owning words by the names of slots, except slots of by_flags()."""
    owning = dict(OWNING)
    if layout.table is not None:
        owning["Hash"] = 0b100 | sum(1 << layout.table + word for word in TABLE_WORDS)
    if layout.embeds_data:
        owning["Data"] = ALL_WORDS & ~0b1111
    return owning


def by_flags(layout: RubyLayout) -> Iterator[Tuple[int, int, int]]:
    """Yield (flags, mask of these, mask of a number among them) of objects whose flags give the used part of their slot."""
    yield ARRAY | USER[1], TYPE_MASK | USER[1], layout.most_embedded << EMBEDDED_LENGTH
    yield STRING, TYPE_MASK | USER[1], 0
    if layout.pairs is not None:
        yield HASH, TYPE_MASK | USER[3], MOST_PAIRS << BOUND


def mask_ruby_flags(layout: RubyLayout, key: int) -> Optional[int]:
    """Return the mask of slots that by_flags() names, and of the interpreter's own; the characters of a String in its slot are no
    pointers."""
    kind = key & TYPE_MASK
    if kind == IMEMO and (key & IMEMO_KINDS) >> 12 in (SEQUENCE, CALL_CACHE):
        return 0
    if kind == ARRAY:
        return _make_run(VALUES, key >> EMBEDDED_LENGTH)
    if kind == HASH and layout.pairs is not None:
        return 0b100 | _make_run(layout.pairs, 2 * (key >> BOUND))
    return 0 if kind == STRING else None


def mask_ruby_class(objects: RubyObjects, kind: int, class_: int) -> Optional[int]:
    """Return the mask of objects of a type and class."""
    real = objects.real_class((0, class_))
    if kind == DATA:
        return owning_words(objects.layout)["Data"]
    if kind == OBJECT and objects.layout.most_variables is not None:
        most = objects.most_variables(real)
        return _make_run(VALUES, max(most, 1)) if most is not None else None
    members = len(objects.members_of(real)) if kind == STRUCT else 0
    return _make_run(VALUES, max(members, VALUES)) if members else None


def _make_run(first: int, count: int) -> int:
    """Make the run of so many words from this one on."""
    words = ((1 << min(count, LAST_BIT)) - 1) << first
    return words & ALL_WORDS
