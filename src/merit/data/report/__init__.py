"""The data report: what a prepared data set holds."""
