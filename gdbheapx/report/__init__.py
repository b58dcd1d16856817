"""Format answers as text, JSON and pages."""
