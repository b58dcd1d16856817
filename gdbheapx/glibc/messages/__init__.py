"""Texts about glibc malloc: verdict, findings, tables."""
