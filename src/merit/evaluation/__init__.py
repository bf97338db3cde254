"""Measures any method from its predictions alone. Imports no torch and no model."""
