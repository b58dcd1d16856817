"""Contain the readers of a live process, a core or a remote target, and the Target interface that they share."""
