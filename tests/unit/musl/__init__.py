"""musl's malloc, of made-up memory."""
