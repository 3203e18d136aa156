"""Which path is which view."""

from __future__ import annotations

from typing import Final

from django.urls import URLPattern, URLResolver, include, path, re_path

from . import access, apps, bulk, claims, health, lease_calls, metrics, nowhere, prices, reference, runs, schedules, sessions, starting, stream

WORKER: Final = [
    path("workers/register", sessions.RegisterView.as_view(), name="register"),
    path("workers/<str:worker_id>/leave", sessions.LeaveView.as_view(), name="leave"),
    path("steps/claim", claims.ClaimView.as_view(), name="claim"),
    path("steps/started", lease_calls.ManyStartedView.as_view(), name="many-started"),
    path("steps/heartbeat", lease_calls.ManyHeartbeatView.as_view(), name="many-heartbeats"),
    path("steps/outcomes", lease_calls.OutcomesView.as_view(), name="outcomes"),
    path("steps/<str:lease_id>/started", lease_calls.StartedView.as_view(), name="started"),
    path("steps/<str:lease_id>/heartbeat", lease_calls.HeartbeatView.as_view(), name="heartbeat"),
    path("steps/<str:lease_id>/complete", lease_calls.CompleteView.as_view(), name="complete"),
    path("steps/<str:lease_id>/fail", lease_calls.FailView.as_view(), name="fail"),
    path("steps/<str:lease_id>/suspend", lease_calls.SuspendView.as_view(), name="suspend"),
    path("steps/<str:lease_id>/checkpoint", lease_calls.CheckpointView.as_view(), name="checkpoint"),
    path("steps/<str:lease_id>/children", lease_calls.ChildrenView.as_view(), name="children"),
    path("steps/<str:lease_id>/parts/<path:reference>", lease_calls.PartView.as_view(), name="part"),
]


RUNS: Final = [
    path("runs", starting.RunsView.as_view(), name="runs"),
    path("runs/cancel", bulk.BulkCancelView.as_view(), name="bulk-cancel"),
    path("runs/retry", bulk.BulkRetryView.as_view(), name="bulk-retry"),
    path("runs/resume", bulk.BulkResumeView.as_view(), name="bulk-resume"),
    path("runs/<str:run_id>", runs.OneRunView.as_view(), name="run"),
    path("runs/<str:run_id>/journal", runs.JournalView.as_view(), name="journal"),
    path("runs/<str:run_id>/events", stream.StreamView.as_view(), name="stream"),
    path("runs/<str:run_id>/graph", runs.GraphView.as_view(), name="graph"),
    path("runs/<str:run_id>/spans", runs.SpansView.as_view(), name="spans"),
    path("runs/<str:run_id>/cancel", runs.CancelView.as_view(), name="cancel"),
    path("runs/<str:run_id>/pause", runs.PauseView.as_view(), name="pause"),
    path("runs/<str:run_id>/resume", runs.ResumeView.as_view(), name="resume"),
    path("runs/<str:run_id>/retry", runs.RetryView.as_view(), name="retry"),
    path("runs/<str:run_id>/resolve", runs.ResolveView.as_view(), name="resolve"),
    path("runs/<str:run_id>/migrate", runs.MigrateView.as_view(), name="migrate"),
    path("runs/<str:run_id>/signal", runs.SignalView.as_view(), name="signal"),
    path("workflows", apps.WorkflowsView.as_view(), name="workflows"),
    path("events", starting.EventsView.as_view(), name="events"),
    path("prices", prices.PricesView.as_view(), name="prices"),
]

PROJECT: Final = [
    path("apps", apps.AppsView.as_view(), name="apps"),
    path("apps/<str:app>", apps.AppView.as_view(), name="app"),
    path("apps/<str:app>/pause", apps.AppPauseView.as_view(), name="app-pause"),
    path("apps/<str:app>/resume", apps.AppResumeView.as_view(), name="app-resume"),
    path("apps/<str:app>/workflows", apps.AppWorkflowsView.as_view(), name="app-workflows"),
    path("apps/<str:app>/runs", starting.AppRunsView.as_view(), name="app-runs"),
    path("apps/<str:app>/schedules", schedules.SchedulesView.as_view(), name="app-schedules"),
    path("schedules/<str:schedule_id>/pause", schedules.SchedulePauseView.as_view(), name="schedule-pause"),
    path("schedules/<str:schedule_id>/resume", schedules.ScheduleResumeView.as_view(), name="schedule-resume"),
    path("schedules/<str:schedule_id>/run", schedules.ScheduleRunView.as_view(), name="schedule-run"),
    path("keys", access.KeysView.as_view(), name="keys"),
    path("keys/<str:prefix>", access.KeyView.as_view(), name="key"),
    path("trails", access.TrailsView.as_view(), name="trails"),
]

SERVER: Final = [
    path("health", health.HealthView.as_view(), name="health"),
    path("metrics", metrics.MetricsView.as_view(), name="metrics"),
    path("openapi.json", reference.DocumentView.as_view(), name="openapi"),
    path("docs", reference.PageView.as_view(), name="docs"),
]

NOWHERE: Final = re_path("", nowhere.NowhereView.as_view())
"""Last of all: whatever else is below these paths. A host's own views there come before this package's in its URLconf."""

urlpatterns: Final[list[URLPattern | URLResolver]] = [
    path("v1/api/", include([*WORKER, *RUNS, *SERVER, NOWHERE])),
    path("v1/organizations/<str:organization>/projects/<str:project>/", include([*PROJECT, NOWHERE])),
]
