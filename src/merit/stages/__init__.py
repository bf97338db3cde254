"""13: one file per stage, from artifact folders to one artifact folder; the only writers of artifacts."""
