"""Add-on for runtimes and libraries: what their blocks are, what they cut up themselves, and paths of their objects."""

CAPABILITIES = {"books": "bind", "collector": "cpython.interpreter", "recognisers": "recognisers"}
"""Which module has what the core asks for (addon_loader.find_capability)."""
DOCS = ("how-to/python.md", "how-to/runtimes.md")
"""Its pages in docs/."""
