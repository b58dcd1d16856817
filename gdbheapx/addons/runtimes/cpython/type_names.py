"""Names of types that tp_name lacks: of static types where no file has it, and of classes of which several have the same.

Modules have static types under names that are in the heap; a class's dict says which module it is of.
"""

from typing import Dict, List, Mapping

from gdbheapx.addons.runtimes.cpython.types import HEAP_TYPE, UNNAMED, PyTypes
from gdbheapx.addons.runtimes.cpython.values import PyValues

OF_TYPES = {
    "FunctionType": "function",
    "MethodType": "method",
    "CellType": "cell",
    "CodeType": "code",
    "GeneratorType": "generator",
    "CoroutineType": "coroutine",
    "AsyncGeneratorType": "async_generator",
    "MappingProxyType": "mappingproxy",
    "BuiltinFunctionType": "builtin_function_or_method",
    "FrameType": "frame",
    "TracebackType": "traceback",
    "ModuleType": "module",
    "NoneType": "NoneType",
    "GetSetDescriptorType": "getset_descriptor",
    "MemberDescriptorType": "member_descriptor",
    "MethodDescriptorType": "method_descriptor",
    "WrapperDescriptorType": "wrapper_descriptor",
}
"""What `types` calls them, and what they call themselves (tp_name)."""
OF_MODULES: Mapping[str, Mapping[str, str]] = {
    "types": OF_TYPES,
    "_weakref": {name: "weakref.%s" % name for name in ("ReferenceType", "ProxyType", "CallableProxyType")},
    "_collections": {name: "collections.%s" % name for name in ("deque", "OrderedDict", "defaultdict")},
    "_functools": {"partial": "functools.partial", "_lru_cache_wrapper": "functools._lru_cache_wrapper"},
}
BEFORE_3_10 = {"ReferenceType": "weakref", "ProxyType": "weakproxy", "CallableProxyType": "weakcallableproxy"}
"""What those of `_weakref` call themselves there."""
MODULE_DICT, CLASS_DICT = 16, 264


def are_missing(types: PyTypes) -> bool:
    """Return whether some static types are known by their place alone."""
    return any(py_type.name.startswith(UNNAMED) for py_type in types.all.values())


def name_static_types(values: PyValues, modules: Mapping[str, int]) -> Dict[int, str]:
    """Return names of static types without one, by address."""
    found: Dict[int, str] = {}
    dicts = {module: values.word(address + MODULE_DICT) for module, address in modules.items()}
    hexversion = values.integer(values.get(dicts.get("sys", 0), "hexversion"))
    of_modules = {**OF_MODULES, "_weakref": BEFORE_3_10} if hexversion is not None and hexversion < 0x030A0000 else OF_MODULES
    for module, names in (("builtins", None), *of_modules.items()):
        for key, value in values.entries(dicts.get(module, 0)):
            py_type = values.types.all.get(value)
            if py_type is None or py_type.flags & HEAP_TYPE or not py_type.name.startswith(UNNAMED):
                continue
            text = values.text(key) or ""
            name = text if names is None else names.get(text)
            if name is not None and text.isidentifier():
                found.setdefault(value, name)
    return found


def separate_names(values: PyValues) -> Dict[int, str]:
    """Return classes that share a name with their modules: `numbers.Number`, `shop.Number`."""
    by_name: Dict[str, List[int]] = {}
    for address, py_type in values.types.all.items():
        by_name.setdefault(py_type.name, []).append(address)
    found: Dict[int, str] = {}
    for name, addresses in by_name.items():
        for address in addresses if len(addresses) > 1 else ():
            module = values.text(values.get(values.word(address + CLASS_DICT), "__module__"), 256)
            if values.types.all[address].flags & HEAP_TYPE and module and module.isprintable():
                found[address] = "%s.%s" % (module, name)
    return found
