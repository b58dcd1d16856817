"""arrow.py RECORD MB: python3 with pyarrow, and MB megabytes in use: half in arrays of Arrow's default pool, a quarter in its jemalloc
pool, a quarter in Python's own strings. Ready, clock and commands as in shape.h.
"""

import mmap
import os
import struct
import sys
import threading
import time

import pyarrow
import pyarrow.compute

PIECE = 1 << 20
WATCHING = threading.Event()


def fill(pool: pyarrow.MemoryPool, megabytes: int) -> list:
    """Arrays of a megabyte each, written to."""
    zeros = pyarrow.nulls(PIECE // 8, pyarrow.int64()).fill_null(0)
    return [pyarrow.compute.add(zeros, i, memory_pool=pool) for i in range(megabytes)]


def watch(record: mmap.mmap) -> None:
    """Keep the longest time between two readings of the clock, while it is asked for."""
    while True:
        WATCHING.wait()
        last = time.monotonic_ns()
        while WATCHING.is_set():
            now = time.monotonic_ns()
            if now - last > struct.unpack_from("<Q", record)[0]:
                struct.pack_into("<Q", record, 0, now - last)
            last = now


def main(path: str, megabytes: int) -> None:
    """Make it, and wait."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.ftruncate(file, 48)
    record = mmap.mmap(file, 48)
    pools = [pyarrow.default_memory_pool()]
    if "jemalloc" in pyarrow.supported_memory_backends():
        pools.append(pyarrow.jemalloc_memory_pool())
    arrays = fill(pools[0], megabytes // 2) + fill(pools[-1], megabytes // 4)
    strings = ["%0200d" % i for i in range(megabytes // 4 * (PIECE // 256))]
    threading.Thread(target=watch, args=(record,), daemon=True).start()
    os.write(1, b"ready\n")
    while True:
        command = os.read(0, 1)
        if not command:
            os._exit(len(arrays) * len(strings) == 0)
        WATCHING.clear()
        struct.pack_into("<Q", record, 0, 0)
        if command == b"g":
            WATCHING.set()
        os.write(1, b"ready\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
