"""Find the holders of the used blocks: roots, the graph, and the queries on it."""
