"""A service in Python whose objects are held in all the ways there are, and that says itself whether a path leads to an object.

It names 1,000 of its objects by id(), and then answers lines of JSON [id, path] with `true`, `false` or `unknown`.
"""

import json
from collections import Counter
from typing import Any, List, NamedTuple, Sequence, Tuple

from gdbheapx.analysis.reachability.paths import NamedGraph
from tests.support.processes import Process, Stage

SHOP = """
import collections, dataclasses, functools, weakref
_cache = {}
class Item:
    __slots__ = ("name", "tags", "__private")
    def __init__(self, number):
        self.name, self.tags, self.__private = "item %d" % number, ["t%d" % number, (number, str(number))], {"p": [number]}
class Basket:
    registry = {}
    memo = {"all": [["memo", number] for number in map(str, range(40))]}
    def __init__(self, number):
        self.owner = "user-%d" % number
        self.items = [Item(number * 10 + place) for place in range(4)]
        self.extra = {number + 1000: ["extra %d" % number], (number, "b"): {"deep": ["d%d" % number]}, b"k%d" % number: ["bytes"]}
        if number % 3 == 0:
            self.late = {"late": [number]}
        if number % 5 == 0:
            self.__dict__["not-a-name"] = ["odd"]
        Basket.registry["user-%d" % number] = self
    class Inner:
        table = [["inner %d" % number] for number in range(30)]
    @staticmethod
    def fixed(some={"default": ["x"]}): return some
    @classmethod
    def of_class(cls, *, key=("kw", ["only"])): return key
    @property
    def total(self, seen=["property default"]): return seen
@dataclasses.dataclass
class Point:
    x: list
    y: dict
class Table(dict):
    pass
class Many(list):
    pass
class Text(str):
    pass
class Number(int):
    pass
class Pair(collections.namedtuple("Pair", "left right")):
    __slots__ = ()
class Key:
    def __init__(self, number): self.number = number
class Failed(Exception):
    pass
def failed(number):
    try:
        raise Failed("failed", ["argument %d" % number])
    except Failed as error:
        kept = error
    kept.more = ["more"]
    return kept
for number in range(120):
    _cache["u:%d" % number] = Basket(number)
points = {"p%d" % number: Point([number, ["x"]], {"y": [number]}) for number in range(60)}
table = Table(a=["subclass"], b={"c": ["d"]}); table.attribute = ["of a dict"]
many = Many([["m%d" % number] for number in range(50)]); many.attribute = ["of a list"]
text = Text("text"); text.attribute = ["of a text"]
number_ = Number(77777777777); number_.attribute = ["of a number"]
pairs = [Pair(["left %d" % number], {"right": ["r"]}) for number in range(40)]
by_key = {Key(number): ["by key %d" % number] for number in range(30)}
long_keys = {"k" * 60 + str(number): ["long %d" % number] for number in range(20)}
odd_keys = {'"\\\\\\n\\x01\\u20ac\\U0001f600': ["odd"], 1.5: ["float"], None: ["none"], True: ["true"], -12345678901234567890: ["big"], "": ["empty"]}
queue = collections.deque([["q%d" % number] for number in range(300)])
for _ in range(70): queue.popleft()
small_set, big_set = {("s", 1), ("s", 2)}, {("b%d" % number, number) for number in range(200)}
frozen = frozenset(("f%d" % number, number) for number in range(50))
ordered = collections.OrderedDict(("o%d" % number, ["ordered %d" % number]) for number in range(30))
default = collections.defaultdict(lambda some=["in a lambda"]: some); default["x"].append("y"); default["z"] = {"z": ["zz"]}
chain = collections.ChainMap({"one": ["1"]}, {"two": ["2"]}); counter = collections.Counter({("c", number): number for number in range(9)})
gone = {number: ["gone %d" % number] for number in range(100)}
for number in range(0, 100, 2): del gone[number]
errors = [failed(number) for number in range(10)]
nested = [[[[["n", number]], {"in": [number]}]] for number in range(30)]
weak = weakref.WeakValueDictionary(); weak["basket"] = _cache["u:1"]
"""
HANDLERS = """
import functools, types, threading
from shop import Basket, _cache
class Session:
    registry = {}
    def __init__(self, number): self.number, self.data, self.handler = number, ["session %d" % number], self.handle
    def handle(self): return self.data
for number in range(50): Session.registry["s%d" % number] = Session(number)
def make(number):
    rows = ["rows %d" % number]
    more = {"more": [number]}
    def handle(request, seen={"seen": ["default"]}, *, flag=["keyword"]):
        return rows, more
    handle.attribute = ["of a function"]
    return handle
handlers = [make(number) for number in range(30)]
@functools.lru_cache(maxsize=None)
def lookup(key, other=None): return ["found", key]
for number in range(40): lookup("u:%d" % number)
lookup("a", "b"); lookup(7)
@functools.lru_cache(maxsize=30)
def bounded(key): return {"bounded": [key]}
for number in range(50): bounded("b:%d" % number)
partials = [functools.partial(make, ["partial %d" % number], key=["kw"]) for number in range(20)]
def generate(number):
    rows = [["generated", number]]
    captured = ["captured %d" % number]
    def inner(): return captured
    for row in rows:
        yield inner
generators = [generate(number) for number in range(30)]
for one in generators: next(one)
async def wait(number):
    rows = ["awaited %d" % number]
    await pause()
@types.coroutine
def pause():
    yield ["paused"]
waiting = [wait(number) for number in range(20)]
for one in waiting: one.send(None)
methods = [session.handle for session in Session.registry.values()]
properties = Basket.total
local = threading.local(); local.x = ["thread local"]
namespace = types.SimpleNamespace(a=["simple"], b={"c": ["d"]})
proxy = types.MappingProxyType({"proxied": ["p"]})
module = types.ModuleType("made"); module.inside = ["made module"]
exec("made = ['executed']; class_made = type('Made', (), {'table': ['of a made class']})", module.__dict__)
slices = [slice(["start %d" % number], None) for number in range(5)]
iterators = [iter([["iterated %d" % number]]) for number in range(5)]
meta = type("Meta", (type,), {"of_meta": ["of a metaclass"]})
classes = [meta("Class%d" % number, (), {"own": ["own %d" % number], "__slots__": ("s",)}) for number in range(5)]
"""
MAIN = '''
import ast, ctypes, gc, json, random, re, sys, types, weakref
sys.path.insert(0, ".")
import logging, email, decimal, enum, asyncio
import shop
import app.handlers
class Here:
    pass
_state = Here(); _state.table = {"main": [["in main", number] for number in range(30)]}
def _chosen():
    """Ids of objects that modules lead to, by what holds them; not through weak references, frames that run, or tables of all types."""
    seen, waiting, own = set(), [], []
    names = [name for name in sys.modules if name.split(".")[0] in ("shop", "app", "__main__")]
    skipped = (types.ModuleType, weakref.ref, types.FrameType, types.BuiltinFunctionType, types.GetSetDescriptorType,
               types.WrapperDescriptorType, types.MethodDescriptorType, types.MemberDescriptorType)
    for name in names:
        waiting += [(value, name) for value in vars(sys.modules[name]).values()]
    found = []
    for value, name in waiting:
        if id(value) in seen or isinstance(value, skipped):
            continue
        seen.add(id(value))
        if isinstance(value, type):
            if value.__module__.split(".")[0] in ("shop", "app", "__main__"):
                waiting += [(one, name) for key, one in value.__dict__.items() if not key.startswith("__")]
                found.append(value)
            continue
        found.append(value)
        if value is not vars(sys.modules[name]):
            skip = [value.__globals__] if isinstance(value, types.FunctionType) else []
            skip += [value.__builtins__] if hasattr(value, "__builtins__") else []
            skip += [type(value)]
            referents = [one for one in gc.get_referents(value) if not any(one is other for other in skip)]
            waiting += [(one, name) for one in referents]
    found = [value for value in found if value is not seen and value is not waiting and value is not found]
    return [[id(value), type(value).__name__] for value in random.Random(SEED).sample(found, min(1000, len(found)))]
class Raw(int):
    """An address of which nothing is known."""
def mapped(address):
    with open("/proc/self/maps") as maps:
        ranges = [[int(word, 16) for word in line.split()[0].split("-")] for line in maps if " r" in line]
    return any(low <= address < high - 8 for low, high in ranges)
def subclasses(some=object, seen=None):
    seen = set() if seen is None else seen
    for one in type.__subclasses__(some):
        if id(one) not in seen:
            seen.add(id(one))
            subclasses(one, seen)
    return seen | {id(object)}
def word(address):
    if not mapped(address):
        raise ValueError("not mapped")
    return ctypes.c_size_t.from_address(address).value
def at(address):
    if address % 8 or word(address + 8) not in subclasses():
        raise ValueError("no object")
    return ctypes.cast(address, ctypes.py_object).value
def deref(some, offset):
    return Raw(word((int(some) if type(some) is Raw else id(some)) + offset))
TOKEN = re.compile(r"""
    \\.<(?P<offset>[+-]0x[0-9a-f]+)> | \\.<key\\ (?P<key>(?:"(?:[^"\\\\]|\\\\.)*"|[^>"])*)> | \\.<(?P<special>cache|state|mapping|annotations|cell\\ \\w+)>
  | \\.__closure__\\["(?P<cell>[^"]*)"\\]
  | \\.(?P<name>\\w+)(?P<call>\\(\\))?
  | \\[<(?P<of>[^>]*)\\ object>\\]
  | \\[(?P<item>(?:b?"(?:[^"\\\\]|\\\\.)*"|[^\\]"])*)\\]
  | \\{<(?P<elements>[^>]*)\\ object>\\} | \\{(?P<element>(?:b?"(?:[^"\\\\]|\\\\.)*"|[^}"])*)\\}
""", re.X)
def same(key, text):
    if "\\u2026" in text and isinstance(key, str):
        return key.startswith(ast.literal_eval(text.replace("\\u2026", "")))
    value = ast.literal_eval(text)
    return type(value) is type(key) and value == key
def results(found):
    links = [one for one in found if type(one).__name__ == "_lru_list_elem"]
    return found + [at(deref(one, 48)) for one in links]
def step_locals(some):
    return (some.cr_frame if hasattr(some, "cr_frame") else some.gi_frame if hasattr(some, "gi_frame") else some).f_locals
def step(some, match):
    got = match.groupdict()
    if got["offset"]:
        return [deref(some, int(got["offset"], 16))]
    if type(some) is Raw:
        some = at(some)
    if got["special"] == "cache":
        return [one for one in gc.get_referents(some) if type(one) is dict and one is not some.__dict__]
    if got["special"] == "mapping":
        return gc.get_referents(some)
    if got["special"] == "annotations":
        return [deref(some, 112)]
    if got["special"] == "state":
        return [deref(some, 24 if sys.version_info >= (3, 15) else 32)]
    if got["special"]:
        names = {"coroutine": "cr_frame", "generator": "gi_frame"}
        held = gc.get_referents(some) + gc.get_referents(getattr(some, names.get(type(some).__name__, ""), None))
        return [one for one in held if type(one) is types.CellType and one.cell_contents is step_locals(some)[got["special"][5:]]]
    if got["cell"]:
        return [some.__closure__[some.__code__.co_freevars.index(got["cell"])].cell_contents]
    if got["name"] == "__dict__" and isinstance(some, type):
        return [some.__dict__, *(one for one in gc.get_referents(some) if isinstance(one, dict))]
    if got["name"]:
        return [getattr(some, got["name"])() if got["call"] else getattr(some, got["name"])]
    if got["of"] is not None:
        return results([value for key, value in some.items() if got["of"] in (type(key).__name__, "unknown")])
    if got["item"] is not None:
        if isinstance(some, dict) or isinstance(some, types.MappingProxyType):
            found = [value for key, value in some.items() if same(key, got["item"])]
            return results(found)
        return [some[ast.literal_eval(got["item"])]]
    if got["elements"] is not None:
        return [one for one in some if type(one).__name__ == got["elements"]]
    if got["element"] is not None:
        return [one for one in some if same(one, got["element"])]
    text = got["key"]
    if isinstance(some, type):
        return [sys.intern(ast.literal_eval(text))]
    return [key for key in some if (type(key).__name__ + " object" == text if text.endswith(" object") else same(key, text))]
def tried(some, match, of):
    try:
        return step(some, match)
    except Exception:
        if of == 1:
            raise
        return []
def lead(path):
    begun = re.match(r"coroutine ([^(]*)\\(\\): (\\w+)", path)
    if begun:
        some = [one for one in gc.get_objects() if type(one) is types.CoroutineType and one.__name__ == begun[1].split(".")[-1]]
        return rest([one.cr_frame.f_locals[begun[2]] for one in some if begun[2] in one.cr_frame.f_locals], path, begun.end())
    head = next((one for one in sorted(sys.modules, key=len, reverse=True) if path == one or path.startswith((one + ".", one + "["))), None)
    if head is None:
        return None
    return rest([sys.modules[head]], path, len(head))
def rest(found, path, place):
    while place < len(path):
        match = TOKEN.match(path, place)
        if not match:
            return None
        found = [one for some in found for one in tried(some, match, len(found))][:5000]
        place = match.end()
    return found
def serve():
    sys.stdout.write(json.dumps(_chosen()) + "\\n"); sys.stdout.flush()
    for line in sys.stdin:
        wanted, path = json.loads(line)
        try:
            found = lead(path)
            answer = "unknown" if found is None else any((int(one) if type(one) is Raw else id(one)) == wanted for one in found)
        except Exception as error:
            answer = "%s: %s" % (type(error).__name__, error)
        sys.stdout.write(json.dumps(answer) + "\\n"); sys.stdout.flush()
serve()
'''
TASKS = """
import asyncio, functools, json
class Uplink:
    def __init__(self): self.later, self.subs = [], {}
    async def send(self, body):
        future = asyncio.get_running_loop().create_future()
        self.later.append(future)
        self.subs[len(self.subs)] = functools.partial(print, body)
        await future
class Gateway:
    def __init__(self): self.uplink = Uplink()
    async def handle(self, number):
        body = json.loads(json.dumps({"id": number, "rows": [{"key": row, "value": "x" * 50} for row in range(30)]}))
        await self.uplink.send(body)
async def main():
    gateway, tasks = Gateway(), set()
    for number in range(2000):
        tasks.add(asyncio.create_task(gateway.handle(number)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    print("ready", flush=True)
    input()
asyncio.run(main())
"""
"""Another one: 2,000 tasks that wait, held by a set of them, a list of futures and a dict of callbacks."""
FILES = {"shop.py": SHOP, "app/__init__.py": "", "app/handlers.py": HANDLERS}


class Truth(NamedTuple):
    """What came of all the objects."""

    counts: "Counter[str]"
    """`named`; `field`: with an offset in its path; `static`: in no block; `none`; `wrong`."""
    wrong: Sequence[Tuple[str, str, Any]]
    """(type, path, what the program said)."""


class Service:
    """The program, which goes on to answer."""

    def __init__(self, stage: Stage, python: str, malloc: str = "", seed: int = 1) -> None:
        folder = stage.folder()
        for name, text in {**FILES, "main.py": "SEED = %d\n%s" % (seed, MAIN)}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        environment = {"PYTHONMALLOC": malloc} if malloc else {}
        self.process: Process = stage.spawn([python, "-B", "main.py"], folder, {**environment, "PYTHONHASHSEED": "0"})
        self._in, self._out = self.process.popen.stdin, self.process.popen.stdout
        self.objects: List[Tuple[int, str]] = [(row[0], row[1]) for row in self._answer()]

    def _answer(self) -> Any:
        line = self._out.readline()
        assert line, self.process.stderr_path.read_text()
        return json.loads(line)

    def ask(self, address: int, path: str) -> Any:
        """True if the path leads to the object there, as the program itself follows it."""
        self._in.write(("%s\n" % json.dumps([address, path])).encode())
        self._in.flush()
        return self._answer()

    def truth(self, graph: NamedGraph) -> Truth:
        """Of all objects that it has named."""
        counts: Counter[str] = Counter()
        wrong = []
        for address, kind in self.objects:
            place = graph.reach.graph.find(address)
            path = graph.paths.of(place[0]) if place is not None and place[0] < graph.reach.numbers.blocks else None
            if path is None:
                counts["none" if place is not None and place[0] < graph.reach.numbers.blocks else "static"] += 1
                continue
            said = self.ask(address, path.text)
            counts["wrong" if said is not True else "field" if ".<+" in path.text else "named"] += 1
            if said is not True:
                wrong.append((kind, path.text, said))
        return Truth(counts, wrong)
