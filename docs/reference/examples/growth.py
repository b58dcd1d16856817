"""What grew in a process between two moments: python growth.py PID SECONDS"""

import sys
import time

import gdbheapx

with gdbheapx.open(pid=int(sys.argv[1])) as heap:
    heap.snapshot("before.snap")
    time.sleep(float(sys.argv[2]))
    with gdbheapx.open(snapshot="before.snap") as before:
        grown = before.diff(heap)
print(grown.text())
print("the process stood still for %.0f ms" % (grown.stopped_ms or 0))
