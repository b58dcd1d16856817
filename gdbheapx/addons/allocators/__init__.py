"""Add-on for allocators other than glibc's and jemalloc's: mimalloc, gperftools' tcmalloc, musl's mallocng."""

CAPABILITIES = {"allocators": "gates"}
"""Which module has what the core asks for (addon_loader.find_capability)."""
DOCS = ("how-to/mimalloc.md", "how-to/musl.md", "how-to/tcmalloc.md")
"""Its pages in docs/."""
