"""`manage.py runworker`: the command of `worker_command`. Where another app has a `runworker` too, `workflows_worker` is the same."""

from ..worker_command import WorkerCommand


class Command(WorkerCommand):
    """Run a worker on this project's database."""
