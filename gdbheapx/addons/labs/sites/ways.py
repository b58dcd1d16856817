"""The functions by which code asks for memory, and those that link what they got into a container of C++."""

from typing import Dict, NamedTuple, Optional, Tuple

from gdbheapx.analysis.addon_answers import CHAIN, LIST, TREE


class Way(NamedTuple):
    """Interface of an allocating function: which arguments give the size."""

    size: Optional[int]
    """The argument that has the size; None: none has."""
    count: Optional[int] = None  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """That by which it is multiplied."""
    plus: int = 0
    shift: int = 0
    """Offset in the block of what it returns."""
    floats: bool = False
    """The offset is unknown."""
    words: Tuple[Tuple[int, int, int], ...] = ()
    """(offset from what it returns, bytes, argument) that it stores there: the type of an object."""


_BY_SIZE, _SECOND = Way(0), Way(1)
_OF_TYPE = Way(None, words=((8, 8, 0),), floats=True)
ALLOCATORS: Dict[str, Way] = {
    **dict.fromkeys(("malloc", "valloc", "pvalloc", "__libc_malloc", "__rust_alloc", "__rust_alloc_zeroed"), _BY_SIZE),
    **dict.fromkeys(("__rdl_alloc", "__rg_alloc", "__rdl_alloc_zeroed", "__rg_alloc_zeroed"), _BY_SIZE),
    **dict.fromkeys(("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t"), _BY_SIZE),
    **dict.fromkeys(("_ZnamSt11align_val_t", "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"), _BY_SIZE),
    **dict.fromkeys(("realloc", "memalign", "aligned_alloc", "__libc_memalign"), _SECOND),
    **dict.fromkeys(("calloc", "__libc_calloc"), Way(1, 0)),
    "reallocarray": Way(2, 1),
    # of CPython: they go through pointers, to malloc or to pools
    **dict.fromkeys(("PyMem_RawMalloc", "PyMem_Malloc", "PyObject_Malloc"), _BY_SIZE),
    **dict.fromkeys(("PyMem_RawCalloc", "PyMem_Calloc", "PyObject_Calloc"), Way(1, 0)),
    **dict.fromkeys(("PyMem_RawRealloc", "PyMem_Realloc", "PyObject_Realloc"), _SECOND),
    **dict.fromkeys(("_PyObject_New", "_PyObject_NewVar", "_PyObject_GC_New", "_PyObject_GC_NewVar", "PyType_GenericAlloc"), _OF_TYPE),
}
TYPED = frozenset(name for name, way in ALLOCATORS.items() if way is _OF_TYPE)
"""Those that get the type of an object of Python."""


LINKS: Dict[str, Tuple[str, Optional[int]]] = {
    "_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_": (TREE, 1),
    "_ZNSt8__detail15_List_node_base7_M_hookEPS0_": (LIST, 0),
    "_ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm": (CHAIN, None),
}
"""Functions of libstdc++ that link a node into its container, and the argument that is the node; None: who calls it links one."""
