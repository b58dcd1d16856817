"""Packs of stripped allocator libraries as they are distributed: BUILDID.json, made by `make packs`.

jemalloc.structs has the structs of each release of jemalloc, for builds that no pack knows: tools/make_struct_tables.py made it from
packs of unstripped builds of the upstream tags (autoconf, configure, make build_lib_shared, `gdbheapx symbols export`)."""

from typing import Dict

EMBEDDED: Dict[str, str] = {}
"""File name -> contents, where there are no files: in gdbheapx-single.py."""
