"""Add-on for experiments: call sites by the program's code, savings by settings, untouched memory, copies of running processes."""

CAPABILITIES = {
    "cold": "cold.find",
    "settings": "what_if",
    "short_stop": "short_stop.stop",
    "sites": "sites.join",
}
"""Which module has what the core asks for (addon_loader.find_capability)."""
DOCS = ("explanation/call-sites.md", "how-to/cold.md", "how-to/what-if.md")
"""Its pages in docs/."""
