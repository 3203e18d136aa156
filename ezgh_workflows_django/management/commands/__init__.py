"""One file a command; Django finds them by their names."""
