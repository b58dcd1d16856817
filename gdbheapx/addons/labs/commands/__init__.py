"""The commands of this add-on, one file each."""
