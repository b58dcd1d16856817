"""Memory that is read by a call into Python, as gdb's is."""

from gdbheapx.inferior.base import BytesSource, CallSource


def call_source(source: BytesSource, fail_after: int = -1) -> CallSource:
    """The same bytes by a Python call, piece by piece; Ctrl-C comes in every call after so many."""
    left = [fail_after]

    def read(address: int, size: int) -> bytes:
        if not left[0]:
            raise KeyboardInterrupt()
        left[0] -= 1
        for begin, data in source.pieces:
            if begin <= address < begin + len(data):
                return data[address - begin : address - begin + size]
        return b""

    return read
