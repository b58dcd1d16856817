"""Files: gdbheapx/kernel/common/library.py, gdbheapx/kernel/common/copy.py, gdbheapx/kernel/common/twin/pagemap.py"""
