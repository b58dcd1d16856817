"""glibc malloc: chunks, lists of free ones, mapped ones."""
