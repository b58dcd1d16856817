"""Layout of structs in memory: declared once, resolved per target."""
