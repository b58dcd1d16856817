"""The verdict on glibc's malloc; findings and pages are in gdbheapx/glibc/text.py."""
