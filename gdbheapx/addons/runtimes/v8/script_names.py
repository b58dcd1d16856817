"""Names of JavaScript objects: strings, classes, variables of closures and properties, as far as constants and objects prove them."""

from typing import List, Optional, Sequence

from gdbheapx.addons.runtimes.v8.script_heap import SMI_SHIFT, WORD, ScriptHeap

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
