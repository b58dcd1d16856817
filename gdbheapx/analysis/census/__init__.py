"""What the used part of the heap is: blocks by what stands in them."""
