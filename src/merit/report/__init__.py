"""Charts and self-contained HTML pages. Imports no torch and no model."""
