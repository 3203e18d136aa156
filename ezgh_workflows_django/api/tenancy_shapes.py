"""The bodies, queries and answers of apps, keys and the trail (spec: api.md)."""

from __future__ import annotations

from rest_framework import serializers

from ..engine.apps import MAX_REASON, MOST_LISTED, MOST_PARTITIONS, NAME, QUEUE
from ..engine.keys import MAX_NAME
from ..engine.tenancy import DEFAULT
from ..engine.trail import MAX_PAGE
from .fields import CountField, MomentField, NumberField, ObjectField, PatternField, SaidField, Shape, TextField, shape


class NewApp(Shape):
    """An app to create."""

    name = PatternField(f"^{NAME.pattern}$", max_length=63, help_text="Not digits alone: those would be an id.")
    kind = serializers.ChoiceField(choices=["pull"], required=False, default="pull")
    queue = PatternField(f"^{QUEUE.pattern}$", max_length=63, required=False, default=DEFAULT)
    partitions = CountField(1, MOST_PARTITIONS, required=False, default=4)


class AppChange(Shape):
    """What an app is to become. Partitions only grow, the queue stays."""

    partitions = CountField(1, MOST_PARTITIONS, required=False)
    queue = TextField(max_length=63, required=False)


class Pause(Shape):
    """Which workflow to hold back (without: the whole app), and why."""

    workflow = TextField(required=False, allow_null=True)
    reason = TextField(max_length=MAX_REASON, required=False, allow_blank=True, default="")


class PausedWorkflow(Shape):
    """A workflow that is held back."""

    workflow = SaidField()
    paused_at = MomentField()
    reason = SaidField()


class AppTold(Shape):
    """An app, and how its queue stands."""

    id = NumberField()
    name = SaidField()
    kind = SaidField()
    queue = SaidField()
    partitions = NumberField()
    created_at = MomentField()
    paused_at = MomentField(allow_null=True)
    paused_reason = SaidField()
    paused_workflows = serializers.ListField(child=PausedWorkflow())
    depth = NumberField(help_text="Steps that are ready.")
    oldest_ready_at = MomentField(allow_null=True)
    live_workers = NumberField()
    workflows = serializers.ListField(child=serializers.CharField(), help_text="Names that live workers announce.")
    stranded = NumberField(help_text="Open runs that no live worker serves.")


class StrandedRun(Shape):
    """An open run that no live worker serves: one that holds its revision takes it on, or `migrate` moves it to another version."""

    id = SaidField()
    workflow = SaidField()
    version = SaidField()
    revision = SaidField()
    status = SaidField()
    created_at = MomentField()


class AppPage(AppTold):
    """An app, how its queue stands, and what is stranded there."""

    stranded_runs = serializers.ListField(child=StrandedRun(), help_text=f"The newest {MOST_LISTED} of them.")


class AppsTold(Shape):
    """A page of apps, the newest first. `next` is the cursor of the page after it, or null."""

    apps = serializers.ListField(child=AppTold())
    next = SaidField(allow_null=True)


class AppQuery(Shape):
    """Of which app; without, of every one in the key's reach."""

    app = TextField(required=False)


class WorkflowTold(Shape):
    """A version of a workflow that live workers of an app announce."""

    app = SaidField()
    name = SaidField()
    version = SaidField()
    revision = SaidField()
    longest_timeout_ms = NumberField(allow_null=True)
    workers = NumberField()
    created_at = MomentField()


class WorkflowsTold(Shape):
    """What is announced, by name, the newest version of each first."""

    workflows = serializers.ListField(child=WorkflowTold())


class TrailQuery(Shape):
    """Which entries."""

    action = TextField(required=False)
    actor = TextField(required=False)
    target = TextField(required=False)
    since = MomentField(required=False)
    until = MomentField(required=False)
    cursor = TextField(required=False)
    limit = serializers.IntegerField(min_value=1, max_value=MAX_PAGE, required=False, default=50)


TrailTold = shape(
    "TrailTold",
    "One entry of the trail: who did what.",
    at=MomentField(),
    action=SaidField(),
    actor_kind=SaidField(),
    actor=SaidField(),
    target_kind=SaidField(),
    target=SaidField(),
    data=ObjectField(),
)


class TrailsTold(Shape):
    """Entries, the newest first. `next` is the cursor of those before them, or null."""

    trails = serializers.ListField(child=TrailTold())
    next = SaidField(allow_null=True)


class NewKey(Shape):
    """A key to make. It gives no more than the key that makes it has."""

    name = TextField(max_length=MAX_NAME)
    permissions = serializers.ListField(child=TextField(max_length=80), max_length=100, help_text="Permissions, policies or scopes by name.")
    app = TextField(required=False, allow_null=True)
    expires_at = MomentField(required=False, allow_null=True)


class KeyTold(Shape):
    """A key, without its secret."""

    prefix = SaidField()
    name = SaidField()
    app = SaidField(allow_null=True)
    permissions = serializers.ListField(child=serializers.CharField())
    created_at = MomentField()
    created_by = SaidField()
    expires_at = MomentField(allow_null=True)
    revoked_at = MomentField(allow_null=True)
    used_at = MomentField(allow_null=True)


class KeyMade(KeyTold):
    """A new key. `key` is shown this once."""

    key = SaidField()


class KeysTold(Shape):
    """A page of keys, the newest first. `next` is the cursor of the page after it, or null."""

    keys = serializers.ListField(child=KeyTold())
    next = SaidField(allow_null=True)
