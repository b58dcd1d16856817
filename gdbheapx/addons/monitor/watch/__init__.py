"""Output of `watch`: lines for people, CSV, JSON lines, OpenMetrics."""
