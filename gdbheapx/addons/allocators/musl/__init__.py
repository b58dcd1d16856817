"""musl's malloc: mallocng, from 1.2.1 on."""
