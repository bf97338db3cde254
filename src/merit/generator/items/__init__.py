"""A generator that reads items and writes labels: it starts from the factor model and corrects it."""
