"""What help says of musl's malloc, by command."""

HELP = {
    "arenas": """musl: one row, as musl has no arenas: system = used + free + overhead + unparsed, to the byte. `used` counts the bytes
that were asked for; `overhead` is metas, group headers and what requests were rounded up by. `bins` shows each size class.
""",
    "bins": "musl: each size class with its groups and slots; class 63 has blocks with a mapping of their own.\n",
    "chunks": "musl: the size of a block in use is what was asked for, exactly.\n",
    "pins": "musl: a place is a group; it is unmapped when its last block is freed.\n",
    "tcache": "musl has no thread caches.\n",
}
