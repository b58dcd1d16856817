"""What a purge or a cure would do, and whether it may: code, locks, extent hooks, the prediction."""
