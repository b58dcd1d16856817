"""malloc_stats_print's figures, options, and how the build was configured."""
