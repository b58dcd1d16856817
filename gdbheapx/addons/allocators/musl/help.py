"""What help says of musl's malloc, by command."""

HELP = {
    "arenas": """musl: one row, as musl has no arenas: system = used + free + overhead + unparsed, to the byte. `used` counts slots
with blocks in use; `bins` shows how much of these was asked for. `overhead` is metas, headers, and what groups leave of their pages. Of a
living process no page of the heap is read.
""",
    "bins": "musl: each size class with its groups and slots; class 63 has blocks with a mapping of their own.\n",
    "chunks": "musl: the size of a block in use is the requested size, exactly; in the histogram it is the slot's.\n",
    "pins": "musl: a place is a group with all that were cut out of its slots; it is unmapped when the last block in it is freed.\n",
    "tcache": "musl has no thread caches.\n",
}
