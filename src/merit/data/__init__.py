"""1: two raw tables → leak-free examples. Imports no torch."""
