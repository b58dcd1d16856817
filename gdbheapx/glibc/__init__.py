"""Interpretation of memory as glibc malloc."""
