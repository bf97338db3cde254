"""7: scores both ways over memory-mapped arrays: users for a label, labels for a user. Imports no torch."""
