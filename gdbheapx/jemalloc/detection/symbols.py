"""One build's variables by jemalloc's own names, whatever prefix it was built with and wherever their addresses come from."""

import os
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence

from gdbheapx.inferior.base import Module, Symbol, Target, ThreadLocal
from gdbheapx.jemalloc.detection.traces import Constants, read_constants
from gdbheapx.jemalloc.records import PublicNames
from gdbheapx.layout.pack import Pack

if TYPE_CHECKING:
    from gdbheapx.jemalloc.detection.tsd_place import Finder

CALL = "mallctl"
"""The public function that every build has; what stands before it is the public prefix."""
CONF_VARIABLE = "MALLOC_CONF"
PUBLIC_VARIABLES = ("malloc_conf", "malloc_conf_2_conf_harder", "malloc_message")
"""Variables that carry the public prefix, not the private one (jemalloc.h)."""

PROFILER = "prof_backtrace"
"""A function that has no code in builds without --enable-prof (prof.c, prof_sys.c)."""

IN_JEMALLOC_C = ("malloc_default", "arena_choose_hard")
"""Functions of jemalloc.c: the first from 5.2 on, the other up to 5.3.1."""
PREPARED = (
    "tsd_booted",
    "tsd_nominal_tsds",
    "malloc_init_state",
    "opt_percpu_arena",
    "ncpus",
    "background_thread_info",
    "n_background_threads",
    "background_thread_enabled_state",
    "max_background_threads",
    "arena_tdata_get_hard",
    "nhbins",
    "disabled_bin",
    "tcache_bin_info",
    "tcaches",
    "tcaches_past",
)
"""Variables that are asked for while a process is stopped; detection has found the others by then."""


class Symbols:
    """Looks names up in the one object that holds this jemalloc.

    External names carry the private prefix (`je_arenas`), file-static ones never do (`narenas_total`), link-time optimisation may
    add `.lto_priv.0`.
    """

    def __init__(self, target: Target, module: Module, prefix: str, pack: Optional[Pack]) -> None:
        self.module = module
        self.prefix = prefix
        self.pack = pack
        self._target = target
        self._found: Dict[str, Optional[Symbol]] = {}
        self._sizes: Dict[str, Optional[int]] = {}
        self._names: Optional[PublicNames] = None
        self._texts: Optional[Constants] = None
        self._near: List[Optional[Symbol]] = []
        self._make_tsds: Optional[Callable[[], Finder]] = None
        self._tsds: Optional[Finder] = None

    def tell(self, tsds: "Callable[[], Finder]") -> None:
        """How thread-local storage is found where names do not lead to it."""
        self._make_tsds, self._tsds = tsds, None

    def _tsds_by_structure(self, name: str) -> Optional[ThreadLocal]:
        if name != "tsd_tls" or self._make_tsds is None:
            return None
        self._tsds = self._tsds or self._make_tsds()
        return self._tsds.find()

    @property
    def by_structure(self) -> bool:
        """Only what memory itself shows is known: no name of a variable or of a function that is not exported."""
        return False

    option_names: Sequence[str] = ()
    """Where no symbol tells them: `opt_NAME` of every option that mallctl knows, whether or not its variable is known."""

    def find(self, name: str) -> Optional[Symbol]:
        """The variable `name`; None if this build has none, or has lost it."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Optional[Symbol]:
        if name in PUBLIC_VARIABLES:
            return self._public_variable(name)
        if self.pack is not None:
            return self._in_pack(name)
        for candidate in (self.prefix + name, name, name + ".lto_priv.0", self.prefix + name + ".lto_priv.0"):
            symbol = self._target.module_symbol(self.module, candidate)
            if symbol is not None:
                return symbol
        return None

    def _in_pack(self, name: str) -> Optional[Symbol]:
        place = self.pack.symbols.get(name) if self.pack is not None else None
        return None if place is None else Symbol(name, self.module.base + place[0], self.module, "pack")

    def _public_variable(self, name: str) -> Optional[Symbol]:
        """malloc_conf is weak: where the object exports it, the program may have one of its own, which then is the one in force."""
        prefix = self.public_names.prefix
        if prefix is not None and self._target.exported(self.module, prefix + name) is not None:
            return self._target.dynamic_symbol(prefix + name)
        return self._in_pack(name) if self.pack is not None else self.public(name)

    def near(self, function: Optional[str] = None) -> Optional[Symbol]:
        """A function as debug information has it, in whose unit types are found; None without debug information.

        Without a name one of jemalloc.c, which includes almost every header.
        """
        names = IN_JEMALLOC_C if function is None else (function,)
        found = (self._target.function(self.module, self.prefix + name) for name in names)
        near = next((symbol for symbol in found if symbol is not None), None)
        if near is None and function is None:
            named = self._target.find_static(self.prefix + "arenas")
            near = next((symbol for symbol in named if symbol.module.base == self.module.base and symbol.source == "debug-info"), None)
        return near

    def size_bytes(self, name: str) -> Optional[int]:
        """sizeof the variable, by the symbol table."""
        if self.pack is not None:
            place = self.pack.symbols.get(name)
            return place[1] if place is not None else None
        if name not in self._sizes:
            symbol = self.find(name)
            self._sizes[name] = self._target.symbol_bytes(symbol) if symbol is not None else None
        return self._sizes[name]

    def thread_local_bytes(self, name: str) -> Optional[int]:
        """sizeof the thread-local variable, by the symbol table."""
        if self.pack is not None:
            place = self.pack.thread_locals.get(name)
            return place[1] if place is not None else None
        return self._target.thread_local_bytes(self.module, self.prefix + name) or self._target.thread_local_bytes(self.module, name)

    def constant(self, name: str) -> Optional[int]:
        """The value that the compiler fixed for a const variable which has no place in memory (`config_prof`); None where nothing tells
        it."""
        if self.pack is not None:
            return self.pack.constants.get(name)
        if not self._near:
            self._near.append(self.near())
        near = self._near[0]
        return self._target.constant(name, near) if near is not None else None

    def names(self, start: str) -> List[str]:
        """Names without prefix that begin with `start` (`opt_`), sorted."""
        if self.pack is not None:
            return sorted(name for name in self.pack.symbols if name.startswith(start))
        return [name[len(self.prefix) :] for name in self._target.names_starting(self.module, self.prefix + start)]

    def thread_local(self, name: str) -> Optional[ThreadLocal]:
        """Where each thread has its copy of the thread-local `name`: by its place in the object's block, else by what storage holds, as a
        core without the object's file has none of the relocations that lead to the block."""
        return self._named_local(name) or self._tsds_by_structure(name)

    def _named_local(self, name: str) -> Optional[ThreadLocal]:
        if self.pack is not None:
            place = self.pack.thread_locals.get(name)
            return None if place is None else self._target.thread_local_at(self.module, place[0])
        near = self.find("arenas")
        if near is None:
            return None
        return self._target.thread_local(self.prefix + name, near) or self._target.thread_local(name, near)

    def prepare(self) -> None:
        """Look up, before the process is stopped, what is needed then."""
        near = self.find("arenas")
        if near is not None and self.pack is None:
            self._target.prepare_thread_local((self.prefix + "tsd_tls", "tsd_tls"), near)
        for name in PREPARED + PUBLIC_VARIABLES:
            self.find(name)
        if self.constant("config_prof") is None:
            _ = self.texts, self.size_bytes(PROFILER)

    @property
    def texts(self) -> Constants:
        """What the object's constant data says."""
        if self._texts is None:
            self._texts = read_constants(self._target, self.module)
        return self._texts

    @property
    def public_names(self) -> PublicNames:
        """The public names: by the build's pack, else by its symbol table, else by the name of its environment variable."""
        if self._names is None:
            self._names = self._find_names()
        return self._names

    def _find_names(self) -> PublicNames:
        if self.pack is not None:
            return PublicNames(self.pack.public_prefix, self.pack.public_prefix.upper() + CONF_VARIABLE)
        prefix, variables = self._public_prefix(), self.texts.conf_variables
        if prefix is None and len(variables) == 1:
            prefix = variables[0][: -len(CONF_VARIABLE)].lower()
        conf_name = None if prefix is None else prefix.upper() + CONF_VARIABLE
        if conf_name is None or conf_name in variables or not variables:
            return PublicNames(prefix, conf_name)
        return PublicNames(prefix, variables[0] if len(variables) == 1 else conf_name)

    def _public_prefix(self) -> Optional[str]:
        """Before a name that ends in mallctl; of several before the one that has most in common with the private prefix, then the
        shortest."""
        calls = {name for name, _ in self._target.names_ending(CALL, self.module)}
        prefixes = [
            name[: -len(CALL)] for name in calls if self._target.module_symbol(self.module, name[: -len(CALL)] + "malloc") is not None
        ]
        return min(prefixes, key=lambda name: (-len(os.path.commonprefix([name, self.prefix])), len(name), name), default=None)

    def public(self, name: str) -> Optional[Symbol]:
        """A function or variable of the public interface (`mallctl`) in this object, under the prefix that its build gave those."""
        prefix = self.public_names.prefix
        if prefix is None:
            return None
        return self._target.exported(self.module, prefix + name) or self._target.module_symbol(self.module, prefix + name)
