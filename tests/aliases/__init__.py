"""A project whose workflow tables are in a database of their own, and whose router knows nothing of that."""
