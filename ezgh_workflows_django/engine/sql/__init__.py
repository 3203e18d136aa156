"""The statements of the hot verbs. No rule lives here: verbs decide, these only read and lock."""
