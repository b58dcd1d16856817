"""What jemalloc tells people: verdict, findings, tables, statistics text."""
