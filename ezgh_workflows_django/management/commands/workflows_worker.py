"""`manage.py workflows_worker`: `runworker` under a name that no other app takes."""

from ..worker_command import WorkerCommand


class Command(WorkerCommand):
    """Run a worker on this project's database."""
