"""Several questions of one moment of a process that runs: python one_moment.py PID"""

import sys

import gdbheapx

with gdbheapx.open(pid=int(sys.argv[1])) as heap, heap.stopped(max_s=1.0):
    used = sum(block.usable_bytes for block in heap.blocks("used").data)
    owners, classes = heap.owners(), heap.census()
print("stood still once, for %.0f ms" % (classes.stopped_ms or 0))
print("in use: %d bytes, by census %d" % (used, classes.data.bytes))
for owner in owners.rows[:5]:
    print("%12d  %s" % (owner.retained_bytes or 0, owner.path or owner.owner))
for row in classes.rows[:5]:
    print("%12d  %s" % (row.bytes, row.signature))
