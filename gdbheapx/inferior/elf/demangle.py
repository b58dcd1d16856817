"""Class names as a type_info has them (`N3foo3barE`) in the words of the source (`foo::bar`).

The C++ runtime of this machine knows the whole grammar (abi::__cxa_demangle; gdb itself needs that library). Where it is not installed,
plain nested names are read here, and others stay as they are.
"""

import ctypes
import re
from typing import Any, List, Optional

RUNTIMES = ("libstdc++.so.6", "libc++abi.so.1")
START = "typeinfo name for "
MOST_BYTES = 4096
MOST_REPETITIONS = 1000
"""Of letters that make the demangler call itself."""
_RUNTIME: List[Any] = []
"""What was found, once it was looked for."""


def class_name(mangled: str) -> str:
    """The name of the class; the mangled one if nothing here can read it."""
    known = plain(mangled)
    if known is not None:
        return known
    return _by_runtime(mangled) or mangled


def variable_name(name: str) -> str:
    """The name of a variable as the source has it (`_ZN3foo3barE`, `_ZL3bar`); of C, and where nothing here can read it, as it is."""
    if not name.startswith("_Z"):
        return name
    known = plain(name[3:] if name.startswith("_ZL") else name[2:])
    return known or _by_runtime(name, "", "") or name


def plain(mangled: str) -> Optional[str]:
    """Of names without templates and the like; None for all others."""
    text, parts = mangled, []
    if text.startswith("N") and text.endswith("E"):
        text = text[1:-1]
    if text.startswith("St") and text[2:3].isdigit():
        text, parts = text[2:], ["std"]
    while text:
        found = re.match(r"[1-9]\d{0,3}", text)
        if found is None:
            return None
        end = found.end() + int(found.group())
        part, text = text[found.end() : end], text[end:]
        if len(part) < int(found.group()) or not re.fullmatch(r"[A-Za-z_$][\w$]*", part, re.A):
            return None
        parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N") else part)
    return "::".join(parts) if parts else None


def _by_runtime(mangled: str, prefix: str = "_ZTS", start: str = START) -> Optional[str]:
    if not _RUNTIME:
        _RUNTIME.append(_runtime())
    if _RUNTIME[0] is None or not 0 < len(mangled) <= MOST_BYTES or not re.fullmatch(r"[\w.$]+", mangled, re.A):
        return None
    if sum(map(mangled.count, "PROKVI")) > MOST_REPETITIONS:
        return None
    demangle, free = _RUNTIME[0]
    status = ctypes.c_int(0)
    found = demangle((prefix + mangled).encode(), None, None, ctypes.byref(status))
    if not found:
        return None
    text = ctypes.string_at(found).decode("utf-8", "replace")
    free(found)
    return text[len(start) :] if status.value == 0 and text.startswith(start) else None


def _runtime() -> Any:
    """(abi::__cxa_demangle, free); None without a C++ runtime."""
    for name in RUNTIMES:
        try:
            demangle, free = getattr(ctypes.CDLL(name), "__cxa_demangle"), ctypes.CDLL(None).free
        except (OSError, AttributeError):
            continue
        demangle.restype, demangle.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        free.restype, free.argtypes = None, [ctypes.c_void_p]
        return demangle, free
    return None
