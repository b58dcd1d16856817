"""SQL over one look, by DuckDB: the tables there are, the look that fills them, and the engine, which never runs inside gdb."""
