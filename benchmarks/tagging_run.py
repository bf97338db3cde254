"""Interests on tags that were mined or completed: what the quick preset learns from them (`benchmarks.tagging --run`)."""

from __future__ import annotations
