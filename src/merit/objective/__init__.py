"""3: the idea: which tokens are right at each position, and what it costs to say others."""
