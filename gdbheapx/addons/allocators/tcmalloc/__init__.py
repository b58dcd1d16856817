"""gperftools' tcmalloc, 2.7 to 2.18: which are in a target, and what their structures say."""
