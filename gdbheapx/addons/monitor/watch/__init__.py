"""What `watch` writes: lines for people, CSV, JSON lines, OpenMetrics."""
