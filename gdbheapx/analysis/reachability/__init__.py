"""What holds the used blocks: roots, the graph, and what is asked of it."""
