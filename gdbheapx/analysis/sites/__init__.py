"""Find code that may have allocated blocks, by the code alone: nothing is recorded."""
