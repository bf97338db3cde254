"""A new day: what came since goes into a trained model, whose weights stay; and whether they still should."""
