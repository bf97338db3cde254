"""Users who want to be forgotten, ids nobody should see, and what must be answered for."""
