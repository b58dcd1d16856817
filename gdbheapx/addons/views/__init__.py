"""Add-on for reading answers elsewhere: pages, the terminal explorer, SQL, files for other tools, fleets of cores, agents."""

CAPABILITIES = {
    "explore": "explore.command",
    "html": "html.command",
    "mcp": "commands.mcp",
    "page_parts": "html.page_parts",
    "pages": "html.render",
    "rows": "query.command",
    "sql": "query.command",
}
"""Which module has what the core asks for (addon_loader.find_capability)."""
DOCS = (
    "how-to/explore.md",
    "how-to/export.md",
    "how-to/fleet.md",
    "how-to/page.md",
    "reference/for-agents.md",
)
"""Its pages in docs/."""
