"""The walks over tcmalloc's page map and free lists."""
