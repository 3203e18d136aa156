"""The checks, by noun. Importing this registers them all, in this order."""

from . import register, starts, claims, leases, failures, refusals, durable, errors, times  # noqa: I001 - the order of the report

__all__ = ["claims", "durable", "errors", "failures", "leases", "refusals", "register", "starts", "times"]
