"""`manage.py workflows_schedules list|next|pause|resume|run`: schedules. `engine.schedules` holds the rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser

from ...engine import schedules, tenancy
from ...models import Schedule
from ..tenants import TenantCommand, add_project, project_of

BY: Final = ("command", "workflows_schedules")
MOST_AHEAD: Final = 1_000


def show(command: TenantCommand, options: dict[str, Any]) -> None:
    """Print the project's schedules, or an app's, and how each stands."""
    apps = tenancy.apps_of(project_of(options))
    chosen = apps if options["app"] is None else [tenancy.find_app(project_of(options), options["app"])]
    found = [_full(each) for each in schedules.facts_of(schedules.of_apps(chosen))]
    command.say(options, found, "\n".join(map(_line, found)) or "no schedules")


def coming(command: TenantCommand, options: dict[str, Any]) -> None:
    """Print when a schedule fires next."""
    if not 1 <= options["count"] <= MOST_AHEAD:
        raise CommandError(f"--count: 1 to {MOST_AHEAD:,}, not {options['count']}")
    ahead = [moment.isoformat() for moment in schedules.ahead(_schedule(options), options["count"])]
    command.say(options, [{"at": at} for at in ahead], "\n".join(ahead) or "it does not fire")


def pause(command: TenantCommand, options: dict[str, Any]) -> None:
    """Let a schedule fire no more."""
    schedule = schedules.pause(_schedule(options).pk, by=BY, reason=options["reason"])
    command.say(options, _short(schedule), f"{_name(schedule)} is paused")


def resume(command: TenantCommand, options: dict[str, Any]) -> None:
    """Let it fire again."""
    schedule = schedules.resume(_schedule(options).pk, by=BY)
    fires = "does not fire" if schedule.next_at is None else f"fires next at {schedule.next_at.isoformat()}"
    command.say(options, _short(schedule), f"{_name(schedule)} is not paused any more and {fires}")


def run(command: TenantCommand, options: dict[str, Any]) -> None:
    """Start what it starts, now."""
    started = schedules.run(_schedule(options).pk, by=BY)
    command.say(options, {"run": str(started.pk)}, f"run {started.pk} is started")


class Command(TenantCommand):
    """Lists schedules, says when one fires, pauses, resumes and runs one."""

    help = "Schedules: list them, see when one fires next, pause it, resume it, run it now."
    actions = {"list": show, "next": coming, "pause": pause, "resume": resume, "run": run}

    def add_arguments(self, parser: CommandParser) -> None:
        """The actions and their flags."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="list|next|pause|resume|run")
        listing, foretelling, pausing, resuming, running = (
            actions.add_parser("list", help="The project's schedules and how each stands."),
            actions.add_parser("next", help="When one fires next."),
            actions.add_parser("pause", help="Let it fire no more; runs at work go on."),
            actions.add_parser("resume", help="Let it fire again, from now on."),
            actions.add_parser("run", help="Start what it starts, now, whatever is at work."),
        )
        listing.add_argument("--app", metavar="NAME", help="Only this app's, by name or id.")
        for each in (foretelling, pausing, resuming, running):
            each.add_argument("schedule", metavar="ID", help="Its id, as `list` says.")
        foretelling.add_argument("--count", type=int, default=schedules.SHOWN_AHEAD, metavar="N", help="How many times.")
        pausing.add_argument("--reason", default="", metavar="TEXT", help="Why, for those who wonder.")
        for each in (listing, foretelling, pausing, resuming, running):
            add_project(each)


def _schedule(options: Mapping[str, Any]) -> Schedule:
    return schedules.find(options["schedule"], project_of(options))


def _name(schedule: Schedule) -> str:
    return f'schedule {schedule.pk} ("{schedule.workflow}", {schedule.expression} in {schedule.timezone})'


def _short(schedule: Schedule) -> dict[str, Any]:
    told = {name: getattr(schedule, name) for name in ("workflow", "expression", "timezone", "next_at", "paused_at")}
    return {"id": schedule.pk, "app": schedule.app.name, **told}


def _full(told: schedules.Facts) -> dict[str, Any]:
    last = None if told.last is None else {name: getattr(told.last, name) for name in ("at", "became", "reason", "run_id")}
    rest = {name: getattr(told.schedule, name) for name in ("overlap", "catch_up", "paused_reason")}
    return {**_short(told.schedule), **rest, "last": last}


def _line(told: Mapping[str, Any]) -> str:
    last = "" if told["last"] is None else f"last {told['last']['at'] or 'by hand'}: {told['last']['became']}"
    if told["paused_at"] is not None:
        stands = f"paused: {told['paused_reason'] or 'no reason given'}"
    else:
        stands = "does not fire" if told["next_at"] is None else f"next {told['next_at']}"
    return "  ".join(filter(None, [f"{told['id']}  {told['app']}/{told['workflow']}", f"{told['expression']} {told['timezone']}", stands, last]))
