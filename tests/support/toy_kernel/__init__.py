"""Folders of the kernel that are compiled with it in tests."""
