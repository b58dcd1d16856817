"""Recognition of the blocks in use: each by its words, by a row that it meets, or by the pointers to it."""
