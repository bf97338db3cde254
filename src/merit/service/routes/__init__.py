"""One file for each group of routes."""
