"""2: the label space: texts, vectors, clusters, token paths, policy."""
