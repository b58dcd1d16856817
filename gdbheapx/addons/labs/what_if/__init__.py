"""Prediction of the memory that a setting would save before a restart: the command what-if."""
