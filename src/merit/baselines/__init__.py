"""Methods to compare with, on the same examples, label space and evaluator."""
