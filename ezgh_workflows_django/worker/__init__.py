"""THE PROCESS THAT RUNS STEPS. Pure Python: knows the protocol, and no Django."""

from .worker import Worker

__all__ = ["Worker"]
