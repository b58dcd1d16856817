"""What every other room uses: errors and codes, sizes and columns, limits, records of answers, opening of untrusted paths."""

__version__ = "1.0.0"
