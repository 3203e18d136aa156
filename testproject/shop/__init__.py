"""A shop that imports orders from a CSV file, one run for each row: real work for the demo."""
