"""The rules of glibc malloc: which are broken, where, and what malloc itself would say of it."""
