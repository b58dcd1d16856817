"""Holders of ArrayBuffers: from each buffer against the direction of references to what has a name, such as a closure's variable.

A reference is any word of a proven object that is a pointer to the object and not a weak one. Which objects are live is not known.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.runtimes.v8.script_heap import WORD, ScriptHeap, make_word_table
from gdbheapx.addons.runtimes.v8.script_names import ScriptNames

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
