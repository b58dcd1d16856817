"""Holders of ArrayBuffers: from each buffer against the direction of references to what has a name, such as a closure's variable.

A reference is any word of a proven object that is a pointer to the object and not a weak one. Which objects are live is not known.

Names of JavaScript objects: strings, classes, variables of closures and properties, as far as constants and objects prove them.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.v8.script_heap import SMI_SHIFT, WORD, ScriptHeap, make_word_table

MOST_LETTERS, MOST_PARTS = 80, 16
MOST_BACK_POINTERS = 1024
CONS, SLICED, THIN = 1, 3, 5
"""Representations of strings that lead to others (v8dbg_ConsStringTag and so on are the same in each release)."""
LOCAL_HEADERS = (2, 3)
"""Words of a context before its variables; with a word for an extension, one more."""


class ScriptNames:
    """Reader of names in one heap: every word may be hostile, and what is not proven is None."""

    def __init__(self, heap: ScriptHeap) -> None:
        self._heap, self._constants = heap, heap.constants
        self._offsets, self._numbers = heap.constants.offsets, heap.constants.numbers

    def read_text(self, tagged: int) -> Optional[str]:
        """Return a string's first 80 letters, printable."""
        parts: List[str] = []
        left = [tagged]
        for _ in range(MOST_PARTS):
            if not left or sum(map(len, parts)) >= MOST_LETTERS:
                break
            at = left.pop()
            number = self._heap.object_type(at)
            if number is None or number >= self._numbers["FirstNonstringType"]:
                return None
            form = number & self._numbers["StringRepresentationMask"]
            if form == CONS:
                left += reversed([self._read_field(at, "string_first"), self._read_field(at, "string_second")])
            elif form == THIN:
                left.append(self._read_field(at, "string_first"))
            elif form:
                return None
            else:
                parts.append(self._read_letters(at, number))
        text = "".join(parts)
        shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[: MOST_LETTERS + 1])
        return shown if len(shown) <= MOST_LETTERS else shown[: MOST_LETTERS - 3] + "..."

    def show_key(self, word: int) -> Optional[str]:
        """Return a key: a quoted string, or a number that is a Smi."""
        if not word & 1:
            number = word >> SMI_SHIFT
            return str(number - ((number & 1 << 31) << 1)) if not word & 0xFFFFFFFF else None
        text = self.read_text(word)
        return None if text is None else '"%s"' % text

    def name_class(self, map_: int) -> Optional[str]:
        """Return the name of the function that made objects of a map."""
        maker, visited = map_, 0
        while visited < MOST_BACK_POINTERS and self._heap.object_type(maker) == self._constants.types["Map"]:
            maker, visited = self._read_field(maker, "map_maker"), visited + 1
        return self.name_function(maker)

    def name_function(self, function: int) -> Optional[str]:
        """Return a function's name; None if it is no function, or has none."""
        number = self._heap.object_type(function)
        if number is None or not self._constants.is_function(number):
            return None
        name = self._read_field(self._read_field(function, "function_shared"), "shared_name")
        if self._heap.object_type(name) == self._constants.types["ScopeInfo"]:
            # after the variables there is the function's name, and nothing else there is a string
            words = self._heap.read_object(name)
            texts = [self.read_text(word) for word in words[1 + self._count_first(words) :]] if words else []
            return next((text for text in texts if text), None)
        return self.read_text(name) or None

    def name_script(self, function: int) -> Optional[str]:
        """Return the last part of the name of the file that a function is in."""
        script = self._read_field(self._read_field(function, "function_shared"), "shared_script")
        name = self.read_text(self._read_field(script, "script_name"))
        return name.rpartition("/")[2] or None if name else None

    def name_variable(self, context: Sequence[int], slot: int) -> Optional[str]:
        """Return the name of the variable at a word of a context, by the context's ScopeInfo."""
        if len(context) < 3 or self._heap.object_type(context[2]) != self._constants.types["ScopeInfo"]:
            return None
        words = self._heap.read_object(context[2])
        count_at = 1 + self._numbers["scopeinfo_idx_ncontextlocals"]
        if len(words) <= count_at or words[count_at] & 0xFFFFFFFF:
            return None
        count, length = words[count_at] >> SMI_SHIFT, context[1] >> SMI_SHIFT
        first = 1 + self._numbers["scopeinfo_idx_first_vars"]
        place = slot - 2 - (length - count)
        if length - count not in LOCAL_HEADERS or not 0 <= place < count or first + count > len(words):
            return None
        # names that are all strings prove where they begin
        is_string = [self._heap.object_type(word) or 0 for word in words[first : first + count]]
        return self.read_text(words[first + place]) if all(0 <= number < 128 for number in is_string) else None

    def name_property(self, object_: Sequence[int], slot: int) -> Optional[str]:
        """Return the name of the property at a word of an object, or beyond the object's end: in its PropertyArray."""
        map_ = self._heap.read_object(object_[0])
        if len(map_) * WORD <= self._offsets["map_descriptors"]:
            return None
        begin, bits = (map_[at // WORD] >> 8 * (at % WORD) for at in (self._offsets["map_begin"], self._offsets["map_bits"]))
        begin, bits = begin & 0xFF, bits & 0xFFFFFFFF
        mask, shift = (self._numbers["bit_field3_number_of_own_descriptors_" + part] for part in ("mask", "shift"))
        words = self._heap.read_object(map_[self._offsets["map_descriptors"] // WORD])
        first, step = self._offsets["descriptors_begin"] // WORD, self._numbers["prop_desc_size"]
        if not begin or slot < begin:
            return None
        for at in range(first, min(len(words) - step + 1, first + step * ((bits & mask) >> shift)), step):
            details = words[at + self._numbers["prop_desc_details"]] >> SMI_SHIFT
            is_field = not details & self._numbers["prop_location_mask"]
            if is_field and (details & self._numbers["prop_index_mask"]) >> self._numbers["prop_index_shift"] == slot - begin:
                return self.read_text(words[at])
        return None

    def _count_first(self, words: Sequence[int]) -> int:
        """Return how many words of a ScopeInfo are before and of its variables."""
        at = 1 + self._numbers["scopeinfo_idx_ncontextlocals"]
        count = words[at] >> SMI_SHIFT if at < len(words) else 0
        return self._numbers["scopeinfo_idx_first_vars"] + 2 * min(count, len(words))

    def _read_letters(self, tagged: int, number: int) -> str:
        length = self._read_field(tagged, "string_length") & 0xFFFFFFFF
        letter, code = (1, "latin-1") if number & self._numbers["OneByteStringTag"] else (2, "utf-16-le")
        address = tagged - 1 + self._offsets["string_bytes"]
        return self._heap.target.read_prefix(address, letter * min(length, MOST_LETTERS + 1)).decode(code, "replace")

    def _read_field(self, tagged: int, field: str) -> int:
        """Return the word at a field of an object; 0 if it cannot be read."""
        words = self._heap.read_words(tagged - 1 + self._offsets[field], 1) if tagged & 3 == 1 else ()
        return words[0] if words else 0


MOST_LEVELS = 9
MOST_BUFFERS = 1 << 17
MOST_HOLDERS = 1 << 18
MOST_REFERENCES = 16
"""To one object that are followed."""
ELEMENTS, PROPERTIES, TABLE = 2, 1, 3
"""Words of an object with its elements and properties; of a Map and a Set with its table."""
NO_HOLDERS = ("WeakCell", "FeedbackVector", "DescriptorArray", "Map", "ScopeInfo")
"""Types that know an object, and are no reason why it is there."""


class HolderLink(NamedTuple):
    """Reference to an object."""

    holder: int
    """Tagged address of the object that has it."""
    slot: int
    type_number: int


HolderPath = Tuple[str, str]
"""Path from what has a name to a buffer: without keys, `cache (Map) in shop.js`, and with keys, `cache.get("key17")`."""


class BufferHolders:
    """Finder of the paths to buffers of one heap."""

    def __init__(self, heap: ScriptHeap) -> None:
        self._heap, self._constants, self._names = heap, heap.constants, ScriptNames(heap)
        self._links: Dict[int, List[HolderLink]] = {}
        self._scripts: Dict[int, str] = {}
        self._roots: Dict[Tuple[int, int], str] = {}
        self._ignored = {heap.constants.types[name] for name in NO_HOLDERS}

    def find_paths(self, buffers: Sequence[int]) -> Dict[int, HolderPath]:
        """Return the shortest path to each of these buffers, by their tagged addresses, from what has a name."""
        paths: Dict[int, HolderPath] = {}
        level = set(buffers[:MOST_BUFFERS])
        visited: Set[int] = set(level)
        named: Dict[int, HolderLink] = {}
        for _ in range(MOST_LEVELS):
            links_of = self._find_links(level)
            level = set()
            for target, links in links_of.items():
                self._links[target] = links
                for link in links:
                    if self._name_root(link) is not None:
                        named.setdefault(target, link)
                    elif link.holder not in visited and len(visited) < MOST_HOLDERS:
                        visited.add(link.holder)
                        level.add(link.holder)
            if not level:
                break
        above = self._spread_names(named)
        contexts = {link.holder for link in named.values() if self._constants.is_context(link.type_number)}
        self._find_scripts(contexts)
        for buffer in buffers[:MOST_BUFFERS]:
            path = self._describe_path(buffer, above)
            if path is not None:
                paths[buffer] = path
        return paths

    def _find_links(self, targets: Set[int], ignores: bool = True) -> Dict[int, List[HolderLink]]:
        """Return references to objects by one pass through the heap."""
        links_to: Dict[int, List[HolderLink]] = {}
        table = make_word_table((target, 1) for target in targets)
        for page, words in self._heap.page_words():
            for at in self._heap.walker.find_members(words, table):
                word = words[at]
                place = self._heap.locate_slot(page, words, at)
                if place is None or not place[2] or place[1] == word:
                    continue
                number, holder, slot = place
                links = links_to.setdefault(word, [])
                if ignores and (number in self._ignored or len(links) >= MOST_REFERENCES or self._heap.is_data(number)):
                    continue
                links.append(HolderLink(holder, slot, number))
        return links_to

    def _name_root(self, link: HolderLink) -> Optional[str]:
        """Return the name of what holds by this reference: a variable of a closure or module, or a property of the global object."""
        key = (link.holder, link.slot)
        if key not in self._roots:
            name = None
            if self._constants.is_context(link.type_number):
                name = self._names.name_variable(self._heap.read_object(link.holder), link.slot)
            elif link.type_number == self._constants.types["PropertyCell"]:
                texts = (self._names.read_text(word) for word in self._heap.read_object(link.holder)[1:])
                text = next((text for text in texts if text), None)
                name = "globalThis." + text if text is not None else None
            self._roots[key] = name or ""
        return self._roots[key] or None

    def _spread_names(self, named: Dict[int, HolderLink]) -> Dict[int, HolderLink]:
        """Return for each object that a name leads to the reference on the shortest path."""
        below: Dict[int, List[Tuple[int, HolderLink]]] = {}
        for target, links in self._links.items():
            for link in links:
                below.setdefault(link.holder, []).append((target, link))
        above, level = dict(named), list(named)
        while level:
            following = []
            for holder in level:
                for target, link in below.get(holder, ()):
                    if target not in above:
                        above[target] = link
                        following.append(target)
            level = following
        return above

    def _find_scripts(self, contexts: Set[int]) -> None:
        """Find the file of each context, by a function that was made in it."""
        at = self._constants.offsets["function_context"] // WORD
        for context, links in self._find_links(contexts, ignores=False).items():
            functions = [link.holder for link in links if self._constants.is_function(link.type_number) and link.slot == at]
            scripts = (self._names.name_script(function) for function in functions[:8])
            self._scripts[context] = next((script for script in scripts if script), "")

    def _describe_path(self, buffer: int, above: Dict[int, HolderLink]) -> Optional[HolderPath]:
        """Return the path to a buffer in words."""
        steps: List[Tuple[int, HolderLink]] = []
        at = buffer
        while at in above and len(steps) <= 2 * MOST_LEVELS:
            link = above[at]
            steps.append((at, link))
            if self._name_root(link) is not None:
                break
            at = link.holder
        if not steps or self._name_root(steps[-1][1]) is None:
            return None
        steps.reverse()
        group = path = self._name_root(steps[0][1]) or ""
        first = steps[0][0]
        for number, (_, link) in enumerate(steps[1:]):
            owner = steps[number][1] if number else None
            group_step, path_step = self._show_step(link, owner)
            group, path = group + group_step, path + path_step
        words = self._heap.read_object(first)
        kind = self._names.name_class(words[0]) if words else None
        script = self._scripts.get(steps[0][1].holder)
        about = "".join([" (%s)" % kind if kind else "", " in %s" % script if script else ""])
        return group + about, path

    def _show_step(self, link: HolderLink, above: Optional[HolderLink]) -> Tuple[str, str]:
        """Return how a holder leads on: without and with the key. `above`: the reference to the holder."""
        types, words = self._constants.types, self._heap.read_object(link.holder)
        if not words or link.type_number in [types[name] for name in ("JSTypedArray", "JSDataView", "JSMap", "JSSet", "JSWeakMap")]:
            return "", ""
        owner = self._heap.read_object(above.holder) if above is not None else ()
        kind = above.type_number if above is not None else None
        if link.type_number == types["PropertyArray"] and owner and above is not None and above.slot == PROPERTIES:
            name = self._names.name_property(owner, len(owner) + link.slot - 2)
            return (".%s" % name,) * 2 if name else ("", "")
        if len(words) > 2 and self._constants.name_type(link.type_number) in (None, "FixedArray") and not words[1] & 0xFFFFFFFF:
            key = self._names.show_key(words[link.slot - 1]) if link.slot > 2 and link.slot <= len(words) else None
            if kind in (types["JSMap"], types["JSWeakMap"]):
                return ".get()", ".get(%s)" % (key or "")
            if kind == types["JSSet"]:
                return "[]", "[]"
            if above is not None and above.slot == PROPERTIES:
                return ("[]", "[%s]" % key) if key else ("", "")
            if link.type_number == types["FixedArray"]:
                return "[]", "[%d]" % (link.slot - 2)
            return "[]", "[%s]" % (key or "")
        if link.slot > ELEMENTS:
            name = self._names.name_property(words, link.slot)
            if name:
                return (".%s" % name,) * 2
        return "", ""
