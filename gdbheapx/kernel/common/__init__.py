"""What every walk needs: where bytes come from, windows onto them, page tables, and this library itself."""
