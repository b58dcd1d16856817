"""The vtables of one build's C++ classes, as a pack holds them: read when they are asked for, since a large program has 10,000.

What stands in a pack is `"OFFSET": "CLASS"`: OFFSET, in hex, is the vtable's address point in the file, so that the first word of an object
of CLASS is the module's load bias plus OFFSET. `"OFFSET": ["CLASS", N]` is the vtable of a base that begins N bytes into the object.
"""

import json
from typing import Any, Dict, Optional, Union

from gdbheapx.errors import HeapxError
from gdbheapx.inferior.types import Vtable
from gdbheapx.problems import BAD_PACK

MOST_VTABLES = 200_000
MOST_NAME_CHARACTERS = 4000
"""Longer names are cut, with three dots."""
MOST_ADDRESS = 1 << 48
MOST_WITHIN = 1 << 20


class Classes:
    """Address point in the file -> vtable."""

    def __init__(self, known: Union[bytes, Dict[str, Any], Dict[int, Vtable], None] = None, path: str = "") -> None:
        """`known`: the member of a pack, as text or as JSON has it, or the vtables themselves."""
        self._unread: Optional[Union[bytes, Dict[str, Any]]] = None
        self._found: Dict[int, Vtable] = {}
        self._path = path
        if isinstance(known, bytes) or (isinstance(known, dict) and any(isinstance(key, str) for key in known)):
            self._unread = known  # type: ignore[assignment]
        elif known:
            self._found = dict(sorted(known.items()))  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._unread or self._found)

    def all(self) -> Dict[int, Vtable]:
        """By address. HeapxError in one line if the pack is damaged here."""
        if self._unread is not None:
            try:
                tree = json.loads(self._unread.decode("utf-8")) if isinstance(self._unread, bytes) else self._unread
                self._found = dict(sorted((_address(key), _vtable(value)) for key, value in tree.items()))
            except RecursionError:
                raise HeapxError("%s is not a pack: its vtables are nested too deep" % self._path, code=BAD_PACK)
            except (ValueError, TypeError, AttributeError) as error:
                reason = " ".join(str(error).split())[:200]
                raise HeapxError("%s is not a pack: %s" % (self._path, reason), "make it again with gdbheapx symbols export", code=BAD_PACK)
            self._unread = None
        return self._found

    def tree(self) -> Dict[str, Any]:
        """As JSON has it."""
        return {"%x" % at: [_cut(one.name), one.within] if one.within else _cut(one.name) for at, one in self.all().items()}


def _cut(name: str) -> str:
    return name if len(name) <= MOST_NAME_CHARACTERS else name[: MOST_NAME_CHARACTERS - 3] + "..."


def _address(key: str) -> int:
    found = int(key, 16)
    if not 0 <= found < MOST_ADDRESS:
        raise ValueError("%s is not the place of a vtable" % key[:60])
    return found


def _vtable(value: Any) -> Vtable:
    name, within = value if isinstance(value, list) else (value, 0)
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME_CHARACTERS:
        raise ValueError("%s is not the name of a class" % json.dumps(name)[:60])
    if not isinstance(within, int) or isinstance(within, bool) or not 0 <= within <= MOST_WITHIN:
        raise ValueError("%s is not a place in an object" % json.dumps(within)[:60])
    return Vtable(name, within)
