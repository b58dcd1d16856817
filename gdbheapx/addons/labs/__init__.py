"""Add-on for what is tried out: functions that may have allocated blocks, by the program's code."""

CAPABILITIES = {"sites": "sites.find"}
"""Which module has what the core asks for (addon_loader.py)."""
DOCS = ("explanation/call-sites.md",)
"""Its pages in docs/."""
