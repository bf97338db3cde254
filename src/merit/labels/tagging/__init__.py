"""Interests of items from their titles: completed from tagged items, assigned from a vocabulary, or mined."""
