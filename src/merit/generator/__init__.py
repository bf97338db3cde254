"""From examples to text: backbone, training loop, constrained decoding."""
