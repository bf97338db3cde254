"""From what the generator knows of a user to a probability for any interest: one small model for all of them."""
