"""Add-on for what is tried out: functions that may have allocated blocks, by the program's code; what settings would save."""

CAPABILITIES = {"sites": "sites.find", "settings": "what_if.predict"}
"""Which module has what the core asks for (addon_loader.py)."""
DOCS = ("explanation/call-sites.md", "how-to/what-if.md")
"""Its pages in docs/."""
