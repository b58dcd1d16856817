"""What help says of musl's malloc, by command."""

from gdbheapx.allocators.records import NeverReturns

NEVER_RETURNS = NeverReturns(
    "musl's malloc returns nothing when it is asked: it unmaps a group of slots as soon as the last block in it is freed",
    "`gdbheapx pins` shows which blocks keep free slots; free these, or allocate what lives long before what lives short",
)
HELP = {
    "arenas": """musl: one row, as musl has no arenas: system = used + free + overhead + unparsed, to the byte. `used` counts the bytes
that were asked for; `overhead` is metas, group headers and what requests were rounded up by. `bins` shows each size class.
""",
    "bins": "musl: each size class with its groups and slots; class 63 has blocks with a mapping of their own.\n",
    "chunks": "musl: the size of a block in use is what was asked for, exactly.\n",
    "pins": "musl: a place is a group; it is unmapped when its last block is freed.\n",
    "tcache": "musl has no thread caches.\n",
}
