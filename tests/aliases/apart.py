"""The test project with two databases, `default` and `workflows`, and the router that is shipped."""

from __future__ import annotations

from copy import deepcopy

from testproject import settings as of_the_project
from testproject.settings import *  # noqa: F403 - settings are a module's names

ALIAS = "workflows"
_default = of_the_project.DATABASES["default"]
DATABASES = {"default": _default, ALIAS: {**deepcopy(_default), "NAME": f"{_default['NAME']}.{ALIAS}"}}
DATABASE_ROUTERS = ["ezgh_workflows_django.routers.WorkflowsRouter"]
EZGH_WORKFLOWS = {"DATABASE": ALIAS}
TASKS = {"default": {"BACKEND": "ezgh_workflows_django.contrib.tasks.WorkflowsBackend", "QUEUES": ["default", "emails"]}}
