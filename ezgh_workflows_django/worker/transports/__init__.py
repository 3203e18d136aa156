"""The ways to the server: one protocol (`base`), a file for each way."""
