"""How a struct lies in memory: declared once, resolved per target."""
