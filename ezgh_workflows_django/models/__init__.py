"""Rows and questions: tables, constraints, querysets. No moves."""

from .access import ApiKey, WorkflowPause
from .events import Event, Receipt, Wait
from .figures import Figure, FigureKind, RefusedCall, RunningTotal
from .fleet import Announcement, Tick, Trail, Worker
from .runs import Checkpoint, JournalEntry, Lease, Run, RunLabel, Step
from .schedules import Became, Occurrence, Schedule, Timetable
from .slots import Admission, Gate, Rate
from .tenancy import App, Definition, Organization, Project, Revision
from .usage import Price, SpanRecord, UsageRecord

__all__ = [
    "Admission",
    "Announcement",
    "ApiKey",
    "App",
    "Became",
    "Checkpoint",
    "Definition",
    "Event",
    "Figure",
    "FigureKind",
    "Gate",
    "JournalEntry",
    "Lease",
    "Occurrence",
    "Organization",
    "Price",
    "Project",
    "Rate",
    "Receipt",
    "RefusedCall",
    "Revision",
    "Run",
    "RunLabel",
    "RunningTotal",
    "Schedule",
    "SpanRecord",
    "Step",
    "Tick",
    "Timetable",
    "Trail",
    "UsageRecord",
    "Wait",
    "Worker",
    "WorkflowPause",
]
