"""numpy's arrays: their shape, and which element a word of their data is.

PyArrayObject_fields (numpy/core/include/numpy/ndarraytypes.h, 1.x and 2.x): data, nd, dimensions, strides, base, descr;
PyArray_Descr: typeobj, kind, type_num.
"""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.addons.runtimes.cpython.values import PyValues

NDARRAY = "numpy.ndarray"
ARRAY_DATA, DIMENSION_COUNT, DIMENSIONS, STRIDES, ARRAY_BASE, DESCRIPTION = 16, 24, 32, 40, 48, 56
KIND, TYPE_NUMBER = 24, 28
MOST_DIMENSIONS = 8
OBJECTS = ord("O")
TYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "longlong", "ulonglong", "float32", "float64"),
    *("longdouble", "complex64", "complex128", "clongdouble", "object", "bytes", "str", "void", "datetime64", "timedelta64", "float16"),
)
"""By type_num (enum NPY_TYPES)."""


class NumpyArray(NamedTuple):
    """PyArrayObject as it describes itself."""

    data: int
    dimensions: Sequence[int]
    strides: Sequence[int]
    """In bytes."""
    has_objects: bool
    type_name: str
    """`float64`; empty where it is not known."""


def read_ndarray(values: PyValues, address: int) -> Optional[NumpyArray]:
    """Read an ndarray; None if it has too many dimensions, or is damaged."""
    count = values.number(address + DIMENSION_COUNT, 4)
    if not 1 <= count <= MOST_DIMENSIONS:
        return None
    dimensions, strides = (values.world.words(values.word(address + at), count) for at in (DIMENSIONS, STRIDES))
    description = values.word(address + DESCRIPTION)
    if dimensions is None or strides is None or not description:
        return None
    number = values.number(description + TYPE_NUMBER, 4)
    name = TYPES[number] if number < len(TYPES) else ""
    return NumpyArray(values.word(address + ARRAY_DATA), dimensions, strides, values.number(description + KIND, 1) == OBJECTS, name)


def format_index(array: NumpyArray, address: int) -> Optional[str]:
    """Return the index of an element as text, `[3]` or `[0, 7]`; None if no element begins there, or elements are no objects."""
    rest, places = address - array.data, [0] * len(array.dimensions)
    if not array.has_objects or rest < 0 or any(not stride or stride >> 63 for stride in array.strides):
        return None
    for axis in sorted(range(len(places)), key=lambda axis: -array.strides[axis]):
        places[axis], rest = divmod(rest, array.strides[axis])
    if rest or any(place >= size for place, size in zip(places, array.dimensions)):
        return None
    return "[%s]" % ", ".join(map(str, places))


def describe_ndarray(array: NumpyArray) -> str:
    """Return type and shape as text, `ndarray float64 (1000, 50)`."""
    sizes = ", ".join(map(str, array.dimensions)) + "," * (len(array.dimensions) == 1)
    return "ndarray %s(%s)" % (array.type_name + " " * bool(array.type_name), sizes)
