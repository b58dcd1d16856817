"""Add-ons: each folder below can be deleted, and its commands then say what is missing."""
