"""`merit bench CONFIG`: data sets × methods × seeds, every cell an artifact, all judged by one evaluator."""
