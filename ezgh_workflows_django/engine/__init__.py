"""The engine: the only writer of runs, steps, leases, checkpoints, events and journals.

One noun a file, one function a verb, one transaction a function (spec: engine.md).
"""
