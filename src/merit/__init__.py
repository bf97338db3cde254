"""Propensities over text interests, ranked both ways: interests for a user, users for an interest."""

__version__ = "0.1.0"
