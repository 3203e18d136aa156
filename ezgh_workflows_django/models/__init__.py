"""Rows and questions: tables, constraints, querysets. No moves."""

from .access import ApiKey, WorkflowPause
from .events import Event, Receipt, Wait
from .fleet import Announcement, Tick, Trail, Worker
from .runs import Checkpoint, JournalEntry, Lease, Run, RunLabel, Step
from .tenancy import App, Definition, Organization, Project, Revision

__all__ = [
    "Announcement",
    "ApiKey",
    "App",
    "Checkpoint",
    "Definition",
    "Event",
    "JournalEntry",
    "Lease",
    "Organization",
    "Project",
    "Receipt",
    "Revision",
    "Run",
    "RunLabel",
    "Step",
    "Tick",
    "Trail",
    "Wait",
    "Worker",
    "WorkflowPause",
]
