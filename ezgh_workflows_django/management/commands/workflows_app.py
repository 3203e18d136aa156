"""`manage.py workflows_app create|list|update|pause|resume`: apps. `engine.apps` holds the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.core.management.base import CommandParser

from ...engine import apps, tenancy
from ...models import App
from ..tenants import TenantCommand, add_project, project_of

BY: Final = ("command", "workflows_app")


def create(command: TenantCommand, options: dict[str, Any]) -> None:
    """Create an app."""
    app = apps.create(project_of(options), options["name"], by=BY, queue=options["queue"], partitions=options["partitions"])
    command.say(options, _short(app), f'app "{app.name}" (id {app.pk}) is created: queue "{app.queue}", {app.partitions} partitions')


def show(command: TenantCommand, options: dict[str, Any]) -> None:
    """Print the project's apps and how each is doing."""
    found = [_full(each) for each in apps.facts_of(tenancy.apps_of(project_of(options)))]
    command.say(options, found, "\n".join(map(_line, found)) or "no apps")


def update(command: TenantCommand, options: dict[str, Any]) -> None:
    """Let partitions grow."""
    app = apps.update(_app(options), by=BY, partitions=options["partitions"])
    command.say(options, _short(app), f'app "{app.name}" has {app.partitions} partitions')


def pause(command: TenantCommand, options: dict[str, Any]) -> None:
    """Hold the app's work, or one workflow's, back."""
    app = _app(options)
    apps.pause(app, by=BY, workflow=options["workflow"], reason=options["reason"])
    command.say(options, _short(app), f"{_what(app, options)} is paused")


def resume(command: TenantCommand, options: dict[str, Any]) -> None:
    """Hold it back no longer."""
    app = _app(options)
    apps.resume(app, by=BY, workflow=options["workflow"])
    command.say(options, _short(app), f"{_what(app, options)} is not paused any more")


class Command(TenantCommand):
    """Creates, lists, changes, pauses and resumes apps."""

    help = "Apps: create one, list them with how they are doing, let partitions grow, pause one or a workflow of it, resume."
    actions = {"create": create, "list": show, "update": update, "pause": pause, "resume": resume}

    def add_arguments(self, parser: CommandParser) -> None:
        """The actions and their flags."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="create|list|update|pause|resume")
        making, listing, changing, pausing, resuming = (
            actions.add_parser("create", help="Create an app."),
            actions.add_parser("list", help="The project's apps and how each is doing."),
            actions.add_parser("update", help="Let an app's partitions grow."),
            actions.add_parser("pause", help="Let claims answer empty; all else goes on."),
            actions.add_parser("resume", help="End a pause."),
        )
        for each in (making, changing, pausing, resuming):
            each.add_argument("name", help="The app's name.")
        making.add_argument("--queue", default=tenancy.DEFAULT, help="Its queue, which it keeps.")
        making.add_argument("--partitions", type=int, default=4, metavar="N", help=f"1 to {apps.MOST_PARTITIONS}; they can grow and never shrink.")
        changing.add_argument("--partitions", type=int, required=True, metavar="N", help="As many as it has, or more.")
        for each in (pausing, resuming):
            each.add_argument("--workflow", metavar="NAME", help="Only this workflow of the app.")
        pausing.add_argument("--reason", default="", metavar="TEXT", help="Why, for those who wonder.")
        for each in (making, listing, changing, pausing, resuming):
            add_project(each)


def _app(options: Mapping[str, Any]) -> App:
    return tenancy.find_app(project_of(options), options["name"])


def _what(app: App, options: Mapping[str, Any]) -> str:
    return f'app "{app.name}"' if options["workflow"] is None else f'workflow "{options["workflow"]}" of app "{app.name}"'


def _short(app: App) -> dict[str, Any]:
    return {"id": app.pk, "name": app.name, "queue": app.queue, "partitions": app.partitions}


def _full(told: apps.Facts) -> dict[str, Any]:
    return {
        **_short(told.app),
        "paused_at": told.app.paused_at,
        "paused_reason": told.app.paused_reason,
        "paused_workflows": [{"workflow": each.workflow, "paused_at": each.paused_at, "reason": each.reason} for each in told.paused_workflows],
        "depth": told.depth,
        "oldest_ready_at": told.oldest_ready_at,
        "live_workers": told.live_workers,
        "workflows": list(told.workflows),
        "stranded": told.stranded,
    }


def _line(told: Mapping[str, Any]) -> str:
    paused = [] if told["paused_at"] is None else [f"paused: {told['paused_reason'] or 'no reason given'}"]
    paused += [f"{each['workflow']} paused: {each['reason'] or 'no reason given'}" for each in told["paused_workflows"]]
    counts = f"{told['depth']} ready, {told['live_workers']} workers, {len(told['workflows'])} workflows, {told['stranded']} stranded"
    return "  ".join([f"{told['name']} (id {told['id']})", f"queue {told['queue']} over {told['partitions']}", counts, *paused])
