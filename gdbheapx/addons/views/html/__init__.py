"""Pages for a browser: pictures, tables and what they are made of, from the records of a look. No allocator and no gdb is known here."""
