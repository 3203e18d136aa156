"""Commands: arguments and wiring only. What they do is done by the engine and the worker."""
