"""Records as JSON, and back by their declared types: what a file holds is read as what it must be, or not at all."""

from typing import Annotated, Any, Dict, Mapping, Sequence, Tuple, Type, Union, get_args, get_origin, get_type_hints

from gdbheapx.allocators import OfAllocator
from gdbheapx.units import Said

TEXT, PLAIN = "text", "plain"
"""A sentence with sizes has two forms (units.py)."""


class Wrong(ValueError):
    """What stands there is not what was asked for."""


def encoded(value: Any) -> Any:
    """The value in the types that json knows."""
    if isinstance(value, Said):
        return {TEXT: str(value), PLAIN: value.plain}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return int(value)
    names = getattr(value, "_fields", None)
    if names is not None:
        return {name: encoded(one) for name, one in zip(names, value)}
    if isinstance(value, Mapping):
        return {str(name): encoded(one) for name, one in value.items()}
    return [encoded(one) for one in value]


def decoded(kind: Any, value: Any) -> Any:
    """The reverse, for a value of this type. Wrong where it is none; a field that a later version has added is left out, and one that is
    lacking has its default."""
    origin = get_origin(kind)
    if kind is Any:
        return _untyped(value)
    if origin is Annotated:
        own = [one.kind() for one in kind.__metadata__ if isinstance(one, OfAllocator)]
        return decoded(own[0] if own else get_args(kind)[0], value)
    if origin is Union:
        return _one_of(get_args(kind), value)
    if origin is not None:
        return _many(origin, get_args(kind), value)
    if kind is type(None):
        return _plain(value is None, value)
    if hasattr(kind, "_fields"):
        return _record(kind, value)
    if issubclass(kind, str):
        return _text(value)
    if kind is bool:
        return _plain(isinstance(value, bool), value)
    if kind is float:
        return float(_plain(isinstance(value, (int, float)) and not isinstance(value, bool), value))
    if issubclass(kind, int):
        return kind(_plain(isinstance(value, int) and not isinstance(value, bool), value))
    raise Wrong("values of the type %s are not kept" % kind)


def _untyped(value: Any) -> Any:
    """What json has made of it, and sentences."""
    if isinstance(value, list):
        return [_untyped(one) for one in value]
    if not isinstance(value, dict):
        return value
    return _text(value) if set(value) == {TEXT, PLAIN} else {name: _untyped(one) for name, one in value.items()}


def _plain(fits: bool, value: Any) -> Any:
    if not fits:
        raise Wrong("%s where something else belongs" % type(value).__name__)
    return value


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {TEXT, PLAIN} and all(isinstance(one, str) for one in value.values()):
        return Said(value[TEXT], value[PLAIN])
    return str(_plain(isinstance(value, str), value))


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    for kind in kinds:
        try:
            return decoded(kind, value)
        except Wrong:
            continue
    raise Wrong("%s where something else belongs" % type(value).__name__)


def _many(origin: Any, kinds: Tuple[Any, ...], value: Any) -> Any:
    if issubclass(origin, Mapping):
        return {str(name): decoded(kinds[1], one) for name, one in _plain(isinstance(value, dict), value).items()}
    _plain(isinstance(value, list), value)
    if issubclass(origin, tuple) and kinds[-1] is not ...:
        _plain(len(value) == len(kinds), value)
        return tuple(decoded(kind, one) for kind, one in zip(kinds, value))
    found = [decoded(kinds[0], one) for one in value]
    return tuple(found) if issubclass(origin, tuple) else found


_HINTS: Dict[Any, Dict[str, Any]] = {}


def _record(kind: Type[Any], value: Any) -> Any:
    _plain(isinstance(value, dict), value)
    hints = _HINTS.get(kind)
    if hints is None:
        hints = _HINTS[kind] = get_type_hints(kind, include_extras=True)
    given = {name: decoded(hints[name], value[name]) for name in kind._fields if name in value}
    lacking = set(kind._fields) - set(given) - set(kind._field_defaults)
    if lacking:
        raise Wrong("a %s without %s" % (kind.__name__, sorted(lacking)[0]))
    return kind(**given)
