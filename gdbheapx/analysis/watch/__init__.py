"""A process over time: samples of counters while it runs, how they grow, what came back of memory that was returned."""
