"""Records as JSON, and back by their declared types: what a file holds is read as what it must be, or not at all."""

import functools
from typing import Annotated, Any, Callable, Dict, Mapping, Sequence, Tuple, Union, get_args, get_origin, get_type_hints

from gdbheapx.allocators import OfAllocator
from gdbheapx.model import Address
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
        return {name: encoded(member) for name, member in zip(names, value)}
    if isinstance(value, Mapping):
        return {str(name): encoded(member) for name, member in value.items()}
    return [encoded(member) for member in value]


def decoded(kind: Any, value: Any) -> Any:
    """The reverse, for a value of this type. Wrong where it is none; a field that a later version has added is left out, and one that is
    lacking has its default."""
    return _decoder(kind)(value)


@functools.cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """Reads values of this type."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return _untyped
    if origin is Annotated:
        own = [mark for mark in kind.__metadata__ if isinstance(mark, OfAllocator)]
        return (lambda value: decoded(own[0].kind(), value)) if own else _decoder(inner[0])
    if origin is Union:
        return functools.partial(_one_of, [_decoder(choice) for choice in inner])
    if origin is not None:
        return functools.partial(_many, origin, inner)
    if hasattr(kind, "_fields"):
        return functools.partial(_record, kind)
    if issubclass(kind, str):
        return _text
    if kind in (bool, type(None)):
        return lambda value: _plain(isinstance(value, kind), value)
    if kind is float:
        return lambda value: float(_plain(isinstance(value, (int, float)) and not isinstance(value, bool), value))
    if kind is Address:
        return _address
    if issubclass(kind, int):
        return lambda value: kind(_plain(isinstance(value, int) and not isinstance(value, bool), value))
    raise Wrong("values of the type %s are not kept" % kind)


def _untyped(value: Any) -> Any:
    """What json has made of it, and sentences."""
    if isinstance(value, list):
        return [_untyped(member) for member in value]
    if not isinstance(value, dict):
        return value
    return _text(value) if set(value) == {TEXT, PLAIN} else {name: _untyped(member) for name, member in value.items()}


def _plain(fits: bool, value: Any) -> Any:
    if not fits:
        raise Wrong("%s where something else belongs" % type(value).__name__)
    return value


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {TEXT, PLAIN} and all(isinstance(form, str) for form in value.values()):
        return Said(value[TEXT], value[PLAIN])
    return str(_plain(isinstance(value, str), value))


def _address(value: Any) -> Address:
    """A number in a file of ours; in documents hex."""
    if isinstance(value, str):
        try:
            return Address(int(value, 16))
        except ValueError as error:
            raise Wrong(str(error))
    return Address(_plain(isinstance(value, int) and not isinstance(value, bool), value))


def _one_of(decoders: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    for decoder in decoders:
        try:
            return decoder(value)
        except Wrong:
            continue
    raise Wrong("%s where something else belongs" % type(value).__name__)


def _many(origin: Any, kinds: Tuple[Any, ...], value: Any) -> Any:
    if issubclass(origin, Mapping):
        decoder = _decoder(kinds[1])
        return {str(name): decoder(member) for name, member in _plain(isinstance(value, dict), value).items()}
    _plain(isinstance(value, list), value)
    if issubclass(origin, tuple) and kinds[-1] is not ...:
        _plain(len(value) == len(kinds), value)
        return tuple(decoded(kind, member) for kind, member in zip(kinds, value))
    members = list(map(_decoder(kinds[0]), value))
    return tuple(members) if issubclass(origin, tuple) else members


@functools.cache
def _members(kind: Any) -> Dict[str, Callable[[Any], Any]]:
    return {name: _decoder(declared) for name, declared in get_type_hints(kind, include_extras=True).items()}


def _record(kind: Any, value: Any) -> Any:
    _plain(isinstance(value, dict), value)
    given = {name: decoder(value[name]) for name, decoder in _members(kind).items() if name in value}
    lacking = set(kind._fields) - set(given) - set(kind._field_defaults)
    if lacking:
        raise Wrong("a %s without %s" % (kind.__name__, sorted(lacking)[0]))
    return kind(**given)
