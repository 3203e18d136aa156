"""Where Django's admin looks for pages: it registers the console's, and owns none."""

from .console import apps, definitions, events, journal, leases, prices, runs, schedules, steps, trails, usage, workers

__all__ = ["apps", "definitions", "events", "journal", "leases", "prices", "runs", "schedules", "steps", "trails", "usage", "workers"]
