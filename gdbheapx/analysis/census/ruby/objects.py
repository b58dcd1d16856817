"""Objects of Ruby 3.1 as they lie in memory: slots, arrays, hashes, variables, and the names of symbols.

Layouts: gc.c (heap_page), internal/class.h, internal/hash.h, st.h, id_table.c, symbol.h, variable.c; include/ruby/internal/core.
3.2 and later lay objects out by shapes: what is looked for here is not found there.
"""

from struct import unpack
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import World

PAGE_BYTES = 16 << 10
TYPE_MASK = 0x1F
"""Of a slot's flags: RUBY_T_MASK; 0: it is free (RUBY_T_NONE)."""
OBJECT, CLASS, MODULE, STRING, ARRAY, HASH, STRUCT, DATA, SYMBOL, IMEMO = 1, 2, 3, 5, 7, 8, 9, 12, 0x14, 0x1A
USER = [1 << (12 + number) for number in range(20)]
"""RUBY_FL_USER0 and the following: what they mean depends on the type."""
NIL, UNDEF, STATIC_SYMBOL = 0x08, 0x34, 0x0C
DELETED = (1 << 64) - 1
"""The hash of an entry that st_delete() has left."""
LEAST_ID = 256
"""IDs below are operators: their own serial numbers (tLAST_OP_ID is 170)."""
IDS_AT_ONCE = 512
"""ID_ENTRY_UNIT: pairs (name, symbol) in each array of symbols->ids."""
MOST_WORDS = 1 << 22
MOST_ABOVE = 64
"""Classes from one to its last ancestor."""
UTF8, ASCII_ONLY = 1, 0x7F
ENCODING_SHIFT = 22
MOST_TEXT_BYTES = 4096


class Page(NamedTuple):
    """One page of slots."""

    address: int
    first_slot: int
    slot_bytes: int
    slots: int


class Elements(NamedTuple):
    """Where a run of values lies."""

    address: int
    length: int


class Table(NamedTuple):
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


def is_deleted(first: int, step: int) -> bool:
    """By the first word of an entry that has so many."""
    return first == (DELETED if step == 3 else UNDEF)


class Objects:
    """Reads objects of one target."""

    def __init__(self, world: World, heap_pages: Sequence[Page]) -> None:
        self.world = world
        self._pages: Dict[int, Page] = {page.address: page for page in heap_pages}
        self._names: Dict[int, Optional[str]] = {}
        self._variables: Dict[int, Dict[int, str]] = {}
        self.identity_type = 0
        """The st_hash_type of hashes that compare by identity; 0: not known."""
        self.symbols: Sequence[int] = self._find_symbols()
        """Of symbols->ids: the arrays in it. Empty: not found."""

    def words(self, address: int, count: int) -> Sequence[int]:
        """So many words; empty if they cannot all be read."""
        if not 0 < count <= MOST_WORDS or not 0 < address < 1 << 63:
            return ()
        data = self.world.read(address, 8 * count)
        return unpack("<%dQ" % count, data) if len(data) == 8 * count else ()

    def is_slot(self, address: int) -> bool:
        """An object begins there, or did."""
        page = self._pages.get(address & -PAGE_BYTES)
        if page is None:
            return False
        place, rest = divmod(address - page.first_slot, page.slot_bytes)
        return not rest and 0 <= place < page.slots

    def slot(self, address: int) -> Sequence[int]:
        """The five words of an object in use; empty: there is none."""
        words = self.words(address, 5) if self.is_slot(address) else ()
        return words if words and words[0] & TYPE_MASK else ()

    def type_of(self, address: int) -> int:
        """ruby_value_type; 0 where no object is."""
        words = self.slot(address)
        return words[0] & TYPE_MASK if words else 0

    def array(self, address: int, words: Sequence[int]) -> Elements:
        """Of an Array (struct RArray)."""
        if words[0] & USER[1]:
            return Elements(address + 16, words[0] >> 15 & 3)
        return Elements(words[4], words[2])

    def members(self, address: int, words: Sequence[int]) -> Elements:
        """Of a Struct (struct RStruct)."""
        embedded = words[0] >> 13 & 3
        return Elements(address + 16, embedded) if embedded else Elements(words[3], words[2])

    def variables(self, address: int, words: Sequence[int]) -> Elements:
        """Instance variables of an Object (struct RObject)."""
        if words[0] & USER[1]:
            return Elements(address + 16, 3)
        return Elements(words[3], words[2] & 0xFFFFFFFF)

    def bytes_of(self, words: Sequence[int], address: int) -> Tuple[int, int]:
        """(address, bytes) of a String's characters."""
        if words[0] & USER[1]:
            return words[3], words[2]
        return address + 16, words[0] >> 14 & 31

    def text(self, address: int) -> Optional[str]:
        """A String's characters, where they are short and mean the same wherever they are written."""
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

    def table(self, words: Sequence[int]) -> Optional[Table]:
        """Of a Hash (struct RHash)."""
        if not words:
            return None
        if words[0] & USER[3]:
            return self.st_table(words[2])  # union with ar_table
        bound, count = words[0] >> 20 & 15, words[0] >> 16 & 15
        return Table(words[2], 16, 0, bound, count, 0) if words[2] and count <= bound <= 8 else None

    def st_table(self, address: int) -> Optional[Table]:
        """One of st.c."""
        words = self.words(address, 7)
        if not words or words[0] & 0xFF > 40 or not words[2] <= words[5] <= 1 << (words[0] & 0xFF):
            return None
        return Table(words[6], 24, 8, words[5], words[2], words[1])

    def entries(self, table: Optional[Table]) -> Iterator[Tuple[int, int]]:
        """(key, value)."""
        step = table.entry_bytes // 8 if table is not None else 1
        words = self.words(table.address, table.bound * step) if table is not None else ()
        for at in range(0, len(words), step):
            if not is_deleted(words[at], step):
                yield words[at + step - 2], words[at + step - 1]

    def position(self, table: Table, entry: int) -> Optional[int]:
        """How many entries come before it; None where these cannot be read, or are too many, and of one that was deleted."""
        step = table.entry_bytes // 8
        words = self.words(table.address, (entry + 1) * step)
        if not words or is_deleted(words[entry * step], step):
            return None
        return sum(not is_deleted(words[at], step) for at in range(0, entry * step, step))

    def has_entry(self, table: Table, entry: int) -> bool:
        """It was not deleted: if it was, its key and value are still there."""
        words = self.words(table.address + entry * table.entry_bytes, 1)
        return bool(words) and not is_deleted(words[0], table.entry_bytes // 8)

    def id_table(self, address: int) -> Iterator[Tuple[int, int]]:
        """(serial number of the ID, value) of a table of id_table.c."""
        words = self.words(address, 3)
        capacity, used = (words[0] & 0xFFFFFFFF, words[0] >> 32) if words else (0, 0)
        items = self.words(words[2], 2 * capacity) if words and used <= capacity <= MOST_WORDS else ()
        for at in range(0, len(items), 2):
            if items[at] & 0xFFFFFFFF:
                yield items[at] & 0xFFFFFFFF, items[at + 1]

    def name(self, serial: int) -> Optional[str]:
        """Of an ID by its serial number."""
        if serial not in self._names:
            part, place = divmod(serial, IDS_AT_ONCE)
            here = self.slot(self.symbols[part]) if part < len(self.symbols) else ()
            names = self.array(self.symbols[part], here) if here and here[0] & TYPE_MASK == ARRAY else None
            word = self.words(names.address + 16 * place, 1) if names is not None and 2 * place < names.length else ()
            self._names[serial] = self.text(word[0]) if word else None
        return self._names[serial]

    def id_name(self, number: int) -> Optional[str]:
        """Of an ID."""
        return self.name(number if number < LEAST_ID else number >> 4)

    def symbol(self, value: int) -> Optional[str]:
        """Of a Symbol, static or in a slot."""
        if value & 0xFF == STATIC_SYMBOL:
            return self.id_name(value >> 8)
        words = self.slot(value)
        return self.text(words[3]) if words and words[0] & TYPE_MASK == SYMBOL else None

    def real_class(self, words: Sequence[int]) -> int:
        """An object's class without those made for it alone, and for included modules (rb_obj_class)."""
        address = words[1]
        for _ in range(MOST_ABOVE):
            found = self.slot(address)
            if not found or (found[0] & TYPE_MASK == CLASS and not found[0] & USER[0]):
                return address if found else 0
            address = found[2]
        return 0

    def class_path(self, class_: int) -> Optional[str]:
        """Its name, such as `App::Item` (variable.c: classpath); None of one that never had any."""
        path = next((value for name, value in self.class_variables(class_) if name == "__classpath__"), 0)
        return self.text(path)

    def extension(self, address: int) -> Sequence[int]:
        """What a class has beside its slot (struct rb_classext_struct): variables' places, variables, methods, constants."""
        words = self.slot(address)
        return self.words(words[3], 4) if words and words[0] & TYPE_MASK in (CLASS, MODULE) else ()

    def variable_names(self, address: int, words: Sequence[int]) -> Dict[int, str]:
        """Names of an Object's variables by place (iv_index_tbl)."""
        class_ = self.real_class(words)
        if class_ not in self._variables:
            extension = self.extension(class_)
            names: Dict[int, str] = {}
            for number, entry in self.entries(self.st_table(extension[0])) if extension else ():
                place, name = self.words(entry, 1), self.id_name(number)
                if place and name is not None:
                    names[place[0] & 0xFFFFFFFF] = name
            self._variables[class_] = names
        return self._variables[class_]

    def class_variables(self, class_: int) -> Iterator[Tuple[str, int]]:
        """(name, value) of a class's or module's own variables: `@name`, `@@name`, and hidden ones without a sign."""
        extension = self.extension(class_)
        for number, value in self.entries(self.st_table(extension[1])) if extension else ():
            name = self.id_name(number)
            if name is not None:
                yield name, value

    def member_names(self, words: Sequence[int]) -> Sequence[str]:
        """Of a Struct: its class or one above has them."""
        class_ = self.real_class(words)
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
        values_ = self.words(elements.address, elements.length) if elements is not None else ()
        return [self.symbol(value) or "" for value in values_]

    def constants(self, class_: int) -> Iterator[Tuple[str, int]]:
        """(name, value) of those defined in a class or module."""
        extension = self.extension(class_)
        for serial, entry in self.id_table(extension[3]) if extension and extension[3] else ():
            name, words = self.name(serial), self.words(entry, 2)
            if name is not None and words and words[1] != UNDEF:
                yield name, words[1]

    def data_words(self) -> Iterator[Tuple[int, Sequence[int]]]:
        """(address, words) of the writable data of the interpreter's files, .bss included."""
        for module in self.world.modules():
            if "ruby" in module.file_name:
                for start, _, end in self.world.target.writable_segments(module):
                    data = self.world.read(start, end - start)
                    yield start, unpack("<%dQ" % (len(data) // 8), data[: len(data) & -8])

    def _find_symbols(self) -> Sequence[int]:
        """By rb_symbols_t {last_id, str_sym, ids, dsymbol_fstr_hash}: a number, a table, an Array of Arrays, and a Hash."""
        for _, words in self.data_words():
            for at in range(len(words) - 3):
                last, table, ids, strings = words[at : at + 4]
                if not self.is_slot(ids) or not self.is_slot(strings) or not 0 < last < 1 << 32:
                    continue
                array = self.slot(ids)
                if not array or array[0] & TYPE_MASK != ARRAY or self.type_of(strings) != HASH or self.st_table(table) is None:
                    continue
                elements = self.array(ids, array)
                if elements.length == last // IDS_AT_ONCE + 1:
                    by_identity = self.table(self.slot(strings))
                    self.identity_type = by_identity.type if by_identity is not None else 0
                    return self.words(elements.address, elements.length)
        return ()


def object_class(objects: Objects) -> Optional[int]:
    """The class Object, by its constant of that name, which is itself."""
    seen = set()
    for _, words in objects.data_words():
        for word in words:
            if word not in seen and objects.is_slot(word):
                seen.add(word)
                if objects.type_of(word) == CLASS and ("Object", word) in objects.constants(word):
                    return word
    return None


def global_variables(objects: Objects) -> List[Tuple[str, int]]:
    """(name, value): rb_global_tbl is the table whose entries each say the ID that they stand under."""
    tried = set()
    for _, words in objects.data_words():
        for word in words:
            if word % 8 or word in tried or objects.is_slot(word):
                continue
            tried.add(word)
            found = list(_variables(objects, word))
            if found and all(found):
                return _values(objects, [variable for variable in found if variable is not None])
    return []


class _Variable(NamedTuple):
    name: str
    data: int
    getter: int


def _variables(objects: Objects, address: int) -> Iterator[Optional[_Variable]]:
    """struct rb_global_entry {variable, id}, struct rb_global_variable {counter, data, getter, ...}; None: something else."""
    for serial, entry in objects.id_table(address):
        words, name = objects.words(entry, 2), objects.name(serial)
        variable = objects.words(words[0], 3) if words else ()
        if not variable or serial not in (words[1] >> 4, words[1]) or name is None or not name.startswith("$"):
            yield None
            return
        yield _Variable(name, variable[1], variable[2])


def _values(objects: Objects, variables: Sequence[_Variable]) -> List[Tuple[str, int]]:
    """Of the program's variables `data` is the value. Of those that C code has, it is where the value stands if they are read as $stdout
    is (rb_gvar_var_getter); other functions take it for something else."""
    getter = next((variable.getter for variable in variables if variable.name == "$stdout"), 0)
    values = []
    for name, data, how in variables:
        if objects.is_slot(data):
            values.append((name, data))
        elif how == getter and objects.words(data, 1):
            values.append((name, objects.words(data, 1)[0]))
    return values
