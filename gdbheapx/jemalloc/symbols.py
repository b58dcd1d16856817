"""One build's variables by jemalloc's own names, whatever prefix it was built with and wherever their addresses come from."""

from typing import Dict, List, Optional

from gdbheapx.layout.pack import Pack
from gdbheapx.target.base import Module, Symbol, Target, ThreadLocal

PUBLIC_PREFIXES = ("", "je_", "_rjem_")

PREPARED = (
    "tsd_booted",
    "tsd_nominal_tsds",
    "malloc_init_state",
    "opt_percpu_arena",
    "ncpus",
    "background_thread_info",
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

    def find(self, name: str) -> Optional[Symbol]:
        """The variable `name`; None if this build has none, or has lost it."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Optional[Symbol]:
        if self.pack is not None:
            place = self.pack.symbols.get(name)
            return None if place is None else Symbol(name, self.module.base + place[0], self.module, "pack")
        for candidate in (self.prefix + name, name, name + ".lto_priv.0", self.prefix + name + ".lto_priv.0"):
            found = self._target.module_symbol(self.module, candidate)
            if found is not None:
                return found
        return None

    def near(self, function: str = "arena_choose_hard") -> Optional[Symbol]:
        """A function as debug information has it, in whose unit types are found; None without debug information.

        arena_choose_hard stands in jemalloc.c in every release, which includes almost every header.
        """
        found = self._target.function(self.module, self.prefix + function)
        if found is None and function == "arena_choose_hard":
            named = self._target.find_static(self.prefix + "arenas")
            found = next((symbol for symbol in named if symbol.module.base == self.module.base and symbol.source == "debug-info"), None)
        return found

    def size_bytes(self, name: str) -> Optional[int]:
        """sizeof the variable, by the symbol table."""
        if self.pack is not None:
            place = self.pack.symbols.get(name)
            return place[1] if place is not None else None
        found = self.find(name)
        return self._target.symbol_bytes(found) if found is not None else None

    def thread_local_bytes(self, name: str) -> Optional[int]:
        """sizeof the thread-local variable, by the symbol table."""
        if self.pack is not None:
            place = self.pack.thread_locals.get(name)
            return place[1] if place is not None else None
        return self._target.thread_local_bytes(self.module, self.prefix + name) or self._target.thread_local_bytes(self.module, name)

    def constant(self, name: str) -> Optional[int]:
        """The value that the compiler fixed for a const variable which has no place in memory (`config_prof`); None where nothing tells it."""
        if self.pack is not None:
            return self.pack.constants.get(name)
        near = self.near()
        return self._target.constant(name, near) if near is not None else None

    def names(self, start: str) -> List[str]:
        """Names without prefix that begin with `start` (`opt_`), sorted."""
        if self.pack is not None:
            return sorted(name for name in self.pack.symbols if name.startswith(start))
        return [name[len(self.prefix) :] for name in self._target.names_starting(self.module, self.prefix + start)]

    def thread_local(self, name: str) -> Optional[ThreadLocal]:
        """Where each thread has its copy of the thread-local `name`."""
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
        for name in PREPARED:
            self.find(name)

    def public(self, name: str) -> Optional[Symbol]:
        """A function or variable of the public interface (`mallctl`), under the prefix that this build gave those."""
        for prefix in PUBLIC_PREFIXES:
            found = self._target.dynamic_symbol(prefix + name)
            if found is not None and found.module.base == self.module.base:
                return found
            for symbol in self._target.find_static(prefix + name) if self.pack is None else ():
                if symbol.module.base == self.module.base:
                    return symbol
        return None

    def conf_variable(self) -> str:
        """The environment variable that this build reads its options from: MALLOC_CONF, with the public prefix before it."""
        if self.pack is not None:
            return self.pack.public_prefix.upper() + "MALLOC_CONF"
        found = self.public("mallctl")
        return (found.name[: -len("mallctl")] if found is not None else "").upper() + "MALLOC_CONF"
