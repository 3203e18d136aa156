"""The engine over HTTP: a call in, a verb, an answer out. Decides nothing that the engine decides."""
