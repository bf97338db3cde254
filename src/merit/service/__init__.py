"""A model as a service: `merit serve FOLDER`, the API under /v1, and a place for Studio. It never imports the
generator."""
