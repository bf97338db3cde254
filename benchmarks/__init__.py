"""Runs of real size that print a table and, as the last line, one JSON object with their figures."""
