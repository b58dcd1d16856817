"""The live heap profile."""
