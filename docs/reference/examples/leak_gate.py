"""A gate for CI: exit code 3 if a core has lost more than so many bytes: python leak_gate.py CORE BYTES"""

import sys

import gdbheapx

try:
    with gdbheapx.open(core=sys.argv[1]) as heap:
        leaks = heap.leaks()
except gdbheapx.HeapxError as error:
    sys.exit("no answer: %s" % error.line())
for problem in leaks.problems:
    print("note: %s" % problem.what)
for group in leaks.data.groups[:10]:
    print("%d bytes in %d blocks of %d" % (group.bytes, group.blocks, group.size_bytes))
print("leaked: %d bytes" % leaks.data.leaked.bytes)
sys.exit(3 if leaks.data.leaked.bytes > int(sys.argv[2]) else 4 if leaks.is_partial else 0)
