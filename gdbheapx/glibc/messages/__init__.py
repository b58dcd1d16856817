"""What glibc malloc tells people: verdict, findings, tables."""
